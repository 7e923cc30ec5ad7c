"""What a compactor does for a table, besides nothing: the list of duties. Each says when it is due, and does it.

A duty that is added here is done by ``tablestore compactor``, by schedule or once, under the table's lease.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from catalog_service.client import TableInfo
from compaction.folding import fold_slots, fold_table, forget_folds, plan_folds
from compaction.local import compact_slots, compact_table, forget_compaction, plan_compaction
from compaction.log_trim import trims_log
from compaction.maintenance import maintain
from compaction.tombstones import bury, plan_burials
from filestore.delta.state import TableState
from filestore.errors import Conflict
from filestore.files.writer import TableFiles
from filestore.life.retention import first_retained
from filestore.table import FileStore

__all__ = ["COMPACTION", "DUTIES", "FOLD", "LIFE", "TOMBSTONES", "Duty", "StillMine"]

Task = TypeVar("Task")
Result = TypeVar("Result")

StillMine = Callable[[], None]
"""Asked right before a duty's commit: raises `Conflict` (``lease-lost``) once the work is no longer this process's."""


@dataclass(frozen=True, slots=True)
class Duty:
    """One kind of care.

    Attributes:
        name: As lines and logs call it.
        every_s: Seconds between two looks at all tables, unless a schedule is given.
        due: Whether a table needs it: its newest version, and the time in milliseconds since 1970. Pure.
        perform: Does it on the newest version, of the table that the catalog knows so, and says in a line what was
            done; None if nothing was. After an error the table is whole and the next try succeeds.
    """

    name: str
    every_s: float
    due: Callable[[TableState, int], bool]
    perform: Callable[[FileStore, StillMine, TableInfo], str | None]


def _compaction_due(state: TableState, now_ms: int) -> bool:
    return bool(plan_compaction(state))


def _compact(store: FileStore, still_mine: StillMine, _: TableInfo) -> str | None:
    snapshot = compact_table(store, runner=_while_mine(compact_slots, forget_compaction, still_mine))
    if snapshot is None:
        return None
    counts = snapshot.metrics
    return f"version {snapshot.version}: {counts['files_removed']} files became {counts['files_added']}"


def _while_mine(
    work: Callable[[TableFiles, Sequence[Task]], Sequence[Result]],
    forget: Callable[[TableFiles, Sequence[Result]], None],
    still_mine: StillMine,
) -> Callable[[TableFiles, Sequence[Task]], Sequence[Result]]:
    """The same work, thrown away if it is no longer this process's when it is done."""

    def run(table: TableFiles, tasks: Sequence[Task]) -> Sequence[Result]:
        results = work(table, tasks)
        try:
            still_mine()
        except Conflict:
            forget(table, results)
            raise
        return results

    return run


def _folds_due(state: TableState, now_ms: int) -> bool:
    return bool(plan_folds(state, now_ms))


def _fold(store: FileStore, still_mine: StillMine, _: TableInfo) -> str | None:
    snapshot = fold_table(store, runner=_while_mine(fold_slots, forget_folds, still_mine))
    return None if snapshot is None else f"version {snapshot.version}: {snapshot.metrics['rows_written']} rows folded"


def _burials_due(state: TableState, now_ms: int) -> bool:
    return bool(plan_burials(state, now_ms))


def _bury(store: FileStore, still_mine: StillMine, _: TableInfo) -> str | None:
    still_mine()
    snapshot = bury(store)
    return None if snapshot is None else f"version {snapshot.version}: tombstones merged or forgotten"


def _life_due(state: TableState, now_ms: int) -> bool:
    """Whether versions may expire, a tag may be due, readers may leave overlays, or the log has to be trimmed.

    Versions may if there are more than are kept whatever their age.
    """
    options = state.definition.options
    kept = state.version - first_retained(state) + 1
    tagged = options["tag.automatic-creation"] != "none"
    overlays = state.definition.merges_on_read or options["log.consistency"] == "eventual"
    by_age = overlays or trims_log(state)
    return bool(kept > options["snapshot.num-retained.min"] or tagged or by_age)


def _live(store: FileStore, still_mine: StillMine, _: TableInfo) -> str | None:
    still_mine()
    done = maintain(store)
    told = [f"tag {done.tag.name}"] if done.tag is not None else []
    if done.expiry.files:
        told.append(f"{len(done.expiry.files)} files of expired versions removed")
    if done.overlays:
        told.append(f"{done.overlays} old overlays removed")
    if done.log_records:
        told.append(f"{done.log_records} old records of the log removed")
    return ", ".join(told) or None


FOLD = Duty("fold", 30.0, _folds_due, _fold)
TOMBSTONES = Duty("tombstones", 60.0, _burials_due, _bury)
LIFE = Duty("life", 600.0, _life_due, _live)
COMPACTION = Duty("compaction", 30.0, _compaction_due, _compact)

DUTIES: tuple[Duty, ...] = (FOLD, COMPACTION, TOMBSTONES, LIFE)
"""All of them, in the order in which they are done when all are due."""
