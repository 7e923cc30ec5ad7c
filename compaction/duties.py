"""The duties of a compactor: the kinds of work that a table may need. Each decides when it is due, and performs it.

``tablestore compactor`` performs every duty of the list, by schedule or once, under the table's lease.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from compaction.compact import compact_slots, compact_table, discard_compaction, plan_compaction
from compaction.log_trim import trims_log
from compaction.maintenance import maintain
from compaction.tombstones import clean_tombstones, plan_tombstone_cleanups
from filestore.delta.state import TableState
from filestore.errors import Conflict
from filestore.files.writer import TableFiles
from filestore.operations.fold import discard_folds, fold_slots, fold_table, plan_folds
from filestore.retention.rules import first_retained
from managed_table.opened import OpenedTable

__all__ = ["COMPACTION", "DUTIES", "FOLD", "LIFE", "TOMBSTONES", "Duty", "LeaseCheck"]

Task = TypeVar("Task")
Result = TypeVar("Result")

LeaseCheck = Callable[[], None]
"""A function to call right before a duty's commit: it raises `Conflict` (``lease-lost``) if the lease was lost."""


@dataclass(frozen=True, slots=True)
class Duty:
    """One kind of work for a table.

    Attributes:
        name: The name for output and logs.
        every_s: The seconds between two checks of all tables, unless a schedule is given.
        due: Whether a table needs it, by its newest version and the time in milliseconds since 1970. Pure.
        perform: Performs it on the newest version, and returns a line that says what was done; None if
            nothing was. After an error the table is consistent and a retry may succeed.
    """

    name: str
    every_s: float
    due: Callable[[TableState, int], bool]
    perform: Callable[[OpenedTable, LeaseCheck], str | None]


def _compaction_due(state: TableState, now_ms: int) -> bool:
    return bool(plan_compaction(state))


def _compact(table: OpenedTable, check_lease: LeaseCheck) -> str | None:
    snapshot = compact_table(table.filestore, runner=_under_lease(compact_slots, discard_compaction, check_lease))
    if snapshot is None:
        return None
    counts = snapshot.metrics
    return f"version {snapshot.version}: {counts['files_removed']} files became {counts['files_added']}"


def _under_lease(
    work: Callable[[TableFiles, Sequence[Task]], Sequence[Result]],
    discard: Callable[[TableFiles, Sequence[Result]], None],
    check_lease: LeaseCheck,
) -> Callable[[TableFiles, Sequence[Task]], Sequence[Result]]:
    """Discards the results of work if this process has lost the lease when it is done."""

    def run(table: TableFiles, tasks: Sequence[Task]) -> Sequence[Result]:
        results = work(table, tasks)
        try:
            check_lease()
        except Conflict:
            discard(table, results)
            raise
        return results

    return run


def _folds_due(state: TableState, now_ms: int) -> bool:
    return bool(plan_folds(state, now_ms))


def _fold(table: OpenedTable, check_lease: LeaseCheck) -> str | None:
    snapshot = fold_table(table.filestore, runner=_under_lease(fold_slots, discard_folds, check_lease))
    return None if snapshot is None else f"version {snapshot.version}: {snapshot.metrics['rows_written']} rows folded"


def _tombstones_due(state: TableState, now_ms: int) -> bool:
    return bool(plan_tombstone_cleanups(state, now_ms))


def _clean_tombstones(table: OpenedTable, check_lease: LeaseCheck) -> str | None:
    check_lease()
    snapshot = clean_tombstones(table.filestore)
    return None if snapshot is None else f"version {snapshot.version}: tombstones merged or forgotten"


def _life_due(state: TableState, now_ms: int) -> bool:
    """Returns whether versions may expire, a tag may be due, there may be old overlays, or the log has to be trimmed.

    Versions may expire if there are more than are always kept.
    """
    options = state.definition.options
    kept = state.version - first_retained(state) + 1
    tagged = options["tag.automatic-creation"] != "none"
    overlays = state.definition.merges_on_read or options["log.consistency"] == "eventual"
    by_age = overlays or trims_log(state)
    return bool(kept > options["snapshot.num-retained.min"] or tagged or by_age)


def _maintain(table: OpenedTable, check_lease: LeaseCheck) -> str | None:
    check_lease()
    done = maintain(table)
    done_texts = [f"tag {done.tag.name}"] if done.tag is not None else []
    if done.expiry.files:
        done_texts.append(f"{len(done.expiry.files)} files of expired versions removed")
    if done.overlays:
        done_texts.append(f"{done.overlays} old overlays removed")
    if done.log_records:
        done_texts.append(f"{done.log_records} old records of the log removed")
    return ", ".join(done_texts) or None


FOLD = Duty("fold", 30.0, _folds_due, _fold)
TOMBSTONES = Duty("tombstones", 60.0, _tombstones_due, _clean_tombstones)
LIFE = Duty("life", 600.0, _life_due, _maintain)
COMPACTION = Duty("compaction", 30.0, _compaction_due, _compact)

DUTIES: tuple[Duty, ...] = (FOLD, COMPACTION, TOMBSTONES, LIFE)
"""All duties, in the order in which due ones are performed."""
