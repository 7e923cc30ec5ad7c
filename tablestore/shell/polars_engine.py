"""Runs a plan with polars: its SQL over a lazy source that scans the table.

Polars asks the source for the columns and the rows that the plan needs, so files and row groups without a wanted row
are not read. Memory is that of a scan, beside what sorting and grouping need.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyarrow as pa

from filestore.errors import InvalidRequest, TableStoreError
from filestore.lazily import pl
from filestore.reading.predicate import Condition
from filestore.rows.frames import arrow_table, frame_of, polars_schema
from tablestore.shell.conditions import not_plain
from tablestore.shell.results import Result
from tablestore.shell.selects import TABLE, Plan
from tablestore.table import Table

__all__ = ["POLARS", "run_plan"]

POLARS = "polars"

_CHUNK = 4096


class _Source:
    """One version of a table, as polars reads it.

    Args:
        table: The table.
        version: The version.
    """

    def __init__(self, table: Table, version: int) -> None:
        self._table = table
        self._version = version
        self._state = table.filestore.state(version)
        self.failure: TableStoreError | None = None

    def frame(self) -> pl.LazyFrame:
        """The lazy frame."""
        schema = polars_schema(self._state.definition.schema.to_arrow())
        return pl.io.plugins.register_io_source(self._read, schema=schema, is_pure=True)

    def _read(
        self, columns: list[str] | None, predicate: pl.Expr | None, rows: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        try:
            left = rows
            for frame in self._frames(columns, predicate):
                if left is None:
                    yield frame
                    continue
                yield frame.head(left)
                left -= frame.height
                if left <= 0:
                    return
        except TableStoreError as error:
            self.failure = error  # polars makes an error of its own of it
            raise

    def _frames(self, columns: list[str] | None, predicate: pl.Expr | None) -> Iterator[pl.DataFrame]:
        if predicate is None or self._takes(predicate):
            for batch in self._table.scan(columns, predicate, self._version).to_batches():
                yield frame_of(pa.Table.from_batches([batch]))
            return
        wanted = columns if columns is not None else self._state.definition.schema.names
        read = list(dict.fromkeys([*wanted, *predicate.meta.root_names()]))
        for batch in self._table.scan(read, None, self._version).to_batches():
            yield frame_of(pa.Table.from_batches([batch])).filter(predicate).select(wanted)

    def _takes(self, predicate: pl.Expr) -> bool:
        """Returns whether a scan can filter by it; it knows conditions that see one row at a time."""
        try:
            Condition.of(predicate, self._state.definition.schema)
        except InvalidRequest:
            return False
        return True


def run_plan(plan: Plan, table: Table, version: int, limit: int | None = None) -> Result:
    """Runs a plan on a version of its table.

    Args:
        plan: What `tablestore.shell.selects.plan` made of the statement.
        table: The table.
        version: The version.
        limit: How many rows are needed at most.

    Raises:
        Unsupported: ``not-plain``: polars does not take the plan.
        TableStoreError: the table cannot be read.
    """
    source = _Source(table, version)
    try:
        query = pl.SQLContext({TABLE: source.frame()}).execute(plan.sql, eager=False)
        if limit is not None:
            query = query.head(limit)
        frames = iter(query.collect_batches(chunk_size=_CHUNK, maintain_order=True, lazy=True, engine="streaming"))
        first = list(itertools.islice(frames, 1))  # what fails at once can still be run by Spark
    except pl.exceptions.PolarsError as error:
        if source.failure is not None:
            raise source.failure from error
        raise not_plain(f"polars says: {_first_line(error)}") from error
    return Result(POLARS, plan.schema, _tables(itertools.chain(first, frames), plan.schema, source))


def _tables(frames: Iterator[pl.DataFrame], schema: pa.Schema, source: _Source) -> Iterator[pa.Table]:
    try:
        for frame in frames:
            yield arrow_table(frame, schema)
    except pl.exceptions.PolarsError as error:
        if source.failure is not None:
            raise source.failure from error
        raise InvalidRequest(
            f"polars stopped in the midst of the rows: {_first_line(error)}. Run the statement with --engine spark",
            code="polars-failed",
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
