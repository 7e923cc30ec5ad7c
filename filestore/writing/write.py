"""A write as a whole: every slot, proposed and rebased (FORMAT.md section 10)."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from filestore.delta.conflict import Proposal
from filestore.errors import InvalidRequest
from filestore.files.writer import TableFiles
from filestore.model.changelog import ChangelogProducer
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile, Slot
from filestore.sorting.chunks import cut_chunks
from filestore.writing.append import append
from filestore.writing.fold import fold
from filestore.writing.fold_values import fold_values
from filestore.writing.slot_result import ChangeSink, SlotResult

__all__ = ["WriteResult", "fold_slot", "rests_on_rows", "write_sorted"]


def write_sorted(
    table: TableFiles,
    base: Mapping[Slot, Sequence[DataFile]],
    batches: Iterable[pa.RecordBatch],
    log: ChangeSink | None = None,
    producer: ChangelogProducer = ChangelogProducer.NONE,
    *,
    later: bool = False,
) -> Iterator[SlotResult]:
    """Folds sorted batches of any number of slots, or leaves them as runs; one result a slot.

    Args:
        table: The table.
        base: Live files by slot; slots that are not named have none.
        batches: Sorted by partition columns, bucket and key, with `BUCKET_COLUMN`.
        log: Where accepted changes go.
        producer: What is written down as change data (`filestore.changelog.images.recorded`).
        later: Leave the rows as pending runs.
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
        slot_chunks = (rows for _, rows in group)
        if later:
            yield append(table, slot, slot_chunks, log)
        else:
            yield fold_slot(table, slot, base.get(slot, ()), slot_chunks, log, producer)


def fold_slot(
    table: TableFiles,
    slot: Slot,
    base: Sequence[DataFile],
    chunks: Iterable[pa.Table],
    log: ChangeSink | None = None,
    producer: ChangelogProducer = ChangelogProducer.NONE,
) -> SlotResult:
    """Merges sorted rows into a slot by the table's engine; arguments and errors: `filestore.writing.fold.fold`."""
    merge = fold_values if table.definition.merges_values else fold
    return merge(table, slot, base, chunks, log, producer)


def rests_on_rows(definition: TableDefinition, *, logged: bool) -> bool:
    """Whether a write has to be done again as a whole if another commit changed rows of its slots first.

    Merged values hold for the stored rows only. So does what a log with images has: of a delete that found no row it
    has nothing, and a row that another writer put meanwhile would stay in it. The order of records matters to a
    compacted log. Everything else is worked out again by `filestore.writing.fold.look_again`.

    Args:
        definition: The table's.
        logged: The write's changes went to a log.
    """
    return definition.merges_values or (logged and (definition.logs_images or definition.compacts_log))


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
            runs=tuple(run for r in self.results for run in r.runs),
            tombstones=tuple(run for r in self.results for run in r.tombstones),
            changes=tuple(f for r in self.results for f in r.changes or ()),
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

    def to_look_up_again(self, changed: Container[Slot], definition: TableDefinition) -> list[SlotResult]:
        """The results that a lost race makes out of date.

        Those of the slots that changed, and those whose changes are not written down though they are images: a commit
        whose changes are partly written down and partly left to be inferred would lose the latter.
        """
        inferred = definition.changelog_producer.images
        return [r for r in self.results if r.slot in changed or (inferred and r.changes is None)]

    def with_slots(self, redone: Iterable[SlotResult]) -> WriteResult:
        """The same write with some slots worked out again."""
        by_slot = {r.slot: r for r in self.results} | {r.slot: r for r in redone}
        return WriteResult(tuple(by_slot.values()))
