"""Compares a writer's log with the table. A new log that has begun meanwhile is a lost race, and no error."""

from __future__ import annotations

from filestore.commit.loop import log_begun
from filestore.delta.state import TableState
from filestore.errors import Corrupt
from filestore.table import FileStore
from log.table.config import LogConfig
from log.table.store import LogStore
from managed_table.own_log import require_own_log

__all__ = ["require_log_of", "writing_log"]


def writing_log(config: LogConfig | None, base: TableState) -> LogConfig | None:
    """Returns the log for a writer that begins on a version: none of its records may have an offset of that version."""
    return None if config is None else config.behind(base.log.offsets)


def require_log_of(filestore: FileStore, log: LogStore, state: TableState) -> None:
    """Refuses a log as `require_own_log` does.

    Raises:
        Corrupt: ``log-replaced``, ``log-behind``.
        Conflict: ``metadata-changed``: a new log has begun since that version. Begin again.
    """
    try:
        require_own_log(log, state)
    except Corrupt:
        newest = filestore.state()
        require_own_log(log, newest)
        raise log_begun(newest.log.begins, state.version) from None
