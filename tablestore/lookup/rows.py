"""A look-up join of rows that a program has, without Spark."""

from __future__ import annotations

import pyarrow as pa

from filestore.errors import InvalidRequest
from managed_table.opened import OpenedTable
from tablestore.incoming.given import Rows, arrow_rows
from tablestore.lookup.lookups import Lookups, Moment
from tablestore.lookup.request import LookupPlan, LookupRequest, key_schema
from tablestore.reading.fresh import standing_changes
from tablestore.reading.log_tail import VisibleTail

__all__ = ["check_one_time", "lookup_rows"]


def lookup_rows(
    lookups: Lookups, table: OpenedTable, rows: Rows, request: LookupRequest, *, version: int | None, fresh: bool
) -> pa.Table:
    """Joins rows with the rows of a table; arguments, result and errors are those of `tablestore.Table.lookup`."""
    check_one_time(request, fresh=fresh, version=version)
    state = table.filestore.state(version)
    plan = LookupPlan.of(request, state.definition)
    given = arrow_rows(rows, key_schema(plan))
    plan.check(given.schema)
    changes = None
    if fresh and (tail := VisibleTail.of(table, state.definition)) is not None:
        changes = standing_changes(table.filestore.table_files(state), state, tail.changes(state))
    return lookups.lookup(given, plan, Moment(state, state), changes)  # with event times it is the newest one


def check_one_time(request: LookupRequest, *, fresh: bool, version: int | None = None) -> None:
    """Raises `InvalidRequest` (``bad-time-travel``) if several versions of the table are asked for."""
    if sum((request.event_time is not None, version is not None, fresh)) > 1:
        raise InvalidRequest("give only one of at, version and fresh", code="bad-time-travel")
