"""The seam between snapshot and log, planned purely: from a position to the steps that lead on.

A reader scans the files of one version and then goes on version by version: what a snapshot's log transactions hold
are its changes. Since snapshots name exact ranges, no record is lost or doubled, however writers interleave in the log.
An overwrite or a drop of partitions has no rows in the log: it is rows leaving and others coming, both read from files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from filestore.delta.state import TableState
from filestore.model.log_range import LogTransaction
from filestore.model.snapshot import Operation, Snapshot
from filestore.reading.scan import ScanPlan, plan_scan
from tablestore.moments import milliseconds

__all__ = ["FromLog", "Replaced", "Step", "steps"]


@dataclass(frozen=True, slots=True)
class FromLog:
    """Read these transactions' records, in this order; they were committed then, in milliseconds since 1970 UTC."""

    version: int
    transactions: tuple[LogTransaction, ...]
    committed_ms: int = field(default=0, compare=False)

    @property
    def rows(self) -> int:
        """How many records that are."""
        return sum(r.count for t in self.transactions for r in t.ranges)


@dataclass(frozen=True, slots=True)
class Replaced:
    """The rows of files and runs that the version has no more leave (``-D``), those of new ones come (``+I``).

    A commit that replaces partitions replaces whole slots and changes no vector: what is in both versions has the same
    rows in both.
    """

    version: int

    @staticmethod
    def left(before: TableState, after: TableState) -> list[ScanPlan]:
        """The parts of the scan that left."""
        runs = {run.id for listed in after.pending().values() for run in listed}

        def stays(part: ScanPlan) -> bool:
            pending = (run.id for slot in part.pending for run in slot.runs)
            return all(f.path in after.files for f in part.files) and runs.issuperset(pending)

        return [part for part in plan_scan(before).parts() if not stays(part)]

    @staticmethod
    def came(before: TableState, after: TableState) -> list[ScanPlan]:
        """The parts that came."""
        return Replaced.left(after, before)


Step = FromLog | Replaced


def steps(snapshots: Iterable[Snapshot], *, keyed: bool) -> Iterator[Step]:
    """The steps through those snapshots, which follow each other; commits that move no rows give none.

    Args:
        snapshots: The snapshots.
        keyed: Whether the table has a primary key: then the log says what a rollback changes.
    """
    for snapshot in snapshots:
        match snapshot.operation:
            case Operation.OVERWRITE | Operation.DROP_PARTITION:
                yield Replaced(snapshot.version)
            case Operation.ROLLBACK if not keyed:
                yield Replaced(snapshot.version)
            case Operation.WRITE | Operation.ROLLBACK if snapshot.transactions:
                yield FromLog(snapshot.version, snapshot.transactions, milliseconds(snapshot.timestamp))
            case _:
                pass
