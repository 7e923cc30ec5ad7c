"""Writes sorted rows to every slot, and makes a proposal of the results (FORMAT.md section 10)."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from filestore.commit.proposal import Proposal
from filestore.delta.by_slot import BySlot, LookupFiles
from filestore.errors import InvalidRequest
from filestore.files.writer import TableFiles
from filestore.model.changelog import ChangelogProducer
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile, PendingRun, Slot
from filestore.rows.fitting import accepted
from filestore.sorting.chunks import cut_chunks
from filestore.writing.append import StoredSequences, append
from filestore.writing.fold import fold
from filestore.writing.fold_values import fold_values
from filestore.writing.slot_result import ChangeSink, SlotResult

__all__ = ["WriteResult", "fold_slot", "rests_on_rows", "write_sorted"]


def write_sorted(  # noqa: PLR0913  # a write's tasks choose all of them
    table: TableFiles,
    base: LookupFiles,
    batches: Iterable[pa.RecordBatch],
    log: ChangeSink | None = None,
    producer: ChangelogProducer = ChangelogProducer.NONE,
    *,
    later: bool = False,
    runs: BySlot[PendingRun] | None = None,
    skip_unchanged: bool = False,
) -> Iterator[SlotResult]:
    """Folds sorted batches of any number of slots, or leaves them as pending runs; yields one result for each slot.

    Args:
        table: The table.
        base: What keys are looked up in.
        batches: Sorted by partition columns, bucket and key, with `BUCKET_COLUMN`.
        log: Takes the accepted changes.
        producer: Which changes are written as change data (`filestore.changelog.images.recorded`).
        later: Leaves the rows as pending runs.
        runs: The pending runs by slot, if late rows are counted although they are left as pending runs.
        skip_unchanged: As for `filestore.writing.fold.fold`; only for tables whose engine merges no values.

    Raises:
        InvalidRequest: rows that may not be written (`filestore.rows.fitting.checked`), or that are not sorted.
    """
    definition = table.definition
    assert not (skip_unchanged and (later or definition.merges_values)), "rows are compared where they are folded"
    taken = (part for batch in batches for part in accepted(pa.Table.from_batches([batch]), definition).to_batches())
    every_row = definition.merges_values or (producer is ChangelogProducer.INPUT and not later)
    chunks = cut_chunks(taken, definition, definition.options["row-group.rows"], every_row=every_row)
    seen: set[Slot] = set()
    for slot, group in itertools.groupby(chunks, key=lambda chunk: chunk[0]):
        if slot in seen:
            raise InvalidRequest(
                f"rows of bucket {slot.bucket} of partition {dict(slot.partition)} come in two places: sort them by "
                "partition, bucket and key",
                code="unsorted-rows",
            )
        seen.add(slot)
        slot_chunks = (rows for _, rows in group)
        if later:
            known = None if runs is None else StoredSequences(table, base.of(slot), runs.of(slot))
            yield append(table, slot, slot_chunks, log, known)
        elif skip_unchanged:
            yield fold(table, slot, base.of(slot), slot_chunks, log, producer, skip_unchanged=True)
        else:
            yield fold_slot(table, slot, base.of(slot), slot_chunks, log, producer)


def fold_slot(
    table: TableFiles,
    slot: Slot,
    base: Sequence[DataFile],
    chunks: Iterable[pa.Table],
    log: ChangeSink | None = None,
    producer: ChangelogProducer = ChangelogProducer.NONE,
) -> SlotResult:
    """Merges sorted rows into a slot by the table's engine; arguments and errors are those of `fold`."""
    merge = fold_values if table.definition.merges_values else fold
    return merge(table, slot, base, chunks, log, producer)


def rests_on_rows(definition: TableDefinition, results: Iterable[SlotResult], *, logged: bool) -> bool:
    """Returns whether the write has to begin again if another commit changed rows of its slots first.

    Merged values are right only for the stored rows from which they were computed. So are the records of a log with
    images: it has none for a delete that found no row, and a row that another writer put meanwhile would stay in it.
    For a compacted log the order of records matters. So are changes that were looked up beside others that are as they
    arrived. In all other cases `filestore.writing.fold.rebase_slot` corrects the result.

    Args:
        definition: The table's definition.
        results: The results in the slots that the other commit changed.
        logged: Whether the write's changes were written to a log.
    """
    if definition.merges_values or any(result.rests_on_rows for result in results):
        return True
    return logged and (definition.logs_images or definition.compacts_log)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The results of a write's folds, and how they become a proposal."""

    results: tuple[SlotResult, ...]

    def apply(self, proposal: Proposal) -> Proposal:
        """Returns the proposal with these results in it."""
        files = replace(
            proposal.files,
            adds=tuple(f for r in self.results for f in r.adds),
            vectors=tuple(f for r in self.results for f in r.vectors),
            removes=tuple(f for r in self.results for f in r.removes),
            cdc=tuple(f for r in self.results for f in r.changes or ()),
        )
        runs = replace(
            proposal.runs,
            pending=tuple(run for r in self.results for run in r.runs),
            tombstones=tuple(run for r in self.results for run in r.tombstones),
        )
        return replace(proposal, files=files, runs=runs, metrics=self.metrics)

    @property
    def metrics(self) -> dict[str, int]:
        """Counts over all slots, for the snapshot."""
        names = ("rows_written", "rows_deleted", "rows_replaced", "rows_late")
        counts = {name: sum(getattr(r, name) for r in self.results) for name in names}
        counts["files_added"] = sum(len(r.adds) for r in self.results)
        counts["files_removed"] = sum(len(r.removes) for r in self.results)
        return counts

    def to_look_up_again(self, changed: Container[Slot], definition: TableDefinition) -> list[SlotResult]:
        """Returns the results that a lost race makes out of date.

        Those are the results of the slots that changed. If the table records images, they are also the results without
        change data: if a commit has change data for a part of its changes only, Delta readers lose the rest.
        """
        inferred = definition.changelog_producer.images
        return [r for r in self.results if r.slot in changed or (inferred and r.changes is None)]

    def with_slots(self, redone: Iterable[SlotResult]) -> WriteResult:
        """Returns the same write with new results for some slots."""
        by_slot = {r.slot: r for r in self.results} | {r.slot: r for r in redone}
        return WriteResult(tuple(by_slot.values()))
