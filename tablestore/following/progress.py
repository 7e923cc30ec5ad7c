"""The progress of readers of changes, as values for metrics and lists of consumers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from filestore.delta.log import Commit
from filestore.model.snapshot import Operation
from filestore.table import FileStore

__all__ = ["Lag", "Progress", "lags"]

_ROWS = ("rows_written", "rows_deleted")


@dataclass(frozen=True, slots=True)
class Lag:
    """The changes that a reader has still to read.

    Attributes:
        versions: The commits after its own, also those without rows.
        records: The rows that they add and delete; for a rollback the number of its log records.
        ms: How long ago the first of them was committed; 0 if there is none.
    """

    versions: int = 0
    records: int = 0
    ms: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """The changes that a reader has read.

    Attributes:
        version: The last version of which it has read all changes.
        records: The number of rows that it returned.
        first_row_ms: The time from its start to its first row; None before that.
        latency_ms: The time from the commit of the last version to the delivery of its last batch; None before
            the first. For a version that existed at the start it is its age. With ``log.consistency = eventual``
            it begins when the log got the batch's records.
        rescans: How many times it had to begin again from a snapshot (``on_log_gap = "rescan"``).
    """

    version: int
    records: int = 0
    first_row_ms: int | None = None
    latency_ms: int | None = None
    rescans: int = 0


def lags(filestore: FileStore, versions: set[int]) -> dict[int, Lag]:
    """Computes what readers at some versions have still to read. It reads each entry after the lowest version once.

    For a version whose entries have expired it counts the entries that are left.
    """
    if not versions:
        return {}
    now_ms, newest = filestore.ambient.now_ms(), filestore.state().version
    entries = list(_sizes(filestore, min(versions), newest))
    found = {}
    for version in versions:
        rest = [(records, ms) for at, records, ms in entries if at > version]
        age = max(0, now_ms - rest[0][1]) if rest else 0
        found[version] = Lag(max(0, newest - version), sum(records for records, _ in rest), age)
    return found


def _sizes(filestore: FileStore, after: int, newest: int) -> Iterator[tuple[int, int, int]]:
    """Yields each version's number, rows and time."""
    for version in range(after + 1, newest + 1):
        entry = filestore.delta_log.read_entry(version)
        if entry is not None:
            yield version, _records(entry), entry.timestamp_ms or 0


def _records(entry: Commit) -> int:
    snapshot = entry.snapshot()
    if snapshot.operation is Operation.ROLLBACK:
        return sum(r.count for t in snapshot.transactions for r in t.ranges)
    if not snapshot.operation.changes_data or snapshot.operation is Operation.FOLD:
        return 0
    return sum(snapshot.metrics.get(name, 0) for name in _ROWS)
