"""Offsets are bound to the log in which they count: table, topic and cluster (log/PROTOCOL.md section 1)."""

from __future__ import annotations

from filestore.delta.state import TableState
from filestore.errors import Corrupt
from filestore.table import FileStore
from log.store import LogConfig, LogStore
from log.systems import open_log
from tablestore.handle import TableHandle

__all__ = ["check_own_log", "own_log", "require_own_log"]


def own_log(handle: TableHandle, files: FileStore) -> LogConfig:
    """The table's log for a reader that is about to begin.

    Raises:
        Unsupported: ``no-log``.
        Corrupt: ``log-replaced``.
        Unavailable: it does not answer.
    """
    config = handle.required_log(files.state().definition)
    check_own_log(config, files)
    return config


def check_own_log(config: LogConfig, files: FileStore) -> None:
    """What `own_log` does, for a log that is known already."""
    with open_log(config, files.ambient) as log:
        require_own_log(log, files.state())


def require_own_log(log: LogStore, state: TableState) -> None:
    """A topic that was deleted and made again counts from 0: the table's offsets mean other records there.

    Raises:
        Corrupt: ``log-replaced``: it is not the log that the table's offsets are bound to (PROTOCOL.md section 1).
    """
    wanted, found = state.log_identity, log.identity()
    if wanted and found != wanted:
        raise Corrupt(
            f"the log of table {state.table_id} is {found}, and its snapshots count in {wanted}: bring that log back, "
            "or make the table anew from its rows",
            code="log-replaced",
        )
