"""A compaction of one table: choose for every slot, merge slot by slot, commit all at once.

Where the merging runs is the caller's choice: in threads here, or as tasks of a Spark job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import assert_never

from compaction.choice import Full, Merge, Nothing, choose
from compaction.leftovers import discard
from compaction.merge import CompactionResult, CompactionTask, compact_slot
from compaction.rebase import Rebased, rebased
from compaction.threads import in_threads
from filestore.delta.conflict import Proposal, Rebase
from filestore.delta.state import TableState
from filestore.errors import Conflict
from filestore.files.writer import TableFiles
from filestore.model.files import DataFile
from filestore.model.snapshot import Operation, Snapshot
from filestore.table import FileStore

__all__ = [
    "Runner",
    "commit_compaction",
    "compact_slots",
    "compact_table",
    "forget_compaction",
    "plan_compaction",
]

logger = logging.getLogger(__name__)

Runner = Callable[[TableFiles, Sequence[CompactionTask]], Sequence[CompactionResult]]
"""Does the tasks, in any order and any place, by `compact_slot`."""


def compact_table(store: FileStore, full: bool = False, runner: Runner | None = None) -> Snapshot | None:
    """Compacts what needs it; None if nothing does.

    Args:
        store: The table.
        full: Make one clean sorted run of every slot.
        runner: Where the merging runs; threads of this process if None.

    Raises:
        Conflict: another compaction or an overwrite was faster in all slots. Nothing was changed.
    """
    state = store.state()
    tasks = plan_compaction(state, full=full)
    if not tasks:
        return None
    with store.preparing(state):
        results = (runner or compact_slots)(store.files(state), tasks)
    return commit_compaction(store, state, results)


def plan_compaction(state: TableState, *, full: bool = False) -> list[CompactionTask]:
    """The slots of a version that need compaction, those with most to merge first. Pure."""
    tasks: list[CompactionTask] = []
    for slot, files in state.slots().items():
        match choose(files, state.definition, full=full):
            case Nothing():
                pass
            case Merge(chosen, level) | Full(chosen, level):
                tasks.append(CompactionTask(slot, chosen, level))
            case never:
                assert_never(never)
    return sorted(tasks, key=lambda task: -sum(file.size for file in task.files))


def compact_slots(table: TableFiles, tasks: Sequence[CompactionTask]) -> list[CompactionResult]:
    """Does the tasks in threads, one for each core. If one fails, the others' files are removed."""

    def work(task: CompactionTask) -> CompactionResult:
        return compact_slot(table, task.files, task.level)

    return in_threads("compaction", work, tasks, partial(forget_compaction, table))


def forget_compaction(table: TableFiles, results: Iterable[CompactionResult]) -> None:
    """Removes what tasks wrote that nobody will commit."""
    discard(table, (file for result in results for file in result.adds))


def commit_compaction(store: FileStore, base: TableState, results: Sequence[CompactionResult]) -> Snapshot:
    """Commits what was merged from a version, whatever was written since.

    A slot whose inputs were replaced meanwhile is left out; the others are committed.

    Raises:
        Conflict: that is so in all slots (see `compaction.rebase`). Nothing was changed.
    """
    attempt = _Attempt(store, base, results)
    try:
        snapshot = store.commit(base, attempt.proposal(store.ambient.new_id()), attempt.rebase).snapshot
    except Conflict:  # of all errors the one that says for sure that nothing refers to the new files
        discard(store.files(base), attempt.made)
        raise
    discard(store.files(base), attempt.made, keep=attempt.adds)
    return snapshot


class _Attempt:
    """What was merged, while it is fought through."""

    def __init__(self, store: FileStore, base: TableState, results: Sequence[CompactionResult]) -> None:
        self._store = store
        self._base = base
        self._results = {result.slot: result for result in results}
        self._parts = {r.slot: Rebased(r.adds, tuple(file.path for file in r.inputs)) for r in results}
        self.made = list(self.adds)
        """All files that were written so far, with the vectors that they were given."""

    @property
    def adds(self) -> tuple[DataFile, ...]:
        """What is to be committed."""
        return tuple(file for part in self._parts.values() for file in part.adds)

    def rebase(self, proposal: Proposal, state: TableState, changed: Rebase) -> Proposal:
        for slot in sorted(changed.slots, key=repr):
            try:
                self._parts[slot] = rebased(self._store, self._base.version, self._results[slot], state)
            except Conflict as error:
                if len(self._parts) == 1:
                    raise
                logger.info("bucket %d of %s is left out: %s", slot.bucket, dict(slot.partition), error)
                del self._parts[slot]
            else:
                self.made += self._parts[slot].adds
        return self.proposal(proposal.commit_id)

    def proposal(self, commit_id: str) -> Proposal:
        inputs = [file for slot in self._parts for file in self._results[slot].inputs]
        removes = tuple(path for part in self._parts.values() for path in part.removes)
        return Proposal(
            operation=Operation.COMPACT,
            commit_id=commit_id,
            base_version=self._base.version,
            adds=self.adds,
            removes=removes,
            touches=frozenset(self._parts),
            metrics={
                "files_added": len(self.adds),
                "files_removed": len(removes),
                "rows_rewritten": sum(file.live_rows for file in inputs),
                "rows_dropped": sum(file.rows - file.live_rows for file in inputs),
            },
        )
