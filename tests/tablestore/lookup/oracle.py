"""A look-up join by the words of SQL, row by row, and where versions of a table begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from tablestore import Table
from tests.tables import in_order
from tests.warehouses import Row, rows

__all__ = ["begins", "joined", "joined_at"]


def joined(
    given: Sequence[Row], stored: Sequence[Row], on: Mapping[str, str], columns: Sequence[str], kind: str
) -> list[Row]:
    """The rows with each row of the table that equals them in `on`, in the order of the rows."""
    found: list[Row] = []
    for row in given:
        wanted = [row[name] for name in on]
        matches = [other for other in stored if None not in wanted and [other[name] for name in on.values()] == wanted]
        if not matches and kind == "left":
            matches = [dict.fromkeys(columns)]
        found += in_order(row | {name: other[name] for name in columns} for other in matches)
    return found


def begins(table: Table) -> dict[int, datetime]:
    """The times of the commits, by version."""
    return {snapshot.version: snapshot.timestamp for snapshot in table.snapshots()}


def joined_at(
    given: Sequence[Row], table: Table, at: str, on: Mapping[str, str], columns: Sequence[str], kind: str
) -> list[Row]:
    """The same with the rows of the version that each row's time means; columns that a version lacks are null."""
    times = begins(table)
    found: list[Row] = []
    for row in given:
        versions = [v for v, begin in times.items() if row[at] is not None and begin <= row[at]]
        stored = rows(table, max(versions)) if versions else []
        complete = [dict.fromkeys(table.schema.names) | other for other in stored]
        found += joined([row], complete, on, columns, kind)
    return found
