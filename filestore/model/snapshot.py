"""Snapshots: the versions of a table as users and readers of the log see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from filestore.model.log_range import LogTransaction

__all__ = ["Operation", "Snapshot"]


class Operation(StrEnum):
    """The operation of a commit, as stored in ``commitInfo.operation``."""

    CREATE = "CREATE TABLE"
    WRITE = "WRITE"
    OVERWRITE = "OVERWRITE"
    DROP_PARTITION = "DROP PARTITION"
    COMPACT = "COMPACT"
    FOLD = "FOLD"
    ROLLBACK = "ROLLBACK"
    TAG = "TAG"
    EXPIRE = "EXPIRE"
    ALTER = "ALTER TABLE"
    REPUBLISH = "REPUBLISH"
    FENCE = "FENCE"

    @property
    def changes_data(self) -> bool:
        """Returns whether readers of changes need it: not if it only moves or rewrites rows, or touches none."""
        return self not in (
            Operation.COMPACT,
            Operation.TAG,
            Operation.EXPIRE,
            Operation.ALTER,
            Operation.REPUBLISH,
            Operation.FENCE,
        )

    @property
    def replaces_partitions(self) -> bool:
        """Returns whether whole partitions are replaced, so that a reader of changes reads their files, not the log."""
        return self in (Operation.OVERWRITE, Operation.DROP_PARTITION)


@dataclass(frozen=True, slots=True, repr=False)
class Snapshot:
    """One version of a table.

    Attributes:
        version: Delta's version, from 0, without gaps.
        timestamp: When it was committed (UTC); never earlier than the version before.
        operation: What the commit did.
        commit_id: The writer's id of the commit, by which a retry finds its own commit.
        log_offsets: For each bucket the end offset of the log that this and all earlier versions cover.
        transactions: The commit's transactions in the log.
        republished: The log transactions that replace, for other consumers, those that the log had lost, by their ids;
            None where no replacement was possible.
        fenced: The ids of commits of others that are refused from this version on, since their writers were given up.
        restores: The version whose files an overwrite has restored (`filestore/FORMAT.md` section 14.10); None for all
            other commits.
        unread: The rows that left the table could not be read, so the commit has no change data.
        metrics: Counts: ``rows_written``, ``rows_deleted``, ``files_added``, ``files_removed``…
        parameters: ``partitions`` that an overwrite replaces, if these are not all, as JSON; how a maintained view was
            refreshed (``refresh``).
        read_version: The version on which the commit follows; None for the first.
        notes: Notes for the user, such as which readers cannot read the table after a change of its schema.
    """

    version: int
    timestamp: datetime
    operation: Operation
    commit_id: str
    log_offsets: Mapping[int, int] = field(default_factory=dict)
    transactions: tuple[LogTransaction, ...] = ()
    republished: Mapping[str, LogTransaction | None] = field(default_factory=dict)
    fenced: tuple[str, ...] = ()
    restores: int | None = None
    unread: bool = False
    metrics: Mapping[str, int] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    read_version: int | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        counts = {name: count for name, count in self.metrics.items() if count}
        when = f"{self.timestamp:%Y-%m-%d %H:%M:%S %Z}"
        return f"Snapshot(version={self.version}, {self.operation}, {when}, metrics={counts})"

    @property
    def restores_files(self) -> bool:
        """Returns whether its files are those of an older version, and were written with that one's columns."""
        return self.operation is Operation.ROLLBACK or self.restores is not None

    @property
    def timestamp_ms(self) -> int:
        """The time of the commit in milliseconds since 1970 UTC, as the Delta log has it."""
        return int(self.timestamp.timestamp() * 1000 + 0.5)
