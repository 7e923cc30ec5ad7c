"""Folds an older version's pending runs without a commit, so that a rollback can restore the resulting files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from filestore.commit.plan import plan_actions
from filestore.commit.proposal import Proposal, RunChanges
from filestore.delta.state import TableState
from filestore.delta.vectors import vector_file
from filestore.errors import TableStoreError
from filestore.files.leftovers import remove
from filestore.files.writer import TableFiles
from filestore.model.snapshot import Operation
from filestore.operations.fold import FoldTask, discard_folds, plan_folds
from filestore.table import FileStore
from filestore.threads import in_threads
from filestore.writing.pending import pending_chunks
from filestore.writing.slot_result import SlotResult, written_files
from filestore.writing.write import WriteResult, fold_slot

__all__ = ["Refolded", "refold"]


@dataclass(frozen=True, slots=True)
class Refolded:
    """A version as it would have been with all of its runs folded.

    Attributes:
        state: That version, without a pending run.
        written: Files that were written for it, relative to the table. No version names them yet.
    """

    state: TableState
    written: frozenset[str] = frozenset()

    def discard(self, store: FileStore) -> None:
        """Removes the files that were written, since no version will name them."""
        remove(store.table_files(self.state), self.written)


def refold(store: FileStore, state: TableState) -> Refolded:
    """Folds the pending runs of a version. It needs the memory of a fold. The caller MUST hold the version meanwhile.

    Args:
        store: The table.
        state: The version, with the definition by which its files and runs are read.

    Raises:
        NotFound: ``snapshot-expired``.
        InvalidRequest, Unavailable: as in a fold. All files that were written are removed.
    """
    version, written = state.version, set[str]()
    try:
        with store.reading(version):
            while tasks := plan_folds(state, store.ambient.now_ms(), full=True):
                results = _merged(store.table_files(state), tasks)
                written |= written_files(results)
                state = _after(store, state, tasks, results)
    except TableStoreError:
        remove(store.table_files(state), written)
        raise
    needed = _named(state)
    remove(store.table_files(state), written - needed)  # files that a later one of several folds has replaced
    return Refolded(replace(state, version=version), frozenset(written & needed))


def _merged(table: TableFiles, tasks: list[FoldTask]) -> list[SlotResult]:
    """Folds without change data, since the rollback derives it from the files before and after."""
    return in_threads("fold", partial(_fold, table), tasks, partial(discard_folds, table))


def _fold(table: TableFiles, task: FoldTask) -> SlotResult:
    return fold_slot(table, task.slot, task.base, pending_chunks(table, task.slot, task.runs))


def _after(store: FileStore, state: TableState, tasks: Iterable[FoldTask], results: Iterable[SlotResult]) -> TableState:
    runs = tuple(run for task in tasks for run in task.runs)
    proposal = Proposal(Operation.FOLD, store.ambient.new_id(), state.version, runs=RunChanges(folded=runs))
    actions = plan_actions(WriteResult(tuple(results)).apply(proposal), state, store.ambient.now_ms())
    return state.next(state.version + 1, actions)


def _named(state: TableState) -> set[str]:
    vectors = {vector_file(file.vector) for file in state.files if file.vector}
    return {file.path for file in state.files} | vectors | {run.path for run in state.tombstones}
