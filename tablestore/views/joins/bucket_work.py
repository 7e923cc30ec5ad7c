"""`BucketWork`: works out the rows of one bucket of a view that a refresh changes; a task, in any process.

A row of the result is in the bucket in which its left row is. So a bucket needs the rows of the left table that changed
in it, and those whose foreign key is a changed key of the right table. Both are joined with the right table's newest
rows. The write that takes the result leaves out what is stored already. It takes the memory of a piece of rows, of a
small right table, and of a sort.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from filestore.delta.state import TableState
from filestore.files.writer import TableFiles
from filestore.lazily import pl
from filestore.model.definition import TableDefinition
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.reading.difference import Spill
from filestore.reading.scan import plan_scan
from filestore.rows.equality import same_rows
from filestore.rows.frames import arrow_table, frame_of, narrowed, polars_schema
from filestore.sorting.chunks import BUCKET_COLUMN
from filestore.sorting.external import sorted_batches
from tablestore.reading.keyed_rows import KeyedRows, LookedUp
from tablestore.reading.searched_rows import rows_of
from tablestore.reading.version_changes import Changes
from tablestore.views.joins.joined import foreign_keys, joined
from tablestore.views.plan.join_query import JoinQuery

__all__ = ["BucketWork", "Compared", "LeftRows"]

_SORT_BYTES = 64 << 20
_INSERT, _DELETE = str(RowKind.INSERT), str(RowKind.DELETE)


@dataclass(frozen=True, slots=True)
class LeftRows:
    """The rows of the left table that are joined again although they may not have changed. Picklable.

    Attributes:
        table: The left table.
        state: The version to read.
        columns: The columns that the result needs, the primary key among them.
        keys: The changed keys of the right table that the rows name; None for all rows.
    """

    table: TableFiles
    state: TableState
    columns: tuple[str, ...]
    keys: pl.DataFrame | None

    def of(self, query: JoinQuery, bucket: int) -> Iterator[pl.DataFrame]:
        """Reads the rows of one bucket."""
        where = None
        if self.keys is not None:
            if not self.keys.height:
                return iter(())
            where = _names_one_of(query, self.keys, polars_schema(self.state.definition.schema.to_arrow()))
        return rows_of(self.table, plan_scan(self.state, self.columns, where).of_buckets({bucket}), where)


@dataclass(frozen=True, slots=True)
class Compared:
    """The comparison of a bucket's stored rows with the result of the query.

    Attributes:
        results: The number of rows of the result.
        stored: The number of stored rows.
        different: The number of rows of the result that are not stored as they are.
    """

    results: int
    stored: int
    different: int


@dataclass(frozen=True, slots=True)
class BucketWork:
    """The work of a refresh in one bucket. Picklable.

    Attributes:
        query: The query of the view.
        bucket: The bucket.
        changes: The changes of the left table in this bucket; None if all its rows are joined.
        left: The rows of the left table that are joined beside these.
        right: The rows of the right table.
        output: The version of the view's table to which the result is compared.
        stored: The view's table; None for a refresh that replaces all rows.
    """

    query: JoinQuery
    bucket: int
    changes: Changes | None
    left: LeftRows
    right: KeyedRows
    output: TableState
    stored: TableFiles | None

    def compared(self) -> Compared:
        """Compares all rows of the result with the stored ones; the work is one that joins all rows of the bucket."""
        assert self.stored is not None
        results = different = 0
        for left in self.left.of(self.query, self.bucket):
            rows = joined(self.query, self._key, left, self._right(left)).rows
            different += _different(rows, self._stored_rows(rows.select(self._key)), self._key)
            results += rows.height
        plan = plan_scan(self.output, self._key[:1]).of_buckets({self.bucket})
        stored = sum(rows.height for rows in rows_of(self.stored, plan))
        return Compared(results, stored, different)

    def batches(self, definition: TableDefinition, disk: Spill) -> Iterator[pa.RecordBatch]:
        """Yields the changes of the result in the order of its key, as `tablestore.writing.write_job` takes them.

        Args:
            definition: The definition of the view's table.
            disk: Opens a place for rows that do not fit into memory.
        """
        columns = [field.with_nullable(True) for field in definition.schema.to_arrow()]
        own = [pa.field(KIND_COLUMN, pa.string()), pa.field(BUCKET_COLUMN, pa.int32())]
        schema, bucket = pa.schema([*columns, *own]), pl.lit(self.bucket, pl.Int32).alias(BUCKET_COLUMN)
        pieces = (arrow_table(piece.with_columns(bucket), schema) for piece in self._changes(disk) if piece.height)
        batches = (batch for piece in pieces for batch in piece.to_batches())
        yield from sorted_batches(batches, definition.sort_key, _SORT_BYTES, disk)

    @property
    def _key(self) -> tuple[str, ...]:
        return self.output.definition.primary_key

    def _changes(self, disk: Spill) -> Iterator[pl.DataFrame]:
        """Yields the rows of the result that may change, with their kinds, in any order; a row may be yielded twice."""
        if self.changes is not None:
            names = dict(zip(self.left.state.definition.primary_key, self._key, strict=True))
            for change in self.changes.pieces(disk):
                yield from self._results(change.now, change.gone.rename(names))
        schema = self.output.definition.schema.select(self._key).to_arrow()
        for rows in self.left.of(self.query, self.bucket):
            yield from self._results(rows, frame_of(schema.empty_table()))

    def _results(self, left: pl.DataFrame, gone: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Yields the result for rows of the left table, and for keys of rows that it has no more."""
        found = joined(self.query, self._key, left, self._right(left))
        yield found.rows.with_columns(pl.lit(_INSERT).alias(KIND_COLUMN))
        if self.stored is not None:
            deletes = pl.concat([gone, found.without]).with_columns(pl.lit(_DELETE).alias(KIND_COLUMN))
            yield pl.concat([found.rows.clear(), deletes], how="diagonal")

    def _right(self, left: pl.DataFrame) -> pl.DataFrame:
        """Returns the rows of the right table that rows of the left one name, and perhaps others."""
        return self.right.of(foreign_keys(self.query, left))

    def _stored_rows(self, keys: pl.DataFrame) -> pl.DataFrame:
        assert self.stored is not None
        return LookedUp(self.stored, self.output, self.output.definition.schema.names).of(keys)


def _names_one_of(query: JoinQuery, keys: pl.DataFrame, types: Mapping[str, pl.DataType]) -> pl.Expr:
    """Returns the condition of rows of the left table that name one of the keys.

    A column of the left table may have to equal several of the key, so they are named by the latter.

    Args:
        query: The join.
        keys: The keys.
        types: The types of the left table's columns, which may be wider or narrower than those of the keys.
    """
    fitting = pl.DataFrame({key: narrowed(keys[key], types[name]) for name, key in query.on})
    fitting = fitting.drop_nulls()  # a key that these columns cannot have, no row names
    if len(query.on) == 1:
        [(name, key)] = query.on
        return pl.col(name).is_in(fitting[key].implode())
    wanted = fitting.select(pl.struct(key for _, key in query.on).alias("key"))["key"]
    return pl.struct(pl.col(name).alias(key) for name, key in query.on).is_in(wanted.implode())


def _different(rows: pl.DataFrame, stored: pl.DataFrame, key: Sequence[str]) -> int:
    """Counts the rows that are not stored as they are."""
    at = "\0at"
    place = rows.select(key).join(stored.select(key).with_row_index(at), on=key, how="left", maintain_order="left")[at]
    same = same_rows(rows.filter(place.is_not_null()), stored[place.drop_nulls()].select(rows.columns))
    return rows.height - int(same.sum())
