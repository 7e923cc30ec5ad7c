"""Changes how long a log keeps its records, together with the commit of the changed option."""

from __future__ import annotations

from collections.abc import Callable

from filestore.ambient import Ambient
from filestore.errors import InvalidRequest
from filestore.model.definition import TableDefinition
from log.table.store import LogConfig
from log.table.systems import open_log

__all__ = ["RetentionChange"]


class RetentionChange:
    """The change of a log's retention that goes with a change of the definition (`SideEffect` of `alter`).

    Args:
        log: Returns the table's log for a definition; None for a table without one.
        ambient: Clock and ids.
    """

    def __init__(self, log: Callable[[TableDefinition], LogConfig | None], ambient: Ambient) -> None:
        self._log_of = log
        self._ambient = ambient
        self._applied = False

    def apply(self, before: TableDefinition, after: TableDefinition) -> None:
        """Sets the retention that the new definition asks for, if it is another.

        Raises:
            Unavailable: the log's server does not answer, so the retention may be changed: `undo` takes it back.
            InvalidRequest: it refuses.
        """
        former, log = self._log_of(before), self._log_of(after)
        if former is None or log is None or former.retention_ms == log.retention_ms:
            return
        earlier, self._applied = self._applied, True
        try:
            self._set(log)
        except InvalidRequest:
            self._applied = earlier
            raise

    def undo(self, current: TableDefinition) -> None:
        """Sets the retention that the table's definition asks for, if `apply` has changed it. Raises as `apply`."""
        log = self._log_of(current)
        if self._applied and log is not None:
            self._set(log)
            self._applied = False

    def _set(self, log: LogConfig) -> None:
        with open_log(log, self._ambient) as opened:
            opened.keep_for(log.retention_ms)
