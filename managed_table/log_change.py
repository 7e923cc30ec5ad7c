"""Changes a table's log together with the commit of the options that say how it is reached and what it keeps."""

from __future__ import annotations

from collections.abc import Callable

from filestore.ambient import Ambient
from filestore.delta.state import TableState
from filestore.errors import InvalidRequest
from filestore.model.definition import TableDefinition
from log.table.config import LogConfig
from log.table.systems import open_log
from managed_table.own_log import require_own_log

__all__ = ["LogChange"]


class LogChange:
    """The change of a log that goes with a change of the definition (`SideEffect` of `alter`).

    New brokers or client settings are tried first, as `create` tries those of a new table: with wrong ones every later
    write would fail. Then the log keeps its records as long as the new definition says.

    Args:
        log: Returns the table's log for a definition; None for a table without one.
        ambient: Clock and ids.
    """

    def __init__(self, log: Callable[[TableDefinition], LogConfig | None], ambient: Ambient) -> None:
        self._log_of = log
        self._ambient = ambient
        self._applied = False

    def apply(self, base: TableState, after: TableDefinition) -> None:
        """Checks that the new definition reaches the same log, and sets the retention that it asks for.

        Raises:
            Unavailable: the log's server does not answer, so the retention may be changed: `undo` takes it back.
            InvalidRequest: ``log-properties``, ``log-settings``, ``log-not-authorized``: it refuses.
            NotFound: ``log-not-found``: the new brokers do not have the topic.
            Corrupt: ``log-replaced``: they have another topic of its name.
        """
        former, log = self._log_of(base.definition), self._log_of(after)
        if former is None or log is None:
            return
        if _access(former) != _access(log):
            with open_log(log, self._ambient) as opened:
                opened.check_writable()
                require_own_log(opened, base)
        if former.retention_ms != log.retention_ms:
            self._change_retention(log)

    def undo(self, current: TableDefinition) -> None:
        """Sets the retention that the table's definition asks for, if `apply` has changed it. Raises as `apply`."""
        log = self._log_of(current)
        if self._applied and log is not None:
            self._set_retention(log)
            self._applied = False

    def _change_retention(self, log: LogConfig) -> None:
        earlier, self._applied = self._applied, True
        try:
            self._set_retention(log)
        except InvalidRequest:
            self._applied = earlier
            raise

    def _set_retention(self, log: LogConfig) -> None:
        with open_log(log, self._ambient) as opened:
            opened.keep_for(log.retention_ms)


def _access(log: LogConfig) -> tuple[object, ...]:
    """Returns what a client needs to reach a log."""
    return log.bootstrap_servers, log.topic, log.properties, log.transactions
