"""A write as a whole: sort, fold every slot, propose, rebase (FORMAT.md section 10).."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl
import pyarrow as pa

from filestore.bucketing import bucket_of
from filestore.chunks import BUCKET_COLUMN, cut_chunks
from filestore.delta.conflict import Proposal
from filestore.errors import InvalidRequest
from filestore.fold import ChangeSink, SlotResult, fold
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile, Slot
from filestore.writer import TableFiles

__all__ = ["WriteResult", "fold_sorted", "sort_rows"]

_MAX_TEXT_BYTES = 2**31 - 1
_SLICE_ROWS = 1 << 16
_WIDE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


def sort_rows(rows: pa.Table, definition: TableDefinition) -> pa.Table:
    """Rows in the order that `fold_sorted` wants, with `BUCKET_COLUMN`; arrival order stays within a key."""
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    order = pl.DataFrame({BUCKET_COLUMN: bucket_of(rows, definition.bucket_key, definition.buckets)}).with_columns(
        frame.get_column(name) for name in (*definition.partition_by, *definition.sort_key)
    )
    by = [*definition.partition_by, BUCKET_COLUMN, *definition.sort_key]
    index = order.with_row_index("_row").sort(by, maintain_order=True)["_row"]
    bucketed = rows.append_column(BUCKET_COLUMN, order[BUCKET_COLUMN].to_arrow())
    return _taken(bucketed, index.to_arrow())


def _taken(rows: pa.Table, index: pa.Array) -> pa.Table:
    """The rows at those positions. `take` joins a column's chunks, and an Arrow text column ends at 2 GB."""
    if rows.nbytes <= _MAX_TEXT_BYTES:
        return rows.take(index)
    wide = rows.cast(pa.schema([f.with_type(_WIDE.get(f.type, f.type)) for f in rows.schema])).combine_chunks()
    slices = (index.slice(start, _SLICE_ROWS) for start in range(0, len(index), _SLICE_ROWS))
    return pa.concat_tables(wide.take(part).cast(rows.schema) for part in slices)


def fold_sorted(
    table: TableFiles,
    base: Mapping[Slot, Sequence[DataFile]],
    batches: Iterable[pa.RecordBatch],
    log: ChangeSink | None = None,
) -> Iterator[SlotResult]:
    """Folds sorted batches of any number of slots; one result a slot.

    Args:
        table: The table.
        base: Live files by slot; slots that are not named have none.
        batches: Sorted by partition columns, bucket and key, with `BUCKET_COLUMN`.
        log: Where accepted changes go.
    """
    chunks = cut_chunks(batches, table.definition, table.definition.options["row-group.rows"])
    seen: set[Slot] = set()
    for slot, group in itertools.groupby(chunks, key=lambda chunk: chunk[0]):
        if slot in seen:
            raise InvalidRequest(
                f"rows of bucket {slot.bucket} of partition {dict(slot.partition)} come in two places: sort them by "
                "partition, bucket and key",
                code="unsorted-rows",
            )
        seen.add(slot)
        yield fold(table, slot, base.get(slot, ()), (rows for _, rows in group), log)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What the folds of a write gave, and how it becomes a proposal."""

    results: tuple[SlotResult, ...]

    def apply(self, proposal: Proposal) -> Proposal:
        """The proposal with these results in it."""
        return replace(
            proposal,
            adds=tuple(f for r in self.results for f in r.adds),
            vectors=tuple(f for r in self.results for f in r.vectors),
            removes=tuple(p for r in self.results for p in r.removes),
            metrics=self.metrics,
        )

    @property
    def metrics(self) -> dict[str, int]:
        """Counts over all slots, for the snapshot."""
        names = ("rows_written", "rows_deleted", "rows_replaced", "rows_late")
        counts = {name: sum(getattr(r, name) for r in self.results) for name in names}
        counts["files_added"] = sum(len(r.adds) for r in self.results)
        counts["files_removed"] = sum(len(r.removes) for r in self.results)
        return counts

    def with_slots(self, redone: Iterable[SlotResult]) -> WriteResult:
        """The same write with some slots worked out again."""
        by_slot = {r.slot: r for r in self.results} | {r.slot: r for r in redone}
        return WriteResult(tuple(by_slot.values()))
