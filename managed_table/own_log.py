"""Checks that a log is the one for which a table's offsets are valid (log/table/PROTOCOL.md section 1)."""

from __future__ import annotations

from filestore.delta.state import TableState
from filestore.errors import Corrupt
from filestore.model.log_range import ends_before
from log.table.store import LogStore, gap, log_behind

__all__ = ["require_own_log", "require_own_records", "require_records", "require_same_log"]


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


def require_same_log(log: LogStore, state: TableState) -> None:
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


def require_own_log(log: LogStore, state: TableState) -> None:
    """Refuses a log that is another one, or that has lost its end: new records would get offsets of lost ones.

    REQUIRES: `state` was read before the call, so that a sound log ends at or behind what it covers.

    Raises:
        Corrupt: ``log-replaced``: as `require_same_log`; ``log-behind``: the log is older than the version.
    """
    require_same_log(log, state)
    if behind := ends_before(log.end_offsets(), state.log):
        bucket, (end, needed) = min(behind.items())
        raise log_behind(state.table_id, bucket, end, needed)


def require_own_records(log: LogStore, state: TableState, where: str) -> None:
    """Refuses a log as `require_own_log` does, for a reader: records that it has lost are a gap.

    Raises:
        Corrupt: ``log-replaced``.
        NotFound: ``log-gap``.
    """
    try:
        require_own_log(log, state)
    except Corrupt as error:
        if error.code != "log-behind":
            raise
        raise gap(where, error.message) from error
