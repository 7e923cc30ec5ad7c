"""Plans the switch from a snapshot to the log: the steps that lead from a version to later ones. Pure.

A reader scans the files of one version and then continues version by version: the records of a snapshot's log
transactions are its changes. Snapshots name exact ranges, so no record is lost or repeated, however writers interleave
in the log. An overwrite or a drop of partitions has no rows in the log: its deletes and inserts are read from files.
A changelog, which has for each update the row before it, is derived from what contains that row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from filestore.delta.log import Commit
from filestore.delta.state import TableState
from filestore.model.changelog import ChangelogProducer
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile
from filestore.model.log_mode import LogMode
from filestore.model.log_range import LogTransaction
from filestore.model.snapshot import Operation, Snapshot
from filestore.reading.scan import ScanPlan, plan_scan
from managed_table.own_log import OwnRecords
from tablestore.incoming.moments import milliseconds

__all__ = ["Difference", "FromLog", "Recorded", "Replaced", "Step", "changelog_step", "steps"]


@dataclass(frozen=True, slots=True)
class FromLog:
    """The step that reads the records of these transactions, in this order, with the time of their commit."""

    version: int
    transactions: tuple[LogTransaction, ...]
    committed_ms: int = field(default=0, compare=False)

    @property
    def rows(self) -> int:
        """The number of records."""
        return sum(r.count for t in self.transactions for r in t.ranges)


@dataclass(frozen=True, slots=True)
class Replaced:
    """The step that reads removed files and runs as deletes (``-D``), and added ones as inserts.

    A file or run of both versions has the same rows in both, unless its vector differs: an overwrite that restores a
    version's files restores their vectors, too, and so does a rollback.
    """

    version: int

    @staticmethod
    def removed(before: TableState, after: TableState) -> list[ScanPlan]:
        """The parts of the scan that are removed."""
        runs = {run.id for run in after.pending}

        def stays(part: ScanPlan) -> bool:
            pending = (run.id for slot in part.pending for run in slot.runs)
            return all(_is_in(after, file) for file in part.files) and runs.issuperset(pending)

        return [part for part in plan_scan(before).parts() if not stays(part)]

    @staticmethod
    def added(before: TableState, after: TableState) -> list[ScanPlan]:
        """The parts that are added."""
        return Replaced.removed(after, before)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The step that reads the change data which the version names."""

    version: int


@dataclass(frozen=True, slots=True)
class Difference:
    """The step that derives the changes from the files and runs of the version before and of this one."""

    version: int


Step = FromLog | Replaced | Recorded | Difference


def steps(snapshots: Iterable[Snapshot], records: OwnRecords, *, keyed: bool) -> Iterator[FromLog | Replaced]:
    """The steps through those snapshots, which follow each other; commits that change no rows have none.

    Args:
        snapshots: The snapshots.
        records: The records that the log has.
        keyed: Whether the table has a primary key: then the log has the changes of a rollback.

    Raises:
        NotFound: ``log-gap``: the records of a snapshot were in a log that was lost.
    """
    for snapshot in snapshots:
        match snapshot.operation:
            case Operation.OVERWRITE | Operation.DROP_PARTITION:
                yield Replaced(snapshot.version)
            case Operation.ROLLBACK if not keyed:
                yield Replaced(snapshot.version)
            case Operation.WRITE | Operation.ROLLBACK if snapshot.transactions:
                yield _from_log(snapshot, records)
            case _:
                pass


def _from_log(snapshot: Snapshot, records: OwnRecords) -> FromLog:
    records.require(snapshot.version)
    return FromLog(snapshot.version, snapshot.transactions, milliseconds(snapshot.timestamp))


def changelog_step(commit: Commit, definition: TableDefinition, records: OwnRecords | None) -> Step | None:
    """The step for a version's exact changes; None if its commit changes no rows.

    Args:
        commit: The version's entry.
        definition: The table's definition in that version.
        records: The records that the log has; None for a reader that has no log, or shall do without it.

    Raises:
        NotFound: ``log-gap``: the version's records were in a log that was lost.
    """
    snapshot = commit.snapshot()
    match snapshot.operation:
        case Operation.WRITE | Operation.ROLLBACK | Operation.OVERWRITE | Operation.DROP_PARTITION:
            pass
        case _:
            return None  # a fold merges changes that our readers have merged already
    if snapshot.operation is Operation.WRITE and records is not None and _log_is_complete(definition):
        if not snapshot.transactions:
            return None
        return _from_log(snapshot, records)
    if _has_change_data(commit) and _change_data_is_exact(definition):
        return Recorded(snapshot.version)
    return Difference(snapshot.version)


def _is_in(state: TableState, file: DataFile) -> bool:
    """Returns whether a version has a file with the same dead rows."""
    return (other := state.files.current(file)) is not None and other.vector == file.vector


def _log_is_complete(definition: TableDefinition) -> bool:
    """Returns whether the log has the row before each change. Without a key there are only inserts."""
    return not definition.primary_key or definition.log_mode is LogMode.ALL


def _has_change_data(commit: Commit) -> bool:
    return any("cdc" in action for action in commit.actions)


def _change_data_is_exact(definition: TableDefinition) -> bool:
    """Returns whether a version's change data are exactly its changes for our readers.

    In merge-on-read tables they are those from fold to fold, but our readers see a change at its commit.
    """
    known = definition.changelog_producer in (ChangelogProducer.LOOKUP, ChangelogProducer.INPUT)
    return known and not definition.merges_on_read
