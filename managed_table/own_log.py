"""Checks that a log is the one for which a table's offsets are valid (log/table/PROTOCOL.md section 1)."""

from __future__ import annotations

from filestore.delta.state import TableState
from filestore.errors import Corrupt
from log.table.store import LogStore

__all__ = ["require_own_log"]


def require_own_log(log: LogStore, state: TableState) -> None:
    """Refuses a log that was deleted and created again: in it the table's offsets belong to other records.

    Raises:
        Corrupt: ``log-replaced``: the table's offsets are not valid for this log.
    """
    wanted, found = state.log.identity, log.identity()
    if wanted and found != wanted:
        raise Corrupt(
            f"the log of table {state.table_id} is {found}, but its offsets are those of {wanted}: restore that log, "
            "or create the table again from its rows",
            code="log-replaced",
        )
