"""`QueryWork`: what a refresh of a view computes, in this process or in Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from filestore.delta.state import TableState
from filestore.reading.drawn_rows import drawn_rows
from filestore.reading.scan import plan_scan
from filestore.rows.frames import arrow_table
from tablestore.table import Table
from tablestore.views.plan.script import Rows
from tablestore.views.plan.view_plan import Incremental, ViewPlan
from tablestore.views.sql.view_query import ViewQuery

__all__ = ["DRAWN_ROWS", "QueryWork", "RowCounts"]

DRAWN_ROWS = 20
"""The number of rows that are drawn of each table, and of the view, where a few rows are compared."""


@dataclass(frozen=True, slots=True)
class QueryWork:
    """The work of a refresh, or of a comparison.

    A refresh with `since` computes the rows of the keys that changes reach. Without it all rows are computed: with
    `compares` those that differ from the stored ones are written, and without it they replace these.

    Attributes:
        query: The query.
        plan: The plan of its refreshes.
        settings: Settings of Spark with which it runs.
        until: For each of the query's tables the version that is read.
        since: For each of them the version whose result is stored; None to compute all rows.
        compares: Whether all rows are compared with the stored ones, by key.
        output: The view's table, whose rows are compared.
        version: The version of it.
        tables: All these tables as the view has opened them, by name: another one may have a name meanwhile.
        known: Versions of them that have been read already, by name and number.
        samples: Whether a comparison is one of a few rows, drawn at random, instead of all.
    """

    query: ViewQuery
    plan: ViewPlan
    settings: Mapping[str, str]
    until: Mapping[str, int]
    since: Mapping[str, int] | None = None
    compares: bool = False
    output: str = ""
    version: int = 0
    tables: Mapping[str, Table] = field(default_factory=dict)
    known: Mapping[tuple[str, int], TableState] = field(default_factory=dict)
    samples: bool = False

    @property
    def replaces(self) -> bool:
        """Returns whether the rows replace all that are stored."""
        return self.since is None and not self.compares

    def state(self, table: str, version: int) -> TableState:
        """Returns a version of a table."""
        known = self.known.get((table, version))
        return self.tables[table].filestore.state(version) if known is None else known

    @property
    def exact(self) -> bool:
        """Returns whether the result is the same each time, to the last digit."""
        return isinstance(self.plan, Incremental) and self.plan.exact

    def compared(self) -> pa.Schema:
        """Returns the columns of the view that are compared.

        Of a few rows these are no floating-point numbers that may differ: where large ones cancel, no tolerance is
        right, and a row that is called wrong costs a refresh of all rows.
        """
        every = self.state(self.output, self.version).definition.schema.to_arrow()
        if self.exact or not self.samples:
            return every
        return pa.schema([column for column in every if not pa.types.is_floating(column.type)])

    def drawn_rows(self, rows: Rows, columns: Sequence[str]) -> pa.Table:
        """Reads a few rows of a table, other ones each time."""
        state, table = self.state(rows.table, rows.version), self.tables[rows.table]
        plan = plan_scan(state, columns)
        schema = pa.schema([column.with_nullable(True) for column in plan.schema])
        frames = drawn_rows(table.filestore.table_files(state), plan, DRAWN_ROWS, table.opened.ambient.chance)
        return pa.concat_tables([schema.empty_table(), *(arrow_table(frame, schema) for frame in frames)])

    def require_tables(self) -> None:
        """Raises `NotFound` (``table-replaced``) if a table was dropped, or dropped and created again, meanwhile."""
        for table in self.tables.values():
            table.filestore.state()


@dataclass(frozen=True, slots=True)
class RowCounts:
    """A comparison of stored rows with the query's result.

    Attributes:
        different: The rows that only one of them has.
        results: The rows of the result.
        stored: The stored rows.
    """

    different: int
    results: int
    stored: int
