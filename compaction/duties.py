"""What a compactor does for a table, besides nothing: the list of duties. Each says when it is due, and does it.

A duty that is added here is done by ``tablestore compactor``, by schedule or once, under the table's lease.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compaction.leftovers import discard
from compaction.local import compact_slots, compact_table, plan_compaction
from compaction.merge import CompactionResult, CompactionTask
from filestore.delta.state import TableState
from filestore.errors import Conflict
from filestore.table import FileStore
from filestore.writer import TableFiles

__all__ = ["COMPACTION", "DUTIES", "Duty", "StillMine"]

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


COMPACTION = Duty("compaction", 30.0, _compaction_due, _compact)

DUTIES: tuple[Duty, ...] = (COMPACTION,)
"""All of them, in the order in which they are done when all are due."""
