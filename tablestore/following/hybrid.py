"""The seam between snapshot and log, planned purely: from a position to the steps that lead on.

A reader scans the files of one version and then goes on version by version: what a snapshot's log transactions hold
are its changes. Since snapshots name exact ranges, no record is lost or doubled, however writers interleave in the log.
An overwrite or a drop of partitions has no rows in the log: it is rows leaving and others coming, both read from files.
A changelog, whose updates come with the row that they replace, is told from what holds that row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.model.changelog import ChangelogProducer
from filestore.model.definition import TableDefinition
from filestore.model.log_mode import LogMode
from filestore.model.log_range import LogTransaction
from filestore.model.snapshot import Operation, Snapshot
from filestore.reading.scan import ScanPlan, plan_scan
from tablestore.moments import milliseconds

__all__ = ["Compared", "FromLog", "Recorded", "Replaced", "Step", "changelog_step", "steps"]


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


@dataclass(frozen=True, slots=True)
class Recorded:
    """Read the change data that the version names."""

    version: int


@dataclass(frozen=True, slots=True)
class Compared:
    """What differs between the version before and this one, told from their files and runs."""

    version: int


Step = FromLog | Replaced | Recorded | Compared


def steps(snapshots: Iterable[Snapshot], *, keyed: bool) -> Iterator[FromLog | Replaced]:
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


def changelog_step(commit: Commit, definition: TableDefinition, *, logged: bool) -> Step | None:
    """The step that gives a version's exact changes; None if its commit moves no rows.

    Args:
        commit: The version's entry.
        definition: What the table is in that version.
        logged: Whether the reader has the table's log.
    """
    snapshot = commit.snapshot()
    match snapshot.operation:
        case Operation.WRITE | Operation.ROLLBACK | Operation.OVERWRITE | Operation.DROP_PARTITION:
            pass
        case _:
            return None  # a fold merges what our readers have merged already
    if snapshot.operation is Operation.WRITE and logged and _log_is_complete(definition):
        if not snapshot.transactions:
            return None
        return FromLog(snapshot.version, snapshot.transactions, milliseconds(snapshot.timestamp))
    if _has_change_data(commit) and _change_data_is_exact(definition):
        return Recorded(snapshot.version)
    return Compared(snapshot.version)


def _log_is_complete(definition: TableDefinition) -> bool:
    """Whether the log says of each change what the row was. Without a key rows only come."""
    return not definition.primary_key or definition.log_mode is LogMode.ALL


def _has_change_data(commit: Commit) -> bool:
    return any("cdc" in action for action in commit.actions)


def _change_data_is_exact(definition: TableDefinition) -> bool:
    """Whether a version's change data are what it changed for our readers.

    Those of merge-on-read tables go from fold to fold, but our readers see a change at its commit.
    """
    known = definition.changelog_producer in (ChangelogProducer.LOOKUP, ChangelogProducer.INPUT)
    return known and not definition.merges_on_read
