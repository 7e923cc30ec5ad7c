"""Makes proposals from flat keyword arguments, and operations that commit a given proposal."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import fields
from typing import Any

from compaction.compact import Compaction
from compaction.merge import CompactionResult, CompactionTask
from filestore.commit.proposal import FileChanges, LogChanges, Premises, Proposal, RunChanges
from filestore.commit.protocol import Observer
from filestore.delta.state import TableState
from filestore.errors import Conflict
from filestore.model.snapshot import Operation, Snapshot
from filestore.operations.fold import Fold, FoldTask
from filestore.table import FileStore
from filestore.writing.slot_result import SlotResult

__all__ = ["commit_compaction", "commit_folds", "propose"]

_GROUPS = {"files": FileChanges, "runs": RunChanges, "log": LogChanges, "premises": Premises}


def propose(operation: Operation, commit_id: str, base_version: int, **given: Any) -> Proposal:
    """A proposal; a keyword is a field of it or of one of its groups."""
    groups: dict[str, Any] = {}
    for name, kind in _GROUPS.items():
        own = {field.name for field in fields(kind)} & given.keys()
        groups[name] = kind(**{field: given.pop(field) for field in own})
    return Proposal(operation, commit_id, base_version, **groups, **given)


class _OnlyOnce(Observer):
    def began_again(self, conflict: Conflict) -> None:
        raise conflict


def commit_folds(
    store: FileStore, base: TableState, tasks: Sequence[FoldTask], results: Sequence[SlotResult]
) -> Snapshot:
    """Commits folds that were done on `base`; a conflict is raised, and not cured by folding again."""

    def begin(base: TableState) -> nullcontext[Fold]:
        return nullcontext(Fold(store, base, lambda _: tasks, lambda *_: results))

    committed = store.commit(begin, base=base, observer=_OnlyOnce())
    assert committed is not None
    return committed.snapshot


def commit_compaction(store: FileStore, base: TableState, results: Sequence[CompactionResult]) -> Snapshot:
    """Commits a compaction that was done on `base`."""
    tasks = [CompactionTask(result.slot, result.inputs, 0) for result in results]

    def begin(base: TableState) -> nullcontext[Compaction]:
        return nullcontext(Compaction(store, base, lambda _: tasks, lambda *_: results))

    committed = store.commit(begin, base=base, observer=_OnlyOnce())
    assert committed is not None
    return committed.snapshot
