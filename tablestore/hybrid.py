"""The seam between snapshot and log, planned purely: from a position to the steps that lead on.

A reader scans the files of one version and then goes on version by version: what a snapshot's log transactions hold
are its changes. Since snapshots name exact ranges, no record is lost or doubled, however writers interleave in the log.
An overwrite has no rows in the log: it is the old rows leaving and the new ones coming, both read from files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from filestore.model.log_range import LogTransaction
from filestore.model.snapshot import Operation, Snapshot

__all__ = ["FromLog", "Replaced", "Step", "steps"]


@dataclass(frozen=True, slots=True)
class FromLog:
    """Read these transactions' records, in this order."""

    version: int
    transactions: tuple[LogTransaction, ...]

    @property
    def rows(self) -> int:
        """How many records that are."""
        return sum(r.count for t in self.transactions for r in t.ranges)


@dataclass(frozen=True, slots=True)
class Replaced:
    """All rows of version ``version - 1`` leave (``-D``), all of ``version`` come (``+I``)."""

    version: int


Step = FromLog | Replaced


def steps(snapshots: Iterable[Snapshot]) -> Iterator[Step]:
    """The steps through those snapshots, which follow each other; commits that move no rows give none."""
    for snapshot in snapshots:
        match snapshot.operation:
            case Operation.OVERWRITE:
                yield Replaced(snapshot.version)
            case Operation.WRITE if snapshot.transactions:
                yield FromLog(snapshot.version, snapshot.transactions)
            case _:
                pass
