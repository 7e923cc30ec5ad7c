"""Compacts one table: it chooses files in every slot, merges them slot by slot, and commits all slots at once.

The caller chooses where the merging runs: in threads of this process, or as tasks of a Spark job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial

from compaction.choice import choose, least_files
from compaction.merge import CompactionResult, CompactionTask, compact_slot
from compaction.rebase import Rebased, rebased
from filestore.commit.conflict import Rebase
from filestore.commit.loop import Committed
from filestore.commit.proposal import FileChanges, Premises, Proposal
from filestore.commit.protocol import CommitAttempt
from filestore.delta.state import TableState
from filestore.errors import Conflict
from filestore.files.leftovers import discard
from filestore.files.writer import TableFiles
from filestore.model.files import DataFile, Slot
from filestore.model.partition_set import ALL_PARTITIONS, PartitionSet
from filestore.model.snapshot import Operation, Snapshot
from filestore.progress import Counter, Observe
from filestore.table import FileStore
from filestore.threads import in_threads

__all__ = [
    "Compaction",
    "CompactionRunner",
    "compact_slots",
    "compact_table",
    "discard_compaction",
    "plan_compaction",
]

logger = logging.getLogger(__name__)

CompactionRunner = Callable[[TableFiles, Sequence[CompactionTask]], Sequence[CompactionResult]]
"""Runs `compact_slot` for each task, anywhere and in any order."""


def compact_table(
    store: FileStore,
    full: bool = False,
    runner: CompactionRunner | None = None,
    within: PartitionSet = ALL_PARTITIONS,
    base: TableState | None = None,
) -> Snapshot | None:
    """Compacts the slots that need it; returns None if none does.

    Args:
        store: The table.
        full: Merges every slot into one sorted run without dead rows.
        runner: Runs the tasks; in threads of this process if None.
        within: The partitions that are compacted.
        base: The newest version, for callers that have just read it.

    Raises:
        Conflict: another compaction or an overwrite was faster in all slots. Nothing was changed.
    """
    plan = partial(plan_compaction, full=full, within=within)

    def begin(state: TableState) -> AbstractContextManager[Compaction]:
        return nullcontext(Compaction(store, state, plan, runner or compact_slots))

    committed = store.commit(begin, base=base)
    return None if committed is None else committed.snapshot


def plan_compaction(
    state: TableState, *, full: bool = False, within: PartitionSet = ALL_PARTITIONS
) -> list[CompactionTask]:
    """Plans the compaction of the slots of a version that need it, those with most bytes to merge first.

    It is pure but for one note: the next call looks at slots that have changed since (`TableState.note_compacted`).
    """
    everything = ((slot, some.values()) for slot, some in state.files.items())
    tasks = [
        CompactionTask(slot, choice.files, choice.level)
        for slot, files in (everything if full else state.to_compact(least_files(state.definition)))
        if slot.partition in within and (choice := choose(tuple(files), state.definition, full=full)) is not None
    ]
    if not tasks and not full and within == ALL_PARTITIONS:
        state.note_compacted()
    return sorted(tasks, key=lambda task: -sum(file.size for file in task.files))


def compact_slots(
    table: TableFiles, tasks: Sequence[CompactionTask], observe: Observe | None = None
) -> list[CompactionResult]:
    """Runs the tasks in a thread for each core. If one fails, the files of the others are removed."""
    rows = sum(file.live_rows for task in tasks for file in task.files)
    merging = Counter(observe, "merging", total=rows)

    def work(task: CompactionTask) -> CompactionResult:
        return compact_slot(table, task.files, task.level, merging)

    return in_threads("compaction", work, tasks, partial(discard_compaction, table))


def discard_compaction(table: TableFiles, results: Iterable[CompactionResult]) -> None:
    """Removes the files of tasks that will not be committed."""
    discard(table, (file for result in results for file in result.adds))


@dataclass(eq=False)
class Compaction(CommitAttempt):
    """Compacts some slots in one commit.

    A slot whose input files were replaced meanwhile is left out; the others are committed.

    Attributes:
        store: The table.
        base: The version that is compacted.
        plan: Chooses the work for a version.
        runner: Runs the tasks.
    """

    store: FileStore
    base: TableState
    plan: Callable[[TableState], Sequence[CompactionTask]]
    runner: CompactionRunner
    _results: dict[Slot, CompactionResult] = field(default_factory=dict, init=False)
    _parts: dict[Slot, Rebased] = field(default_factory=dict, init=False)
    _written: list[DataFile] = field(default_factory=list, init=False)

    def prepare(self) -> Proposal | None:
        """Merges the chosen files of each slot."""
        tasks = self.plan(self.base)
        if not tasks:
            return None
        results = self.runner(self.store.table_files(self.base), tasks)
        self._results = {result.slot: result for result in results}
        self._parts = {r.slot: Rebased(self.base.version, r.adds, tuple(r.inputs)) for r in results}
        self._written += self._adds
        return self._proposal(self.store.ambient.new_id())

    def rebase(self, proposal: Proposal, state: TableState, changed: Rebase) -> Proposal:
        """Carries the merged files of changed slots over to a newer version (`compaction.rebase`)."""
        for slot in sorted(changed.slots, key=repr):
            try:
                self._parts[slot] = rebased(self.store, self._parts[slot], state)
            except Conflict as error:
                if len(self._parts) == 1:
                    raise
                logger.info("bucket %d of %s is left out: %s", slot.bucket, dict(slot.partition), error)
                del self._parts[slot]
            else:
                self._written += self._parts[slot].adds
        return self._proposal(proposal.commit_id)

    def finish(self, committed: Committed) -> None:
        """Removes the files that the commit does not name."""
        discard(self.store.table_files(self.base), self._written, keep=self._adds)

    def discard(self, *, again: bool) -> None:
        """Removes all files that were written."""
        discard(self.store.table_files(self.base), self._written)

    @property
    def _adds(self) -> tuple[DataFile, ...]:
        return tuple(file for part in self._parts.values() for file in part.adds)

    def _proposal(self, commit_id: str) -> Proposal:
        inputs = [file for slot in self._parts for file in self._results[slot].inputs]
        removes = tuple(file for part in self._parts.values() for file in part.inputs)
        return Proposal(
            operation=Operation.COMPACT,
            commit_id=commit_id,
            base_version=self.base.version,
            files=FileChanges(adds=self._adds, removes=removes),
            premises=Premises(slots=frozenset(self._parts)),
            metrics={
                "files_added": len(self._adds),
                "files_removed": len(removes),
                "rows_rewritten": sum(file.live_rows for file in inputs),
                "rows_dropped": sum(file.rows - file.live_rows for file in inputs),
            },
        )
