"""`Lookups`: joins rows with the rows of one table, and keeps what it reads for later look-ups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.cache.columns import LookupCache
from filestore.cache.lru import Lru
from filestore.delta.log import show_time
from filestore.delta.state import TableState
from filestore.errors import NotFound
from filestore.lazily import pl
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.retention.rules import first_retained
from filestore.rows.frames import frame_of, polars_schema
from filestore.table import FileStore
from tablestore.lookup.kept_rows import KeptTables
from tablestore.lookup.matching import KeyIndex, Matches, result
from tablestore.lookup.request import LookupPlan
from tablestore.lookup.timeline import BEFORE, NO_TIME, VersionTimes, milliseconds_of
from tablestore.lookup.version_rows import VersionRows
from tablestore.reading.asked_keys import fitted_key
from tablestore.reading.keyed_rows import is_small

__all__ = ["Lookups", "Moment"]

Positions = npt.NDArray[np.int64]

_STATES = 8
_SEEN_S = 1.0
"""The longest time since a process asked which versions have expired: its tasks may be many and short."""
_PUTS = [str(kind) for kind in RowKind if kind.adds]
_KEPT = KeptTables()
"""The rows that this process keeps, whichever object looks them up: tasks that follow each other share them."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The version that look-ups read, and the newest one that is known.

    Attributes:
        state: The version; for event times the newest one that counts.
        newest: A version as new or newer. It says which versions have expired.
    """

    state: TableState
    newest: TableState


class Lookups:
    """The look-ups in one table. Threads may share it.

    All rows of a small table are in memory, within the process's limits (`KeptTables`). Large tables are looked up by
    key, with the columns that the table's cache keeps.

    Args:
        store: The table.
        cache: The cache of columns; None for that of the table.
    """

    def __init__(self, store: FileStore, cache: LookupCache | None = None) -> None:
        self._store = store
        self._cache = cache
        self._lock = Lock()
        self._states: Lru[TableState] = Lru()
        self._seen: tuple[TableState, float] | None = None
        self._times = VersionTimes(store)

    def moment(self, version: int) -> Moment:
        """Returns a version that was chosen before, for a task of a job: as `FileStore.state`, but it is read once.

        Raises:
            NotFound: ``snapshot-expired``, at most a second after the expiry.
        """
        newest = self._newest()
        state = self._state(version, newest)  # perhaps a newer one
        return Moment(state, max(state, newest, key=lambda one: one.version))

    def lookup(self, given: pa.Table, plan: LookupPlan, at: Moment, changes: pl.DataFrame | None = None) -> pa.Table:
        """Returns the rows with the matching rows of the table, in the order of the rows.

        Args:
            given: The rows.
            plan: The join, whose `LookupPlan.check` the rows have passed.
            at: The version that is read.
            changes: The changes of an eventual log beyond the version that win against it, one for each key.

        Raises:
            InvalidRequest: ``bad-value``: a value that does not fit its column.
            NotFound: ``snapshot-expired``: the version of a row's time has expired.
        """
        asked = [_asked(given, plan, name, key) for name, key in plan.on]
        if plan.at is None:
            return result(given, self._matches(plan, at.state, asked, changes), plan)
        empty = pl.DataFrame(schema=polars_schema(plan.wanted.to_arrow()))
        parts = self._by_time(plan, at, asked, milliseconds_of(given.column(plan.at)))
        return result(given, Matches.joined(list(parts), empty), plan)

    def _by_time(self, plan: LookupPlan, at: Moment, asked: list[pl.Series], times_ms: Positions) -> Iterator[Matches]:
        """Yields the matches of the rows of each version."""
        places = np.flatnonzero(times_ms != NO_TIME)
        if not len(places):
            return
        timeline = self._times.timeline(at.state, times_ms[places])
        versions = timeline.versions_at(times_ms[places])
        if (early := versions == BEFORE).any():
            if timeline.from_first:
                versions, places = versions[~early], places[~early]
            else:
                existed = ~early | (times_ms[places] >= at.state.created_ms)
                versions, places = versions[existed], places[existed]
        order = np.argsort(versions, kind="stable")
        versions, places = versions[order], places[order]
        for version in np.unique(versions).tolist():
            group = places[slice(*np.searchsorted(versions, [version, version + 1]))]
            some = [values.gather(group) for values in asked]
            matches = self._at_version(plan, at, version, some, int(times_ms[group].min())).only_matched()
            yield replace(matches, probes=group[matches.probes])

    def _at_version(self, plan: LookupPlan, at: Moment, version: int, asked: list[pl.Series], time_ms: int) -> Matches:
        try:
            if version == BEFORE:
                raise NotFound(
                    f"the version of {self._store.name} at {show_time(time_ms)} has expired: look rows of that "
                    "time up with expired='oldest', or keep old versions for longer (snapshot.time-retained)",
                    code="snapshot-expired",
                )
            return self._matches(plan, self._state(version, at.newest), asked)
        except NotFound as error:
            if not plan.oldest or error.code != "snapshot-expired":
                raise
        newest = self._store.state()
        oldest = min(first_retained(newest), at.state.version)
        return self._matches(plan, self._state(oldest, newest), asked)

    def _matches(
        self, plan: LookupPlan, state: TableState, asked: list[pl.Series], changes: pl.DataFrame | None = None
    ) -> Matches:
        files = self._store.table_files(state)
        version = VersionRows(files if self._cache is None else replace(files, cache=self._cache), state, plan)
        with self._store.reading(state.version):
            if is_small(state, plan.small_bytes):
                matches = _KEPT.rows_of(version).index.matches(asked)
            elif plan.by_key:
                matches = version.by_key(asked)
            else:
                keys = pl.DataFrame(asked).drop_nulls().unique()
                matches = KeyIndex(version.near(keys), plan.keys).matches(asked)
        return matches if changes is None else _changed(matches, version, changes, asked)

    def _newest(self) -> TableState:
        """Reads the newest version, or returns the one that it read less than a second ago."""
        now_s = self._store.ambient.monotonic_s()
        with self._lock:
            seen = self._seen
        if seen is not None and now_s - seen[1] < _SEEN_S:
            return seen[0]
        newest = self._store.state()
        with self._lock:
            self._seen = newest, now_s
        return newest

    def _state(self, version: int, newest: TableState) -> TableState:
        """Reads a version once. One that has expired since is refused as it is where it was never read."""
        now = self._store.ambient.now_ms()
        with self._lock:
            state = self._states.get(version, now)
        if state is not None:
            self._store.require_readable(version, newest)
            return state
        state = newest if version == newest.version else self._store.state(version)
        with self._lock:
            self._states.put(version, state, 1, now)
            self._states.shrink(_STATES, 0)
        return state


def _asked(given: pa.Table, plan: LookupPlan, name: str, key: str) -> pl.Series:
    """The values of a column of the rows, in the type of the table's column and with its name."""
    values = fitted_key(given.column(name), pa.field(name, plan.wanted.column(key).type))
    return frame_of(pa.table({key: values})).to_series()


def _changed(matches: Matches, version: VersionRows, changes: pl.DataFrame, asked: list[pl.Series]) -> Matches:
    """Puts changes of a log in the place of the rows of their keys."""
    plan, shaped = version.plan, version.shaped(changes)
    puts = shaped.filter(changes[KIND_COLUMN].is_in(_PUTS))
    left = matches.without(shaped.select(plan.primary_key))
    return Matches.joined([left, KeyIndex(puts, plan.keys).matches(asked)], puts.clear())
