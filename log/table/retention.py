"""Changes how long a log keeps its records, together with the commit of the changed option."""

from __future__ import annotations

from collections.abc import Callable

from filestore.ambient import Ambient
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
        self._applied: tuple[LogConfig, int | None] | None = None

    def apply(self, before: TableDefinition, after: TableDefinition) -> None:
        """Sets the retention that the new definition asks for, if it is another.

        Raises:
            Unavailable: the log's server does not answer. Nothing was changed.
            InvalidRequest: it refuses.
        """
        former, log = self._log_of(before), self._log_of(after)
        if former is None or log is None or former.retention_ms == log.retention_ms:
            return
        self._set(log, log.retention_ms)
        self._applied = log, former.retention_ms

    def undo(self) -> None:
        """Sets the former retention, if `apply` has changed it. Raises as `apply`."""
        if self._applied is not None:
            log, former_ms = self._applied
            self._set(log, former_ms)
            self._applied = None

    def _set(self, log: LogConfig, milliseconds: int | None) -> None:
        with open_log(log, self._ambient) as opened:
            opened.keep_for(milliseconds)
