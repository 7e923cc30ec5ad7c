"""An older version's pending runs merged into its files, and nothing committed: what a rollback to it brings back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from compaction.folding import FoldTask, forget_folds, plan_folds
from compaction.leftovers import remove
from compaction.threads import in_threads
from filestore.delta.commit import plan_actions
from filestore.delta.conflict import Proposal
from filestore.delta.state import TableState
from filestore.delta.vectors import vector_file
from filestore.errors import TableStoreError
from filestore.files.writer import TableFiles
from filestore.model.snapshot import Operation
from filestore.table import FileStore
from filestore.writing.pending import pending_chunks
from filestore.writing.slot_result import SlotResult, brought_files
from filestore.writing.write import WriteResult, fold_slot

__all__ = ["Refolded", "refold"]


@dataclass(frozen=True, slots=True)
class Refolded:
    """A version as it would have been with all of its runs folded.

    Attributes:
        state: That version, without a pending run.
        written: Files that were written for it, relative to the table: nobody names them yet.
    """

    state: TableState
    written: frozenset[str] = frozenset()

    def discard(self, store: FileStore) -> None:
        """Removes what was written: it is not committed, and never will be."""
        remove(store.files(self.state), self.written)


def refold(store: FileStore, state: TableState) -> Refolded:
    """Folds the pending runs of a version, whose files MUST be held meanwhile. It takes the memory of a fold.

    Args:
        store: The table.
        state: The version, with the definition by which its files and runs are read.

    Raises:
        NotFound: ``snapshot-expired``.
        InvalidRequest, Unavailable: as a fold. Nothing stays behind.
    """
    version, written = state.version, set[str]()
    try:
        with store.reading(version):
            while tasks := plan_folds(state, store.ambient.now_ms(), full=True):
                results = _merged(store.files(state), tasks)
                written |= brought_files(results)
                state = _after(store, state, tasks, results)
    except TableStoreError:
        remove(store.files(state), written)
        raise
    needed = _named(state)
    remove(store.files(state), written - needed)  # of several folds, what a later one took the place of
    return Refolded(replace(state, version=version), frozenset(written & needed))


def _merged(table: TableFiles, tasks: list[FoldTask]) -> list[SlotResult]:
    """Without change data: the rollback tells it from the files before and after."""
    return in_threads("fold", partial(_fold, table), tasks, partial(forget_folds, table))


def _fold(table: TableFiles, task: FoldTask) -> SlotResult:
    return fold_slot(table, task.slot, task.base, pending_chunks(table, task.slot, task.runs))


def _after(store: FileStore, state: TableState, tasks: Iterable[FoldTask], results: Iterable[SlotResult]) -> TableState:
    runs = tuple(run for task in tasks for run in task.runs)
    proposal = Proposal(Operation.FOLD, store.ambient.new_id(), state.version, folded=runs)
    actions = plan_actions(WriteResult(tuple(results)).apply(proposal), state, store.ambient.now_ms())
    return state.next(state.version + 1, actions)


def _named(state: TableState) -> set[str]:
    files = state.files.values()
    vectors = {vector_file(file.vector) for file in files if file.vector}
    return set(state.files) | vectors | {run.path for runs in state.tombstones().values() for run in runs}
