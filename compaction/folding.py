"""Folding: pending runs of merge-on-read tables merged into their buckets, where every Delta reader sees them.

A fold is a write whose rows lie in the table already: the same kernel merges them, and a lost race is fought through
in the same way (FORMAT.md sections 10 and 11). It changes no row for our readers, and leaves nothing in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from compaction.leftovers import remove
from compaction.threads import in_threads
from filestore.delta.conflict import Proposal, Rebase
from filestore.delta.state import TableState
from filestore.errors import CommitUnknown, Conflict, TableStoreError
from filestore.files.writer import TableFiles
from filestore.model.changelog import ChangelogProducer
from filestore.model.files import DataFile, PendingRun, Slot
from filestore.model.snapshot import Operation, Snapshot
from filestore.table import FileStore
from filestore.writing.fold import look_again
from filestore.writing.pending import pending_chunks
from filestore.writing.slot_result import SlotResult, brought_files, named_files
from filestore.writing.write import WriteResult, fold_slot

__all__ = [
    "FoldRunner",
    "FoldTask",
    "commit_folds",
    "fold_runs",
    "fold_slots",
    "fold_table",
    "forget_folds",
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
"""Does the tasks, in any order and any place, by `fold_runs`; results come in the order of the tasks."""


def plan_folds(state: TableState, now_ms: int, *, full: bool = False, up_to: int | None = None) -> list[FoldTask]:
    """The slots whose pending runs are due. Pure.

    A slot's are when they are as many as ``num-sorted-run.compaction-trigger``, or if all are to go (`full`). With
    ``changelog-producer = full-compaction`` those of all slots are at once, when there were enough commits since the
    oldest of them or that is long enough ago.

    A task takes 64 runs at most, so that its memory is bounded; the rest is for the next fold. Runs of versions after
    `up_to` are left alone.
    """
    last = state.version if up_to is None else up_to
    pending = {slot: tuple(run for run in runs if run.version <= last) for slot, runs in state.pending().items()}
    files = state.met(now_ms)
    enough = state.definition.options["num-sorted-run.compaction-trigger"]
    if full or _changes_are_due(state, now_ms):
        enough = 1
    elif state.definition.changelog_producer is ChangelogProducer.FULL_COMPACTION:
        return []
    return [
        FoldTask(slot, files.get(slot, ()), runs[:_RUNS_AT_ONCE])
        for slot, runs in pending.items()
        if len(runs) >= enough
    ]


def _changes_are_due(state: TableState, now_ms: int) -> bool:
    runs = [run for runs in state.pending().values() for run in runs]
    if not runs or state.definition.changelog_producer is not ChangelogProducer.FULL_COMPACTION:
        return False
    options = state.definition.options
    commits, interval = options["full-compaction.delta-commits"], options["changelog-producer.compaction-interval"]
    if commits is not None and state.version - min(run.version for run in runs) + 1 >= commits:
        return True
    return bool(timedelta(milliseconds=now_ms - min(run.modified_ms for run in runs)) >= interval)


def fold_runs(table: TableFiles, task: FoldTask) -> SlotResult:
    """Merges the task's runs into its slot. Nothing is visible yet."""
    chunks = pending_chunks(table, task.slot, task.runs)
    return fold_slot(table, task.slot, task.base, chunks, producer=table.definition.changelog_producer)


def fold_table(store: FileStore, full: bool = False, runner: FoldRunner | None = None) -> Snapshot | None:
    """Folds what is due now, in several commits if it is much; the last snapshot, or None if nothing was due.

    Args:
        store: The table.
        full: Leave no run pending of those that are there now: writers may bring more meanwhile.
        runner: Where the merging runs; threads of this process if None.

    Raises:
        Conflict: another fold or an overwrite was faster. What was folded before stays folded.
    """
    snapshot, state = None, store.state()
    began = state.version
    while tasks := plan_folds(state, store.ambient.now_ms(), full=full, up_to=began):
        with store.preparing(state):
            results = (runner or fold_slots)(store.files(state), tasks)
        snapshot = commit_folds(store, state, tasks, results)
        state = store.state()
    return snapshot


def fold_slots(table: TableFiles, tasks: Sequence[FoldTask]) -> list[SlotResult]:
    """Does the tasks in threads, one for each core. If one fails, the others' files are removed."""
    return in_threads("fold", partial(fold_runs, table), tasks, partial(forget_folds, table))


def forget_folds(table: TableFiles, results: Iterable[SlotResult]) -> None:
    """Removes what folds wrote that nobody will commit."""
    remove(table, brought_files(results))


def commit_folds(
    store: FileStore, base: TableState, tasks: Sequence[FoldTask], results: Sequence[SlotResult]
) -> Snapshot:
    """Commits what was folded from a version, whatever was written since.

    Raises:
        Conflict: the runs were folded or removed meanwhile, or rows that values were merged with. Nothing was changed.
    """
    attempt = _Attempt(store, base, WriteResult(tuple(results)))
    folded = tuple(run for task in tasks for run in task.runs)
    touches = frozenset(task.slot for task in tasks)
    proposal = Proposal(Operation.FOLD, store.ambient.new_id(), base.version, folded=folded, touches=touches)
    try:
        snapshot = store.commit(base, attempt.result.apply(proposal), attempt.rebase).snapshot
    except CommitUnknown:
        raise  # nobody knows: the files must stay
    except TableStoreError:
        remove(store.files(base), attempt.written)
        raise
    remove(store.files(base), attempt.written - named_files(attempt.result.results))
    return snapshot


class _Attempt:
    """The results of a fold while others commit."""

    def __init__(self, store: FileStore, base: TableState, result: WriteResult) -> None:
        self._store = store
        self._base = base
        self.result = result
        self.written = brought_files(result.results)

    def rebase(self, proposal: Proposal, state: TableState, changed: Rebase) -> Proposal:
        if changed.rows_changed and state.definition.merges_values:
            raise Conflict(
                f"rows of {len(changed.rows_changed)} buckets changed while their runs were folded: fold again",
                code="merged-rows-changed",
            )
        table, live = self._store.files(state), state.met(self._store.ambient.now_ms())
        earlier = [r for r in self.result.results if r.slot in changed.slots]
        again = [look_again(table, live.get(r.slot, ()), r) for r in earlier]
        self.written |= brought_files(again)
        self.result = self.result.with_slots(again)
        return self.result.apply(proposal)
