"""Reads the Delta log: any version as a `TableState`, and commits as snapshots (FORMAT.md section 2)."""

from __future__ import annotations

import bisect
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from filestore import layout
from filestore.decoding import well_formed
from filestore.delta.actions import LOG_OFFSET_APP, POSITION_APP, Action
from filestore.delta.checkpoint_files import CheckpointFiles, LogListing
from filestore.delta.checkpoint_reading import checkpoint_state, read_checkpoint
from filestore.delta.entry import decode, decode_first
from filestore.delta.state import TableState, log_begins, snapshot_of
from filestore.errors import Corrupt, NotFound, Unsupported
from filestore.model.snapshot import Snapshot
from filestore.storage.interface import Storage

__all__ = ["Commit", "DeltaLog", "show_time"]

logger = logging.getLogger(__name__)

Read = TypeVar("Read")
_TOGETHER = 32
"""The greatest number of entries that are read concurrently."""

_BYTES_TOGETHER = 16 << 20
"""The bytes of entries to read concurrently, once the first ones show how large they are: a load may have 24 MB."""

_NEAR = 128
"""The number of versions before one among which its checkpoint is looked for: one is due after 100."""

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
    def fenced_files(self) -> tuple[str, ...]:
        """The files that no later commit may name, since they were about to be removed as orphans."""
        for action in self.actions:
            if "commitInfo" in action:
                return tuple(action["commitInfo"].get("tablestore", {}).get("fencedFiles", ()))
        return ()

    @property
    def timestamp_ms(self) -> int | None:
        """The time of the commit; None if a foreign writer did not record it."""
        for action in self.actions:
            if "commitInfo" in action:
                return action["commitInfo"].get("inCommitTimestamp")  # type: ignore[no-any-return]
        return None

    @property
    def begins_log(self) -> bool:
        """True if the table's log begins anew with this version (log/table/PROTOCOL.md section 8.4)."""
        domains = (action["domainMetadata"] for action in self.actions if "domainMetadata" in action)
        return log_begins({d["domain"]: d["configuration"] for d in domains if not d["removed"]}) == self.version

    @property
    def positions(self) -> dict[str, int]:
        """The positions up to which the writer had read the parts of its input, by part (`AppVersion.positions`)."""
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
    """The Delta log of one table. It holds no state: callers keep the `TableState` that they know and pass it back.

    Args:
        storage: The storage of the table.
        location: The table's root folder.
        name: The name of the table in errors that are not about a file; its location if None.
    """

    def __init__(self, storage: Storage, location: str, name: str | None = None) -> None:
        self.storage = storage
        self.location = location
        self.name = name or location

    def read_entry(self, version: int) -> Commit | None:
        """Reads the entry of a version; None if it does not exist (yet)."""
        return self.read_entries([version])[0]

    def read_entries(self, versions: Sequence[int]) -> list[Commit | None]:
        """Reads the entries of several versions, side by side where that is faster; None for each that does not exist.

        They are read in any order: that one exists says nothing of the time when another one did not exist.
        """
        found = zip(versions, self._contents(versions), strict=True)
        return [None if data is None else Commit(version, self._actions(version, data)) for version, data in found]

    def _contents(self, versions: Sequence[int]) -> Sequence[bytes | None]:
        return self.storage.read_each([layout.join(self.location, layout.log_entry_path(v)) for v in versions])

    def _actions(self, version: int, data: bytes, read: Callable[[bytes], list[Action]] = decode) -> tuple[Action, ...]:
        path = layout.join(self.location, layout.log_entry_path(version))
        with well_formed(f"the log entry {path}", code="bad-log-entry"):
            if actions := tuple(read(data)):
                return actions
            raise ValueError("it is empty")

    def timestamp_ms(self, version: int) -> int | None:
        """Reads when a version was committed; None if it does not exist. This is cheaper than the whole entry."""
        try:
            data = self.storage.read(layout.join(self.location, layout.log_entry_path(version)))
        except NotFound:
            return None
        return Commit(version, self._actions(version, data, decode_first)).timestamp_ms

    def read_next(self, version: int) -> tuple[Commit | None, Commit | None]:
        """Reads the entry of a version, of which only its first action, and the next entry, side by side."""
        paths = [layout.join(self.location, layout.log_entry_path(number)) for number in (version, version + 1)]
        own, later = self.storage.read_each(paths)
        return (
            None if own is None else Commit(version, self._actions(version, own, decode_first)),
            None if later is None else Commit(version + 1, self._actions(version + 1, later)),
        )

    def read_entries_after(self, version: int) -> Iterator[Commit]:
        """Yields the entries after a version, oldest first, up to the newest.

        It reads as many entries side by side as it has found before, so it asks for no more entries that do not exist
        than for those that do.
        """
        first = version + 1
        while True:
            together = min(max(1, version + 1 - first), _TOGETHER)
            for entry in self.read_entries(range(version + 1, version + 1 + together)):
                if entry is None:
                    return
                yield entry
            version += together

    def is_table(self, table_id: str) -> bool:
        """Returns whether the table that is here now has that id."""
        try:
            return self.latest().table_id == table_id
        except NotFound:
            return False

    def latest(self, known: TableState | None = None) -> TableState:
        """Reads the newest version, and only the entries newer than `known`. `NotFound` if there is no table."""
        state = known if known is not None else self._newest_listed()
        for entry in self.read_entries_after(state.version):
            state = state.next(entry.version, entry.actions)
        return state

    def _newest_listed(self) -> TableState:
        """Reads the newest version that a listing shows. It lists only what follows the last known checkpoint."""
        known = self.last_checkpoint()
        return self.read_consistently(lambda listing: self._replay(None, listing), since=known)

    def last_checkpoint(self) -> int | None:
        """Returns the version of a checkpoint, usually the newest (Delta protocol, "Last Checkpoint File").

        None if the file is missing or damaged: it only makes reading faster.
        """
        [data] = self.storage.read_each([layout.join(self.location, layout.LAST_CHECKPOINT)])
        if data is None:
            return None
        try:
            found = json.loads(data)["version"]
        except (ValueError, KeyError, TypeError):
            return None
        return found if isinstance(found, int) and found >= 0 else None

    def oldest(self) -> TableState:
        """Reads the oldest version that the entries and checkpoints that are left still describe."""
        listing = self.listing()
        if 0 in listing.entries:
            return self._from_first()
        whole = [version for version in listing.checkpoints if version in listing.entries]
        if not whole:
            raise Corrupt(
                f"{self.location} has neither version 0 nor a checkpoint: restore its _delta_log from a backup",
                code="version-gap",
            )
        return self._first_whole(listing.complete[whole[0]])

    def at(self, version: int) -> TableState:
        """Reads the state of one version. `NotFound` says which versions there are."""
        near = self._listing_near(version)
        if version in near.entries and near.complete:
            try:
                return self._replay(version, near)
            except (NotFound, Corrupt):
                pass  # an older checkpoint may be whole, or the error says what there is
        listing = self.listing()
        versions = listing.versions
        listed = versions and 0 <= version <= versions[-1]
        if not listed and (version < 0 or self.read_entry(version) is None):  # a listing may be late
            have = f"versions {versions[0]} to {versions[-1]}" if versions else "no version"
            raise NotFound(f"{self.name} has no version {version}; it has {have}", code="no-such-version")
        return self._replay(version, listing)

    def read_consistently(self, read: Callable[[LogListing], Read], since: int | None = None) -> Read:
        """Reads several entries, and reads them again if some of them expired meanwhile.

        Args:
            read: Gets the names of the entries and checkpoints that exist.
            since: A version that may have a checkpoint: if it has one, older names are left out.
        """
        listing = self.listing(since)
        while True:
            try:
                return read(listing)
            except (NotFound, Corrupt):
                before, listing = listing, self.listing()
                if listing == before:
                    raise

    def version_at(self, timestamp_ms: int) -> int:
        """Returns the newest version committed at or before that time; `NotFound` if the table is younger.

        Timestamps grow strictly with versions, whatever the writers' clocks show, so a bisection finds it.
        """
        return self.read_consistently(lambda listing: self._version_at(timestamp_ms, listing.versions))

    def _version_at(self, timestamp_ms: int, versions: Sequence[int]) -> int:
        found = bisect.bisect_right(versions, timestamp_ms, key=self._timestamp_ms)
        if not found and versions and versions[0] > 0:
            raise NotFound(
                f"the version of {self.name} at {show_time(timestamp_ms)} has expired; the oldest that is left is "
                f"{versions[0]}: take a later time",
                code="snapshot-expired",
            )
        if not found:
            raise NotFound(
                f"{self.name} did not exist at {show_time(timestamp_ms)}: take a later time", code="no-such-version"
            )
        return versions[found - 1]

    def version_before(self, timestamp_ms: int) -> int:
        """Returns the newest version committed before that time: what was committed then or later follows it.

        For a time before the table's creation this is version 0, which holds no row: all changes are later.
        """
        try:
            return self.version_at(timestamp_ms - 1)
        except NotFound:
            if self.versions()[:1] != [0]:
                raise  # older changes are gone: to begin with what is left would lose them silently
            return 0

    def _timestamp_ms(self, version: int) -> int:
        [entry] = self.required([version])
        return entry.snapshot().timestamp_ms

    def required(self, versions: Sequence[int], first: int = _TOGETHER) -> Iterator[Commit]:
        """Yields the entries of versions, of which it reads several side by side: large ones one by one.

        Args:
            versions: The versions, in the order in which to yield them.
            first: How many it reads before it knows how large they are.

        Raises:
            Corrupt: ``version-gap``: one of them does not exist.
        """
        start, together = 0, first
        while some := versions[start : start + together]:
            contents = self._contents(some)
            size = sum(len(data) for data in contents if data is not None)
            start, together = start + len(some), max(1, min(_TOGETHER, len(some) * _BYTES_TOGETHER // max(1, size)))
            for version, data in zip(some, contents, strict=True):
                if data is None:
                    raise Corrupt(
                        f"{self.location} lacks the log entry of version {version}, which later versions need: restore "
                        f"{layout.log_entry_path(version)} from a backup",
                        code="version-gap",
                    )
                yield Commit(version, self._actions(version, data))

    def versions(self) -> list[int]:
        """Lists the versions whose entries exist, ascending."""
        return self.listed()[0]

    def checkpoints(self) -> list[int]:
        """Lists the versions that have a checkpoint, ascending."""
        return self.listed()[1]

    def listed(self) -> tuple[list[int], list[int]]:
        """Lists the versions whose entries exist, and those that have a checkpoint, each ascending."""
        listing = self.listing()
        return listing.versions, listing.checkpoints

    def _listing_near(self, version: int) -> LogListing:
        """Lists a version and those before it, of which one has a checkpoint unless writers died: not 10,000 others."""
        first, behind = layout.names_since(max(0, version - _NEAR)), layout.names_since(version + 1)
        names = self.storage.list_names(layout.join(self.location, layout.DELTA_LOG), first)
        return LogListing.of(name for name in names if name < behind)

    def listing(self, since: int | None = None) -> LogListing:
        """Lists entries and checkpoints; only those from `since` on, if that version has a checkpoint."""
        folder = layout.join(self.location, layout.DELTA_LOG)
        after = "" if since is None else layout.names_since(since)
        found = LogListing.of(self.storage.list_names(folder, after))
        return found if since is None or since in found.complete else self.listing()

    def _replay(self, version: int | None, listing: LogListing) -> TableState:
        there = [*listing.versions, *listing.checkpoints]
        if not there:
            raise NotFound(f"there is no table at {self.location}", code="no-table")
        end = max(there) if version is None else version
        state = self._first_whole(listing.until(end), first=0 in listing.entries)
        for entry in self.required(range(state.version + 1, end + 1)):
            state = state.next(entry.version, entry.actions)
        return state

    def _first_whole(self, checkpoints: Sequence[CheckpointFiles], *, first: bool = False) -> TableState:
        """Reads the first of some checkpoints that is not damaged: with the entries since each gives the same state.

        Args:
            checkpoints: The checkpoints, newest first.
            first: Whether version 0 is left, which needs none.
        """
        for number, files in enumerate(checkpoints, 1):
            try:
                return self.read_checkpoint(files)
            except (Corrupt, Unsupported) as error:  # the latter also by damage in the name of a feature
                if number == len(checkpoints) and not first:
                    raise
                logger.warning("another checkpoint or older entries are read instead of a checkpoint: %s", error)
        return self._from_first()

    def _from_first(self) -> TableState:
        [entry] = self.required([0])
        return TableState.initial(0, entry.actions)

    def replayed(self, version: int) -> TableState:
        """Reads a version as its entries say, from an older checkpoint on: its own ones are not looked at."""
        return self._replay(version, self.listing().without_checkpoints(version))

    def checkpoint(self, version: int) -> TableState:
        """Reads the state that a version's checkpoint holds, of several that of the first one that is not damaged.

        Raises:
            Corrupt: ``bad-delta-checkpoint``.
            NotFound: it has none.
        """
        if files := self.listing(since=version).complete.get(version):
            return self._first_whole(files)
        raise NotFound(f"version {version} of {self.name} has no checkpoint")

    def read_checkpoint(self, files: CheckpointFiles) -> TableState:
        """Reads the state that a checkpoint holds.

        Raises:
            Corrupt: ``bad-delta-checkpoint``: it is damaged, or another table's.
            NotFound: it is gone.
        """
        content = read_checkpoint(self.storage, self.location, files)
        [entry] = self.required([files.version])
        return checkpoint_state(content, files.version, entry.actions)


def show_time(timestamp_ms: int) -> str:
    """Formats a time for people; one that Python's calendar cannot represent stays a number."""
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp_ms)).isoformat()
    except OverflowError:
        return f"{timestamp_ms} ms since 1970"
