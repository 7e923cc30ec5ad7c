"""Keeps all rows of small tables in memory, and moves them from version to version by what changed between these."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import chain
from threading import Lock

from filestore.cache.lru import Lru
from filestore.delta.state import TableState
from filestore.errors import NotFound
from filestore.lazily import pl
from filestore.reading.difference import VersionPair, differences
from filestore.sorting.runs import local_runs
from tablestore.lookup.matching import KeyIndex
from tablestore.lookup.version_rows import VersionRows
from tablestore.reading.version_changes import Changes

__all__ = ["KeptRows", "KeptTables"]

_MEMORY = 256 << 20
_LOCKS = 16


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The rows of a version, with an index by the columns of a look-up join.

    Attributes:
        version: The version and its files.
        index: The rows.
    """

    version: VersionRows
    index: KeyIndex

    @property
    def state(self) -> TableState:
        """The state of the version."""
        return self.version.state

    @classmethod
    def read(cls, version: VersionRows) -> KeptRows:
        """Reads all rows of a version."""
        return cls(version, KeyIndex(version.all(), version.plan.keys))

    def moved(self, to: VersionRows) -> KeptRows | None:
        """Returns the rows of another version, earlier or later; None if it is cheaper to read them.

        It reads what changed between both versions. Without a primary key changes do not say which rows they change.
        """
        plan = to.plan
        keys = (self.state.definition.primary_key, to.state.definition.primary_key)
        if not plan.primary_key or keys != (plan.primary_key, plan.primary_key):
            return None
        if self.version.columns.keys() != to.columns.keys():  # to drop a column changes no file
            return None
        changes = Changes(
            VersionPair(self.version.table, to.table, plan.wanted), tuple(differences(self.state, to.state))
        )
        if sum(slot.most_rows for slot in changes.slots) > self.index.rows.height // 2:
            return None
        pieces = list(changes.pieces(local_runs))
        if not pieces:
            return KeptRows(to, self.index)
        key = list(plan.primary_key)
        gone = pl.concat(chain.from_iterable((piece.now.select(key), piece.gone) for piece in pieces))
        stay = self.index.rows.join(gone, on=key, how="anti", maintain_order="left")
        return KeptRows(to, KeyIndex(pl.concat([stay, *(piece.now for piece in pieces)]), plan.keys))


class KeptTables:
    """The rows of small tables that a process keeps: at most about 256 MB, those that were used last.

    Threads share it. Of two that need the same rows one reads, and the other waits for it.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._reading = [Lock() for _ in range(_LOCKS)]
        self._kept: Lru[KeptRows] = Lru()

    def rows_of(self, version: VersionRows) -> KeptRows:
        """Returns all rows of a version: kept ones, those of another version after their changes, or read ones.

        Raises:
            NotFound: a file of the version was removed, after the version expired.
        """
        plan, state = version.plan, version.state
        # the location, since a table may be copied, and the time, since it may be restored
        kind = (state.table_id, version.table.location, plan.wanted, plan.keys)
        now_ms = version.table.ambient.now_ms()
        with self._reading[hash(kind) % _LOCKS]:
            with self._lock:
                kept = self._kept.get((kind, state.version, state.timestamp_ms), now_ms)
            if kept is None:
                kept = self._moved(kind, version) or KeptRows.read(version)
                with self._lock:
                    self._kept.put((kind, state.version, state.timestamp_ms), kept, kept.index.nbytes, now_ms)
                    self._kept.shrink(max(_MEMORY, kept.index.nbytes), 0)
        return kept

    def _moved(self, kind: Hashable, version: VersionRows) -> KeptRows | None:
        """Moves the rows of the nearest version that is kept; None if there is none, or if it is no help."""
        with self._lock:
            held = [
                kept for key, kept in self._kept.items() if key == (kind, kept.state.version, kept.state.timestamp_ms)
            ]
        if not held:
            return None
        nearest = min(held, key=lambda kept: abs(kept.state.version - version.state.version))
        try:
            return nearest.moved(version)
        except NotFound:
            return None  # files of the other version were removed after it expired
