"""A compaction of one table: choose for every slot, merge slot by slot, commit all at once.

Where the merging runs is the caller's choice: in threads here, or as tasks of a Spark job.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from compaction.choice import Merge, choose
from compaction.merge import CompactionResult, CompactionTask, compact_slot
from compaction.rebase import Rebased, rebased
from filestore.delta.conflict import Proposal, Rebase
from filestore.delta.state import TableState
from filestore.delta.vectors import vector_file
from filestore.errors import Conflict, Unavailable
from filestore.model.files import DataFile
from filestore.model.snapshot import Operation, Snapshot
from filestore.table import FileStore
from filestore.writer import TableFiles

__all__ = ["Runner", "commit_compaction", "compact_slots", "compact_table", "plan_compaction"]

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
        Conflict: another compaction or an overwrite was faster. Nothing was changed.
    """
    state = store.state()
    tasks = plan_compaction(state, full=full)
    if not tasks:
        return None
    table = store.files(state)
    return commit_compaction(store, state, (runner or compact_slots)(table, tasks))


def plan_compaction(state: TableState, *, full: bool = False) -> list[CompactionTask]:
    """The slots of a version that need compaction. Pure."""
    choices = {slot: choose(files, state.definition, full=full) for slot, files in state.slots().items()}
    return [CompactionTask(slot, c.files, c.level) for slot, c in choices.items() if isinstance(c, Merge)]


def compact_slots(table: TableFiles, tasks: Sequence[CompactionTask]) -> list[CompactionResult]:
    """Does the tasks in threads, one for each core. If one fails, the others' files are removed."""
    with ThreadPoolExecutor(min(len(tasks), os.cpu_count() or 1), "compaction") as pool:
        futures = [pool.submit(compact_slot, table, task.files, task.level) for task in tasks]
        failed = next((f for f in futures if f.exception() is not None), None)
    if failed is not None:
        _discard(table, (file for f in futures if f.exception() is None for file in f.result().adds))
    return [future.result() for future in futures]


def _discard(table: TableFiles, files: Iterable[DataFile]) -> None:
    """Removes files that nothing refers to; what cannot be removed now is an orphan for the doctor to list."""
    for file in files:
        for path in (file.path, *([vector_file(file.vector)] if file.vector else [])):
            try:
                table.storage.delete(table.path(path))
            except Unavailable as error:
                logger.warning("%s stays behind: %s", path, error)


def commit_compaction(store: FileStore, base: TableState, results: Sequence[CompactionResult]) -> Snapshot:
    """Commits what was merged from a version, whatever was written since.

    Raises:
        Conflict: inputs were replaced meanwhile (see `compaction.rebase`). Nothing was changed.
    """
    parts = {r.slot: Rebased(r.adds, tuple(file.path for file in r.inputs)) for r in results}
    by_slot = {result.slot: result for result in results}
    made = [file for result in results for file in result.adds]

    def rebase(proposal: Proposal, state: TableState, changed: Rebase) -> Proposal:
        for slot in changed.slots:
            parts[slot] = rebased(store, base.version, by_slot[slot], state)
            made.extend(parts[slot].adds)
        return _proposed(proposal.commit_id, base, results, parts.values())

    proposal = _proposed(store.ambient.new_id(), base, results, parts.values())
    try:
        return store.commit(base, proposal, rebase).snapshot
    except Conflict:  # of all errors the one that says for sure that nothing refers to the new files
        _discard(store.files(base), made)
        raise


def _proposed(
    commit_id: str, base: TableState, results: Sequence[CompactionResult], parts: Iterable[Rebased]
) -> Proposal:
    listed = list(parts)
    inputs = [file for result in results for file in result.inputs]
    adds = tuple(file for part in listed for file in part.adds)
    removes = tuple(path for part in listed for path in part.removes)
    return Proposal(
        operation=Operation.COMPACT,
        commit_id=commit_id,
        base_version=base.version,
        adds=adds,
        removes=removes,
        touches=frozenset(result.slot for result in results),
        metrics={
            "files_added": len(adds),
            "files_removed": len(removes),
            "rows_rewritten": sum(file.live_rows for file in inputs),
            "rows_dropped": sum(file.rows - file.live_rows for file in inputs),
        },
    )
