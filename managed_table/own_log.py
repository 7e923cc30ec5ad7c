"""Checks that a log is the one for which a table's offsets are valid (log/table/PROTOCOL.md section 1)."""

from __future__ import annotations

from filestore.delta.state import TableState
from filestore.errors import Corrupt
from log.table.store import LogStore, gap

__all__ = ["require_own_log", "require_records"]


def require_records(state: TableState, version: int, where: str) -> None:
    """Refuses a version whose records were in a log that the table does not have any more.

    Args:
        state: The newest version that is known.
        version: The version of the records.
        where: The table.

    Raises:
        NotFound: ``log-gap``.
    """
    if version <= state.log.begins:
        raise gap(
            where,
            f"it begins with version {state.log.begins}, since an earlier one was lost, and with it the records of "
            f"version {version}",
        )


def require_own_log(log: LogStore, state: TableState) -> None:
    """Refuses a log that was deleted and created again: in it the table's offsets belong to other records.

    Raises:
        Corrupt: ``log-replaced``: the table's offsets are not valid for this log.
    """
    wanted, found = state.log.identity, log.identity()
    if wanted and found != wanted:
        raise Corrupt(
            f"the log of table {state.table_id} is {found}, but its offsets are those of {wanted}: restore that log, "
            "or begin a new one at the newest version with `tablestore new-log` (Table.new_log)",
            code="log-replaced",
        )
