"""`Refresh`: works out the rows of a view that a refresh changes, bucket by bucket, as the tasks of one write.

A row of the result is in the bucket in which its left row is, so each bucket is worked out on its own: rows of the left
table that changed, and those whose foreign key is a changed key of the right table. Both are joined with the right
table's newest rows, compared with the stored result, and only what differs is written. It takes the memory of a piece
of rows, of a small right table, and of a sort, for each thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl
import pyarrow as pa

from filestore.delta.state import TableState
from filestore.errors import TableStoreError
from filestore.files.leftovers import remove
from filestore.files.writer import TableFiles
from filestore.model.definition import TableDefinition
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.reading.difference import on_local_disk
from filestore.reading.get import get_rows
from filestore.rows.equality import same_rows
from filestore.rows.frames import arrow_table, frame_of
from filestore.sorting.chunks import BUCKET_COLUMN
from filestore.sorting.external import sorted_batches
from filestore.table import FileStore
from filestore.threads import in_threads
from filestore.writing.slot_result import written_files
from tablestore.views.join_query import JoinQuery
from tablestore.views.joined import foreign_keys, joined
from tablestore.views.left_rows import Changes, changed_keys, changes_between, rows_of
from tablestore.views.right_rows import RightRows, right_rows
from tablestore.writing.write_job import TaskOutcome, WriteJob

__all__ = ["Input", "Refresh"]

_MOST_KEYS = 1 << 20
"""The most changed keys of the right table that are searched in the left one: with more, all its rows are joined."""

_SORT_BYTES = 64 << 20
_INSERT, _UPDATE, _DELETE = (str(kind) for kind in (RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE))


@dataclass(frozen=True, slots=True)
class Input:
    """A table that a view reads.

    Attributes:
        store: The table.
        until: The version of which the view is the result afterwards.
        since: The version of which it is the result before; None to compute all rows again.
    """

    store: FileStore
    until: TableState
    since: TableState | None

    @property
    def files(self) -> TableFiles:
        """The table's files with the definition of the later version."""
        return self.store.table_files(self.until)


@dataclass(frozen=True)
class Refresh:
    """Runs the tasks of a refresh (`tablestore.writing.write_job.WriteRunner`).

    Attributes:
        query: The query of the view.
        left: The left table.
        right: The right table.
        output: The version of the view's table to which the result is compared.
        stored: The view's table; None for a refresh that replaces all rows.
    """

    query: JoinQuery
    left: Input
    right: Input
    output: TableState
    stored: FileStore | None
    _right_rows: RightRows = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rows = right_rows(self.right.files, self.right.until, self.query.right_columns)
        object.__setattr__(self, "_right_rows", rows)

    def __call__(self, job: WriteJob) -> Sequence[TaskOutcome]:
        """Works all buckets out, in a thread for each core."""

        def work(bucket: int) -> TaskOutcome:
            try:
                return job.run(self._batches(job.table.definition, bucket), f"{bucket}.0")
            except TableStoreError as error:
                return TaskOutcome(error=error)

        def forget(outcomes: list[TaskOutcome]) -> None:
            remove(job.table, {path for outcome in outcomes for path in written_files(outcome.results)})

        return in_threads("view", work, self.buckets, forget) if self.buckets else []

    @cached_property
    def buckets(self) -> list[int]:
        """The buckets in which rows of the result may change."""
        if self._left_changes is None or self._all_left_rows or len(self._right_keys):
            slots = {*self.left.until.slots(), *self.left.until.pending()}
        else:
            slots = set()
        if self._left_changes is not None:
            slots |= {difference.slot for difference in self._left_changes.slots}
        return sorted({slot.bucket for slot in slots})

    @cached_property
    def _left_changes(self) -> Changes | None:
        left = self.left
        return None if left.since is None else changes_between(left.store, left.since, left.until, self._left_columns)

    @cached_property
    def _left_columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.left.until.definition.primary_key, *self.query.left_columns]))

    @cached_property
    def _right_keys(self) -> pl.DataFrame:
        """The changed keys of the right table; empty, too, if all rows of the left table are joined again."""
        return self._changed_right_keys if self._changed_right_keys is not None else pl.DataFrame()

    @cached_property
    def _all_left_rows(self) -> bool:
        return self._changed_right_keys is None

    @cached_property
    def _changed_right_keys(self) -> pl.DataFrame | None:
        right = self.right
        if right.since is None:
            return None
        changes = changes_between(right.store, right.since, right.until, self.query.right_columns)
        return changed_keys(changes, _MOST_KEYS)

    # ------------------------------------------------------------------------------------------ a bucket

    def _batches(self, output: TableDefinition, bucket: int) -> Iterator[pa.RecordBatch]:
        """Yields the changes of a bucket of the result in the order of its key."""
        schema = pa.schema(
            [
                *(field.with_nullable(True) for field in output.schema.to_arrow()),
                pa.field(KIND_COLUMN, pa.string()),
                pa.field(BUCKET_COLUMN, pa.int32()),
            ]
        )
        pieces = (
            arrow_table(piece.with_columns(pl.lit(bucket, pl.Int32).alias(BUCKET_COLUMN)), schema)
            for piece in self._changes(bucket)
            if piece.height
        )
        batches = (batch for piece in pieces for batch in piece.to_batches())
        yield from sorted_batches(batches, output.sort_key, _SORT_BYTES, on_local_disk)

    def _changes(self, bucket: int) -> Iterator[pl.DataFrame]:
        """Yields the rows of the result that change, with their kinds, in any order; a row may come twice."""
        key = self.output.definition.primary_key
        if self._left_changes is not None:
            names = dict(zip(self.left.until.definition.primary_key, key, strict=True))
            for change in self._left_changes.of_bucket(bucket).pieces():
                yield from self._results(change.now, change.gone.rename(names))
        nothing = self._rows_without(key)
        for rows in self._matching(bucket):
            yield from self._results(rows, nothing)

    def _rows_without(self, key: Sequence[str]) -> pl.DataFrame:
        return frame_of(self.output.definition.schema.select(key).to_arrow().empty_table())

    def _matching(self, bucket: int) -> Iterator[pl.DataFrame]:
        """Reads the rows of the left table that name a changed key of the right table."""
        where = None
        if self._left_changes is not None and not self._all_left_rows:
            if not self._right_keys.height:
                return
            where = _names_one_of(self.query, self._right_keys)
        yield from rows_of(self.left.files, self.left.until, bucket, self._left_columns, where)

    def _results(self, left: pl.DataFrame, gone: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Yields the rows of the result for rows of the left table and for keys that it has no more."""
        key = self.output.definition.primary_key
        found = joined(self.query, key, left, self._right_rows.of(foreign_keys(self.query, left)))
        deleted = pl.concat([gone, found.without])
        if self.stored is None:
            yield found.rows.with_columns(pl.lit(_INSERT).alias(KIND_COLUMN))
            return
        stored = self._stored_rows(pl.concat([found.rows.select(key), deleted]))
        yield _different(found.rows, stored, key)
        kinds = deleted.join(stored, on=key, how="semi").with_columns(pl.lit(_DELETE).alias(KIND_COLUMN))
        yield pl.concat([found.rows.clear().with_columns(pl.lit("").alias(KIND_COLUMN)), kinds], how="diagonal")

    def _stored_rows(self, keys: pl.DataFrame) -> pl.DataFrame:
        assert self.stored is not None
        definition = self.output.definition
        asked = arrow_table(keys, definition.schema.select(definition.primary_key).to_arrow())
        rows = get_rows(self.stored.table_files(self.output), self.output, asked)
        return frame_of(rows)


def _names_one_of(query: JoinQuery, keys: pl.DataFrame) -> pl.Expr:
    """Returns the condition of rows of the left table that name one of the keys."""
    names, others = zip(*query.on, strict=True)
    if len(names) == 1:
        return pl.col(names[0]).is_in(keys[others[0]].implode())
    wanted = keys.select(pl.struct(pl.col(other).alias(name) for name, other in query.on).alias("key"))["key"]
    return pl.struct(names).is_in(wanted.implode())


def _different(rows: pl.DataFrame, stored: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Returns the rows that are not stored as they are, with their kinds."""
    at = "\0at"
    place = rows.select(key).join(stored.select(key).with_row_index(at), on=key, how="left", maintain_order="left")[at]
    known = place.is_not_null().to_numpy()
    differs = np.ones(rows.height, dtype=np.bool_)
    differs[known] = ~same_rows(rows.filter(pl.Series(known)), stored[place.drop_nulls()].select(rows.columns))
    kinds = np.where(known, _UPDATE, _INSERT)
    return rows.with_columns(pl.Series(KIND_COLUMN, kinds)).filter(pl.Series(differs))
