"""Folds pending runs of merge-on-read tables into their buckets' files, where every Delta reader sees them.

A fold is a write whose rows are in the table already: the same code merges them, and it is rebased in the same way
after a lost race (FORMAT.md sections 10 and 11). It changes no row for our readers, and writes nothing to the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

from filestore.changelog.arrived import by_look_up
from filestore.commit.conflict import Rebase
from filestore.commit.loop import Committed
from filestore.commit.proposal import Premises, Proposal, RunChanges
from filestore.commit.protocol import CommitAttempt
from filestore.delta.state import TableState
from filestore.errors import Conflict
from filestore.files.leftovers import remove
from filestore.files.writer import TableFiles
from filestore.model.changelog import ChangelogProducer
from filestore.model.files import DataFile, PendingRun, Slot
from filestore.model.partition_set import ALL_PARTITIONS, PartitionSet
from filestore.model.snapshot import Operation, Snapshot
from filestore.progress import Counter, Observe
from filestore.table import FileStore
from filestore.threads import in_threads
from filestore.writing.fold import rebase_slot
from filestore.writing.pending import pending_chunks
from filestore.writing.slot_result import SlotResult, named_files, written_files
from filestore.writing.write import WriteResult, fold_slot

__all__ = [
    "Fold",
    "FoldRunner",
    "FoldTask",
    "discard_folds",
    "fold_runs",
    "fold_slots",
    "fold_table",
    "plan_folds",
]

_RUNS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class FoldTask:
    """The work in one slot: picklable, and independent of all others.

    Attributes:
        slot: The slot.
        base: Its live files and tombstones.
        runs: The oldest pending runs, in the order in which they apply.
    """

    slot: Slot
    base: tuple[DataFile, ...]
    runs: tuple[PendingRun, ...]


FoldRunner = Callable[[TableFiles, Sequence[FoldTask]], Sequence[SlotResult]]
"""Runs `fold_runs` for each task, anywhere and in any order; the results are in the order of the tasks."""


def plan_folds(
    state: TableState,
    now_ms: int,
    *,
    full: bool = False,
    up_to: int | None = None,
    within: PartitionSet = ALL_PARTITIONS,
) -> list[FoldTask]:
    """Plans folds of the slots whose pending runs are due. Pure.

    A slot is due if it has as many runs as ``num-sorted-run.compaction-trigger``; with `full` every slot with a run is.
    With ``changelog-producer = full-compaction`` all slots are due together, when there were enough commits since the
    oldest run, or when that is old enough.

    A task folds 64 runs at most, so that its memory is bounded; the next fold does the rest. Runs of versions after
    `up_to`, and runs outside of the partitions `within`, are ignored.
    """
    last = state.version if up_to is None else up_to
    files = state.lookup_files(now_ms)
    enough = state.definition.options["num-sorted-run.compaction-trigger"]
    if full or _changes_are_due(state, now_ms):
        enough = 1
    elif state.definition.changelog_producer is ChangelogProducer.FULL_COMPACTION:
        return []
    return [
        FoldTask(slot, files.of(slot), runs[:_RUNS_AT_ONCE])
        for slot in state.pending.slots
        if slot.partition in within
        and len(runs := tuple(run for run in state.pending.of(slot) if run.version <= last)) >= enough
    ]


def _changes_are_due(state: TableState, now_ms: int) -> bool:
    runs = list(state.pending)
    if not runs or state.definition.changelog_producer is not ChangelogProducer.FULL_COMPACTION:
        return False
    options = state.definition.options
    commits, interval = options["full-compaction.delta-commits"], options["changelog-producer.compaction-interval"]
    if commits is not None and state.version - min(run.version for run in runs) + 1 >= commits:
        return True
    return bool(timedelta(milliseconds=now_ms - min(run.modified_ms for run in runs)) >= interval)


def fold_runs(table: TableFiles, task: FoldTask, folding: Counter | None = None) -> SlotResult:
    """Merges the task's runs into its slot. The result is not visible before a commit. `folding` counts their rows."""
    chunks = pending_chunks(table, task.slot, task.runs)
    if folding is not None:
        chunks = folding.rows_of(chunks)
    return fold_slot(table, task.slot, task.base, chunks, producer=table.definition.changelog_producer)


def fold_table(
    store: FileStore,
    full: bool = False,
    runner: FoldRunner | None = None,
    within: PartitionSet = ALL_PARTITIONS,
    base: TableState | None = None,
) -> Snapshot | None:
    """Folds what is due now, in several commits if it is much; returns the last snapshot, or None if nothing was due.

    Args:
        store: The table.
        full: Folds all runs that are pending now, due or not. Writers may add more meanwhile.
        runner: Runs the tasks; in threads of this process if None.
        within: The partitions whose runs are folded.
        base: The newest version, for callers that have just read it.

    Raises:
        Conflict: other folds or overwrites were faster, again and again. Folds that were committed before stay.
    """
    base = base or store.state()
    began, snapshot = base.version, None

    def due(state: TableState) -> list[FoldTask]:
        return plan_folds(state, store.ambient.now_ms(), full=full, up_to=began, within=within)

    while committed := store.commit(lambda base: nullcontext(Fold(store, base, due, runner or fold_slots)), base=base):
        snapshot, base = committed.snapshot, committed.state
    return snapshot


@dataclass(eq=False)
class Fold(CommitAttempt):
    """Folds some slots in one commit.

    Attributes:
        store: The table.
        base: The version whose runs are folded.
        plan: Chooses the work for a version.
        runner: Runs the tasks.
    """

    store: FileStore
    base: TableState
    plan: Callable[[TableState], Sequence[FoldTask]]
    runner: FoldRunner
    _result: WriteResult = field(default=WriteResult(()), init=False)
    _written: set[str] = field(default_factory=set, init=False)

    def prepare(self) -> Proposal | None:
        """Merges the runs into their slots."""
        tasks = self.plan(self.base)
        if not tasks:
            return None
        self._result = WriteResult(tuple(self.runner(_table_files(self.store, self.base), tasks)))
        self._written |= written_files(self._result.results)
        proposal = Proposal(
            Operation.FOLD,
            self.store.ambient.new_id(),
            self.base.version,
            runs=RunChanges(folded=tuple(run for task in tasks for run in task.runs)),
            premises=Premises(slots=frozenset(task.slot for task in tasks)),
        )
        return self._result.apply(proposal)

    def rebase(self, proposal: Proposal, state: TableState, changed: Rebase) -> Proposal:
        """Looks the keys of changed slots up again; values that were merged with changed rows are a conflict."""
        if changed.rows_changed and state.definition.merges_values:
            raise Conflict(
                f"rows of {len(changed.rows_changed)} buckets changed while their runs were folded: fold again",
                code="merged-rows-changed",
                again=True,
            )
        table, live = _table_files(self.store, state), state.lookup_files(self.store.ambient.now_ms())
        for earlier in (r for r in self._result.results if r.slot in changed.slots):
            redone = rebase_slot(table, live.of(earlier.slot), earlier)
            self._written |= written_files([redone])
            self._result = self._result.with_slots([redone])
        return self._result.apply(proposal)

    def finish(self, committed: Committed) -> None:
        """Removes the files that the commit does not name."""
        remove(self.store.table_files(self.base), self._written - named_files(self._result.results))

    def discard(self, *, again: bool) -> None:
        """Removes all files that were written."""
        remove(self.store.table_files(self.base), self._written)


def _table_files(store: FileStore, state: TableState) -> TableFiles:
    """Returns the table with the definition by which a fold records changes.

    A run has the row of each key that counts, or rows to merge, and a fold merges several: what arrived is not known.
    """
    table = store.table_files(state)
    return replace(table, definition=by_look_up(table.definition))


def fold_slots(table: TableFiles, tasks: Sequence[FoldTask], observe: Observe | None = None) -> list[SlotResult]:
    """Runs the tasks in a thread for each core. If one fails, the files of the others are removed."""
    work = partial(fold_runs, table, folding=Counter(observe, "folding"))
    return in_threads("fold", work, tasks, partial(discard_folds, table))


def discard_folds(table: TableFiles, results: Iterable[SlotResult]) -> None:
    """Removes the files of folds that will not be committed."""
    remove(table, written_files(results))
