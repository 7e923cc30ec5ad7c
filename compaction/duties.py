"""What a compactor does for a table, besides nothing: the list of duties. Each says when it is due, and does it.

A duty that is added here is done by ``tablestore compactor``, by schedule or once, under the table's lease.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compaction.folding import FoldTask, fold_slots, fold_table, forget_folds, plan_folds
from compaction.leftovers import discard
from compaction.local import compact_slots, compact_table, plan_compaction
from compaction.maintenance import maintain
from compaction.merge import CompactionResult, CompactionTask
from filestore.delta.state import TableState
from filestore.errors import Conflict
from filestore.life.retention import first_retained
from filestore.slot_result import SlotResult
from filestore.table import FileStore
from filestore.writer import TableFiles

__all__ = ["COMPACTION", "DUTIES", "FOLD", "LIFE", "Duty", "StillMine"]

StillMine = Callable[[], None]
"""Asked right before a duty's commit: raises `Conflict` (``lease-lost``) once the work is no longer this process's."""


@dataclass(frozen=True, slots=True)
class Duty:
    """One kind of care.

    Attributes:
        name: As lines and logs call it.
        every_s: Seconds between two looks at all tables, unless a schedule is given.
        due: Whether a table needs it: its newest version, and the time in milliseconds since 1970. Pure.
        perform: Does it on the newest version, and says in a line what was done; None if nothing was. After an error
            the table is whole and the next try succeeds.
    """

    name: str
    every_s: float
    due: Callable[[TableState, int], bool]
    perform: Callable[[FileStore, StillMine], str | None]


def _compaction_due(state: TableState, now_ms: int) -> bool:
    return bool(plan_compaction(state))


def _compact(store: FileStore, still_mine: StillMine) -> str | None:
    def run(table: TableFiles, tasks: Sequence[CompactionTask]) -> Sequence[CompactionResult]:
        results = compact_slots(table, tasks)
        try:
            still_mine()
        except Conflict:
            discard(table, (file for result in results for file in result.adds))
            raise
        return results

    snapshot = compact_table(store, runner=run)
    if snapshot is None:
        return None
    counts = snapshot.metrics
    return f"version {snapshot.version}: {counts['files_removed']} files became {counts['files_added']}"


def _folds_due(state: TableState, now_ms: int) -> bool:
    return bool(plan_folds(state, now_ms))


def _fold(store: FileStore, still_mine: StillMine) -> str | None:
    def run(table: TableFiles, tasks: Sequence[FoldTask]) -> Sequence[SlotResult]:
        results = fold_slots(table, tasks)
        try:
            still_mine()
        except Conflict:
            forget_folds(table, results)
            raise
        return results

    snapshot = fold_table(store, runner=run)
    return None if snapshot is None else f"version {snapshot.version}: {snapshot.metrics['rows_written']} rows folded"


def _life_due(state: TableState, now_ms: int) -> bool:
    """Whether versions may expire, or a tag may be due: there are more versions than are kept whatever their age."""
    options = state.definition.options
    kept = state.version - first_retained(state) + 1
    return bool(kept > options["snapshot.num-retained.min"] or options["tag.automatic-creation"] != "none")


def _live(store: FileStore, still_mine: StillMine) -> str | None:
    still_mine()
    done = maintain(store)
    told = [f"tag {done.tag.name}"] if done.tag is not None else []
    if done.expiry.files:
        told.append(f"{len(done.expiry.files)} files of expired versions removed")
    return ", ".join(told) or None


FOLD = Duty("fold", 30.0, _folds_due, _fold)
LIFE = Duty("life", 600.0, _life_due, _live)
COMPACTION = Duty("compaction", 30.0, _compaction_due, _compact)

DUTIES: tuple[Duty, ...] = (FOLD, COMPACTION, LIFE)
"""All of them, in the order in which they are done when all are due."""
