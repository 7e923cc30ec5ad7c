"""The versions of a table by the times of their commits: which version a row of some time meets.

A version is in force from its in-commit timestamp on, until that of the next one. These timestamps grow with the
versions, whatever the writers' clocks show.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.delta.state import TableState
from filestore.table import FileStore

__all__ = ["BEFORE", "NO_TIME", "Timeline", "VersionTimes", "milliseconds_of"]

Integers = npt.NDArray[np.int64]

BEFORE = -1
"""Stands for the version of a time before all versions of a timeline."""
NO_TIME = np.iinfo(np.int64).min
"""Stands for a null among times."""
_MOST_KNOWN = 1 << 16
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class Timeline:
    """Some versions that follow each other in a table, ascending.

    Attributes:
        versions: The versions.
        times_ms: When each was committed, in milliseconds since 1970 UTC.
        from_first: Whether the first of them is version 0, so that the table did not exist before it.
    """

    versions: Integers
    times_ms: Integers
    from_first: bool

    def versions_at(self, times_ms: Integers) -> Integers:
        """Returns the newest version that was committed at or before each time; `BEFORE` if there is none. Pure."""
        place = np.searchsorted(self.times_ms, times_ms, side="right") - 1
        found = self.versions[np.maximum(place, 0)] if len(self.versions) else np.zeros(len(times_ms), np.int64)
        return np.where(place < 0, BEFORE, found)


def milliseconds_of(column: pa.ChunkedArray) -> Integers:
    """Returns times in milliseconds since 1970 UTC, rounded down; `NO_TIME` for nulls. Times without a zone are UTC."""
    if pa.types.is_null(column.type):
        return np.full(len(column), NO_TIME)
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], column.type)
    ticks = np.asarray(whole.view(pa.int64()).fill_null(0))
    per_second = _PER_SECOND[column.type.unit]
    found = ticks // (per_second // 1_000) if per_second >= 1_000 else ticks * 1_000
    return np.where(np.asarray(whole.is_null()), NO_TIME, found)


@dataclass
class VersionTimes:
    """Reads the times of a table's commits, and keeps them: a commit's time never changes.

    Attributes:
        store: The table.
    """

    store: FileStore
    _known: dict[int, int] = field(default_factory=dict)

    def timeline(self, newest: TableState, times_ms: Integers) -> Timeline:
        """Returns the versions up to `newest` that some times mean: it reads no entries of older or of later ones.

        Args:
            newest: The last version that counts.
            times_ms: At least one time; none is `NO_TIME`.

        Raises:
            Corrupt: ``version-gap``.
        """
        return self.store.delta_log.read_consistently(
            lambda listing: self._timeline(newest, times_ms, listing.versions)
        )

    def _timeline(self, newest: TableState, times_ms: Integers, listed: list[int]) -> Timeline:
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        self._known[newest.version] = newest.timestamp_ms
        versions = [*(version for version in listed if version < newest.version), newest.version]
        first = bisect.bisect_right(versions, int(times_ms.min()), key=self._time)
        last = bisect.bisect_right(versions, int(times_ms.max()), key=self._time)
        wanted = versions[max(first - 1, 0) : max(last, 1)]
        self._read(wanted)
        times = np.array([self._known[version] for version in wanted])
        return Timeline(np.array(wanted), times, from_first=wanted[0] == 0)

    def _time(self, version: int) -> int:
        self._read([version])
        return self._known[version]

    def _read(self, versions: list[int]) -> None:
        for entry in self.store.delta_log.required([v for v in versions if v not in self._known]):
            self._known[entry.version] = entry.snapshot().timestamp_ms
