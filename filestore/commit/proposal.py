"""A proposed commit as a value: what it changes, and on what it depends (FORMAT.md section 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from filestore.model.definition import TableDefinition
from filestore.model.files import ChangeFile, DataFile, PendingRun, Slot, Tombstones
from filestore.model.log_range import LogTransaction
from filestore.model.partition_set import NO_PARTITIONS, PartitionSet
from filestore.model.snapshot import Operation

__all__ = ["AppVersion", "FileChanges", "LogChanges", "NewLog", "Premises", "Proposal", "RunChanges"]


@dataclass(frozen=True, slots=True)
class AppVersion:
    """A writer's own number for a commit, such as a streaming query's batch: it is committed at most once.

    Attributes:
        app_id: The writer.
        version: The number.
        positions: How far the writer has read each part of its input with this commit, if it records that.
    """

    app_id: str
    version: int
    positions: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class FileChanges:
    """The changes of data files.

    Attributes:
        adds: New files; some of their rows may be dead already.
        vectors: Files of the base whose dead rows grow, with their new vectors.
        removes: Files of the base that leave the table, whatever their dead rows are by then.
        cdc: Change data of the commit.
        replaces: Partitions that an overwrite or a drop replaces: all their files, pending runs and tombstones at the
            time of the commit leave the table.
        orphans: Paths of files that no version names, and that none may name from this version on.
        restores: The version whose files an overwrite restores, instead of new ones; None for other commits.
        unread: The rows that leave the table could not be read, so there is no change data.
    """

    adds: tuple[DataFile, ...] = ()
    vectors: tuple[DataFile, ...] = ()
    removes: tuple[DataFile, ...] = ()
    cdc: tuple[ChangeFile, ...] = ()
    replaces: PartitionSet = NO_PARTITIONS
    orphans: frozenset[str] = frozenset()
    restores: int | None = None
    unread: bool = False


@dataclass(frozen=True, slots=True)
class RunChanges:
    """The changes of runs beside the data files: pending runs and tombstones.

    Attributes:
        pending: New pending runs, which a later fold will merge.
        folded: Pending runs that this commit has merged.
        tombstones: Deleted keys to remember.
        forgotten: Tombstones that are removed; `tombstones` may have their keys again.
    """

    pending: tuple[PendingRun, ...] = ()
    folded: tuple[PendingRun, ...] = ()
    tombstones: tuple[Tombstones, ...] = ()
    forgotten: tuple[Tombstones, ...] = ()


@dataclass(frozen=True, slots=True)
class NewLog:
    """A log that takes the place of one that was lost.

    Attributes:
        identity: What its offsets are bound to.
        offsets: For each bucket the offset at which the table's records begin.
    """

    identity: Mapping[str, str]
    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class LogChanges:
    """The decisions of a commit about the table's log (log/table/PROTOCOL.md).

    Attributes:
        transactions: The log transactions that this commit makes part of the table.
        republished: New transactions for those of earlier commits that the log has lost, by the ids of the lost ones;
            None where no new one could be written.
        ended: Ids of transactions of earlier commits that are known to have ended.
        repaired: For each bucket of an eventual log, the offset before which every record is named by a commit or was
            repaired by one.
        new_log: The log that begins with this commit; None if the table keeps the one that it has.
        fenced: Ids of commits of writers that were given up: they are refused from this version on.
    """

    transactions: tuple[LogTransaction, ...] = ()
    republished: Mapping[str, LogTransaction | None] = field(default_factory=dict)
    ended: frozenset[str] = frozenset()
    repaired: Mapping[int, int] = field(default_factory=dict)
    new_log: NewLog | None = None
    fenced: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Premises:
    """The premises of a proposal: another commit that changes one of them first causes a rebase or a conflict.

    Attributes:
        slots: Slots whose keys were looked up: a change there causes a rebase.
        all_slots: All files and all tombstones: a change anywhere causes a rebase.
        replaced_slots: The change data was computed from the files that the commit replaces: a change of those causes a
            rebase.
        rows_read: The rows of these slots were read, so that pending runs which others add there change them, too.
        watched_domains: Metadata domains: a change of one is a conflict.
        log_order: The log is eventual, so that readers use its own order: a commit with log transactions causes a
            rebase.
        no_pending_runs: The commit conflicts if the version before it has a pending run.
        leases: Commits other than its own under whose leases its log transactions were written: a fence of one of them
            is a conflict, too.
        changes_no_row: It only repairs the log, so that it begins again by itself if it was fenced.
    """

    slots: frozenset[Slot] = frozenset()
    all_slots: bool = False
    replaced_slots: bool = False
    rows_read: bool = False
    watched_domains: frozenset[str] = frozenset()
    log_order: bool = False
    no_pending_runs: bool = False
    leases: frozenset[str] = frozenset()
    changes_no_row: bool = False


@dataclass(frozen=True, slots=True)
class Proposal:
    """A commit as data, by subject.

    Attributes:
        operation: The kind of commit.
        commit_id: The writer's id of the commit: a retry with the same id changes nothing.
        base_version: The version on which it was prepared.
        files: Changes of data files.
        runs: Changes of pending runs and tombstones.
        log: Changes of the table's log.
        premises: What it depends on.
        app: The writer's own number, if it has one.
        definition: The table's new definition, if it changes.
        domains: New configurations of metadata domains; None removes one.
        metrics: Counts for the snapshot.
        notes: Sentences in the snapshot for people.
        parameters: Texts of the snapshot that say how it was made (`operationParameters`), by name.
    """

    operation: Operation
    commit_id: str
    base_version: int
    files: FileChanges = FileChanges()
    runs: RunChanges = RunChanges()
    log: LogChanges = LogChanges()
    premises: Premises = Premises()
    app: AppVersion | None = None
    definition: TableDefinition | None = None
    domains: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
