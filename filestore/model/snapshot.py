"""Snapshots (= Delta versions) as a user sees them, and as a reader of the log follows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from filestore.model.log_range import LogTransaction

__all__ = ["Operation", "Snapshot"]


class Operation(StrEnum):
    """What a commit did, as ``commitInfo.operation`` says it."""

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

    @property
    def changes_data(self) -> bool:
        """Whether readers of changes must look at it: False if it only moves rows, writes them anew or touches none."""
        return self not in (
            Operation.COMPACT,
            Operation.TAG,
            Operation.EXPIRE,
            Operation.ALTER,
            Operation.REPUBLISH,
        )

    @property
    def replaces_partitions(self) -> bool:
        """Whether partitions leave as a whole, so that a reader of changes takes them from files, not from the log."""
        return self in (Operation.OVERWRITE, Operation.DROP_PARTITION)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of a table.

    Attributes:
        version: Delta's version, from 0, without gaps.
        timestamp: When it was committed (UTC); never earlier than the version before.
        operation: What the commit did.
        commit_id: The writer's id of the commit: a retry finds its own commit by it.
        log_offsets: For each bucket the end offset of the log that this and all earlier versions cover.
        transactions: Where this commit's log records lie.
        republished: What took the place, for foreign readers, of log transactions that the log had lost, by their ids;
            None where nothing could.
        metrics: Counts: ``rows_written``, ``rows_deleted``, ``files_added``, ``files_removed``…
        notes: What whoever did this has to know, such as which readers a change of the schema shuts out.
    """

    version: int
    timestamp: datetime
    operation: Operation
    commit_id: str
    log_offsets: Mapping[int, int] = field(default_factory=dict)
    transactions: tuple[LogTransaction, ...] = ()
    republished: Mapping[str, LogTransaction | None] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
