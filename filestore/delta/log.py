"""Reads the Delta log: any version as a `TableState`, and commits as snapshots (FORMAT.md section 2)."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pyarrow.parquet as pq

from filestore import layout
from filestore.delta.actions import LOG_OFFSET_APP, POSITION_APP, Action, decode
from filestore.delta.state import TableState, snapshot_of
from filestore.errors import Corrupt, NotFound
from filestore.model.snapshot import Snapshot
from filestore.storage.interface import Storage

__all__ = ["Commit", "DeltaLog", "show_time"]

Read = TypeVar("Read")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Commit:
    """One entry of the log: its version and actions."""

    version: int
    actions: tuple[Action, ...]

    @property
    def commit_id(self) -> str | None:
        """The id that our writer chose for the commit; None if a foreign writer made it."""
        for action in self.actions:
            if "commitInfo" in action:
                return action["commitInfo"].get("tablestore", {}).get("commitId")  # type: ignore[no-any-return]
        return None

    @property
    def timestamp_ms(self) -> int | None:
        """When it was committed; None if a foreign writer did not record it."""
        for action in self.actions:
            if "commitInfo" in action:
                return action["commitInfo"].get("inCommitTimestamp")  # type: ignore[no-any-return]
        return None

    @property
    def positions(self) -> dict[str, int]:
        """How far the writer had read each part of its input that the commit names (`AppVersion.positions`)."""
        named = (action["txn"] for action in self.actions if "txn" in action)
        return {
            t["appId"].removeprefix(POSITION_APP): t["version"] for t in named if t["appId"].startswith(POSITION_APP)
        }

    def snapshot(self) -> Snapshot:
        """Returns the commit as a snapshot, with the log offsets that it records itself (of all buckets or of none)."""
        offsets = {
            int(a["txn"]["appId"].removeprefix(LOG_OFFSET_APP)): a["txn"]["version"]
            for a in self.actions
            if "txn" in a and a["txn"]["appId"].startswith(LOG_OFFSET_APP)
        }
        return snapshot_of(self.version, self.actions, offsets)


class DeltaLog:
    """The Delta log of one table. It holds no state: callers keep the `TableState` that they know and pass it back."""

    def __init__(self, storage: Storage, location: str) -> None:
        self.storage = storage
        self.location = location

    def commit(self, version: int) -> Commit | None:
        """Reads the entry of a version; None if it does not exist (yet)."""
        try:
            data = self.storage.read(layout.join(self.location, layout.log_entry_path(version)))
        except NotFound:
            return None
        return Commit(version, self._actions(version, data))

    def _actions(self, version: int, data: bytes) -> tuple[Action, ...]:
        try:
            if actions := tuple(decode(data)):
                return actions
        except Corrupt as error:
            raise Corrupt(f"{layout.log_entry_path(version)} of {self.location}: {error}", code=error.code) from error
        raise Corrupt(f"{layout.log_entry_path(version)} of {self.location} is empty", code="bad-log-entry")

    def timestamp_ms(self, version: int) -> int | None:
        """Reads when a version was committed; None if it does not exist. This is cheaper than the whole entry."""
        try:
            data = self.storage.read(layout.join(self.location, layout.log_entry_path(version)))
        except NotFound:
            return None
        return Commit(version, self._actions(version, data.partition(b"\n")[0])).timestamp_ms

    def commits_after(self, version: int) -> Iterator[Commit]:
        """Yields the entries after a version, oldest first, up to the newest."""
        while (entry := self.commit(version + 1)) is not None:
            yield entry
            version += 1

    def is_table(self, table_id: str) -> bool:
        """Whether the table that is here now has that id."""
        try:
            return self.latest().table_id == table_id
        except NotFound:
            return False

    def latest(self, known: TableState | None = None) -> TableState:
        """Reads the newest version, and only the entries newer than `known`. `NotFound` if there is no table."""
        state = known if known is not None else self.read_consistently(lambda: self._replay(None))
        for entry in self.commits_after(state.version):
            state = state.next(entry.version, entry.actions)
        return state

    def oldest(self) -> TableState:
        """Reads the oldest version that the entries and checkpoints that are left still describe."""
        versions = self.versions()
        if versions[:1] == [0]:
            return self._from_first()
        whole = sorted(set(versions) & set(self.checkpoints()))
        if not whole:
            raise Corrupt(f"{self.location} has neither version 0 nor a checkpoint", code="version-gap")
        return self.checkpoint(whole[0])

    def at(self, version: int) -> TableState:
        """Reads the state of one version. `NotFound` says which versions there are."""
        versions = self.versions()
        listed = versions and 0 <= version <= versions[-1]
        if not listed and (version < 0 or self.commit(version) is None):  # a listing may be late
            have = f"versions {versions[0]} to {versions[-1]}" if versions else "no version"
            raise NotFound(f"{self.location} has no version {version}; it has {have}", code="no-such-version")
        return self._replay(version)

    def read_consistently(self, read: Callable[[], Read]) -> Read:
        """Reads several entries, and reads them again if some of them expired meanwhile."""
        while True:
            entries = set(self._entries())
            try:
                return read()
            except (NotFound, Corrupt):
                if set(self._entries()) == entries:
                    raise

    def version_at(self, timestamp_ms: int) -> int:
        """Returns the newest version committed at or before that time; `NotFound` if the table is younger.

        Timestamps grow strictly with versions, whatever the writers' clocks show, so a bisection finds it.
        """
        return self.read_consistently(lambda: self._version_at(timestamp_ms))

    def _version_at(self, timestamp_ms: int) -> int:
        versions = self.versions()
        found = bisect.bisect_right(versions, timestamp_ms, key=self._timestamp_ms)
        if not found and versions and versions[0] > 0:
            raise NotFound(
                f"the version of {self.location} at {show_time(timestamp_ms)} has expired; the oldest that is left is "
                f"{versions[0]}: take a later time",
                code="snapshot-expired",
            )
        if not found:
            raise NotFound(
                f"{self.location} did not exist at {show_time(timestamp_ms)}: take a later time", code="no-such-version"
            )
        return versions[found - 1]

    def version_to_follow(self, timestamp_ms: int) -> int:
        """Returns the version after which a reader follows to get all that was committed later than that time.

        For a time before the table's creation this is version 0, which holds no row: all changes are later.
        """
        try:
            return self.version_at(timestamp_ms)
        except NotFound:
            if self.versions()[:1] != [0]:
                raise  # older changes are gone: to begin with what is left would lose them silently
            return 0

    def _timestamp_ms(self, version: int) -> int:
        return int(self._required(version).snapshot().timestamp.timestamp() * 1000 + 0.5)

    def _required(self, version: int) -> Commit:
        entry = self.commit(version)
        if entry is None:
            raise Corrupt(f"{self.location} lacks the log entry of version {version}", code="version-gap")
        return entry

    def versions(self) -> list[int]:
        """Lists the versions whose entries exist, ascending."""
        return sorted(e.version for e in self._entries() if not e.checkpoint)

    def checkpoints(self) -> list[int]:
        """Lists the versions that have a checkpoint, ascending."""
        return sorted(e.version for e in self._entries() if e.checkpoint)

    def _entries(self) -> list[layout.LogEntryName]:
        names = self.storage.list_names(layout.join(self.location, layout.DELTA_LOG))
        return [e for name in names if (e := layout.parse_log_entry(name)) is not None]

    def _replay(self, version: int | None) -> TableState:
        entries = self._entries()
        if not entries:
            raise NotFound(f"there is no table at {self.location}", code="no-table")
        end = max(e.version for e in entries) if version is None else version
        checkpoint = max((e.version for e in entries if e.checkpoint and e.version <= end), default=None)
        state = self.checkpoint(checkpoint) if checkpoint is not None else self._from_first()
        while state.version < end:
            entry = self._required(state.version + 1)
            state = state.next(entry.version, entry.actions)
        return state

    def _from_first(self) -> TableState:
        return TableState.initial(0, self._required(0).actions)

    def checkpoint(self, version: int) -> TableState:
        """Reads the state that a checkpoint holds."""
        path = layout.join(self.location, layout.checkpoint_path(version))
        with self.storage.open_read(path) as source, source.part([(0, source.size)]) as part:
            rows = pq.read_table(part.file).to_pylist(maps_as_pydicts="strict")
        actions: list[Action] = [{k: v for k, v in row.items() if v is not None} for row in rows]
        info = [a for a in self._required(version).actions if "commitInfo" in a]
        return TableState.initial(version, [*actions, *info])


def show_time(timestamp_ms: int) -> str:
    """Formats a time for people; one that Python's calendar cannot represent stays a number."""
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp_ms)).isoformat()
    except OverflowError:
        return f"{timestamp_ms} ms since 1970"
