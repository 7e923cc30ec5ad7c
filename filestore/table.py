"""`FileStore`: one table as files. It is the entry point of this package."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import pyarrow as pa

from filestore.ambient import Ambient
from filestore.beside import awaited
from filestore.cache.columns import CacheLimits, LookupCache
from filestore.commit.create import create
from filestore.commit.held import publish_claimed, publish_where_held
from filestore.commit.loop import Committed, Rebaser, base_expired, commit_version, log_begun
from filestore.commit.new_files import explained
from filestore.commit.proposal import Proposal
from filestore.commit.protocol import Begin, Observer, commit_operation, metadata_only
from filestore.decoding import is_undecodable
from filestore.delta.checkpoint import is_due, write_checkpoint
from filestore.delta.columns import ColumnFiles
from filestore.delta.log import Commit, DeltaLog, show_time
from filestore.delta.state import TableState
from filestore.errors import Conflict, Corrupt, NotFound, TableStoreError
from filestore.files.writer import TableFiles
from filestore.forks import require_threads
from filestore.leases.interface import WriterLeases
from filestore.leases.opening import leases_of
from filestore.model.definition import TableDefinition
from filestore.model.snapshot import Snapshot
from filestore.retention.holds import holds
from filestore.retention.rules import expired, is_retained
from filestore.storage.interface import Storage

__all__ = ["FileStore"]

logger = logging.getLogger(__name__)


class FileStore:
    """A table's files and versions. It is cheap to create; it caches the newest state and reads only newer entries.

    Args:
        storage: The storage of the table.
        location: The table's root folder: a path, or a URL that the storage serves.
        ambient: Clock, ids, chance.
        name: The name of the table in errors that are not about a file; its location if None.

    Attributes:
        leases: The leases of the table's writers, with what was seen of them.
    """

    def __init__(self, storage: Storage, location: str, ambient: Ambient, name: str | None = None) -> None:
        self.storage = storage
        self.location = location.rstrip("/")
        self.ambient = ambient
        self.delta_log = DeltaLog(storage, self.location, name)
        self._known: TableState | None = None
        self._columns: tuple[ColumnFiles, TableState] | None = None
        self._packing = False
        self._cache: LookupCache | None = None
        self.leases: WriterLeases = leases_of(storage, self.location, ambient, self._lease_timeout_s)

    def _lease_timeout_s(self) -> float:
        known = self._known or self.state()
        return known.definition.options.milliseconds("log.lease-timeout") / 1000

    @property
    def name(self) -> str:
        """The name of the table in errors."""
        return self.delta_log.name

    def __reduce__(self) -> tuple[type[FileStore], tuple[Storage, str, Ambient, str]]:
        """Pickles only storage, location, ambient and name: another process has caches of its own."""
        return FileStore, (self.storage, self.location, self.ambient, self.name)

    def twin(self) -> FileStore:
        """Returns a second one, for another thread. It begins with the newest version that this one has cached."""
        second = FileStore(self.storage, self.location, self.ambient, self.name)
        second._known, second.leases = self._known, self.leases
        return second

    @classmethod
    def create(
        cls,
        storage: Storage,
        location: str,
        definition: TableDefinition,
        table_id: str,
        ambient: Ambient,
        log_identity: Mapping[str, str] | None = None,
    ) -> FileStore:
        """Creates the table (version 0). It is idempotent for one `table_id`; `AlreadyExists` if there is another."""
        store = cls(storage, location, ambient)
        store._known = create(store.delta_log, definition, table_id, log_identity, ambient)
        return store

    @classmethod
    def open(cls, storage: Storage, location: str, ambient: Ambient) -> FileStore:
        """Opens an existing table; `NotFound` if there is none."""
        store = cls(storage, location, ambient)
        store.state()
        return store

    def state(self, version: int | None = None) -> TableState:
        """Reads the newest version, or a given one. `NotFound` (``table-replaced``) if another table took its place."""
        packed = self._columns is not None
        newest = self._known = self._with_columns(self._newest(self._known))
        if packed:
            _give_back_memory()
        if not (self._packing or newest.files.lean):
            self._packing = True
            self.ambient.beside(f"{self.location} in memory, {id(self)}", self._pack)
        if version is None or version == newest.version:
            return newest
        self.require_readable(version, newest)
        try:
            return self.delta_log.at(version)
        except (NotFound, Corrupt):
            self.require_readable(version, self._newest(newest))  # it may have expired while it was read
            raise

    def _with_columns(self, newest: TableState) -> TableState:
        """Takes up the columns that were made beside."""
        if (made := self._columns) is None:
            return newest
        self._columns = None
        return newest.with_columns(*made)

    @property
    def known(self) -> TableState:
        """The newest version that this process has read, without another look."""
        return self._known or self.state()

    def decided(self) -> TableState:
        """Reads the newest version, and fails where `state` may pass over one that was decided before the call.

        Where a database holds the commits, `state` does not see a version that is claimed and not published while the
        database does not answer. A reader may do without it. Whoever ends, aborts or removes something because no
        version names it may not.

        Raises:
            Unavailable: the database or the store does not answer.
            Unsupported: ``catalog-commits``: this process does not have the database.
        """
        if self.known.catalog_commits:
            publish_claimed(self.storage, self.location)
        return self.state()

    def require_readable(self, version: int, newest: TableState) -> None:
        """Refuses a version that no reader may read, though its metadata may be known.

        Raises:
            NotFound: ``snapshot-expired``.
        """
        if not 0 <= version < newest.version or is_retained(newest, version):
            return
        held = holds(self.storage, self.location, newest, self.ambient.now_ms())
        if not any(hold.version <= version for hold in held):
            raise expired(self.name, version, newest)

    def _newest(self, known: TableState | None) -> TableState:
        newest = self.delta_log.latest(known)
        # this check is last: a table that was created later under the same name has versions of the same numbers
        if known is None or self.delta_log.timestamp_ms(known.version) == known.timestamp_ms:
            return newest
        if self.delta_log.is_table(known.table_id):
            return self.delta_log.latest()  # the cached version has expired
        raise NotFound(
            f"the table {self.name} was dropped, or dropped and made again, since it was opened: open it again",
            code="table-replaced",
        )

    @contextmanager
    def reading(self, version: int) -> Iterator[None]:
        """Surrounds the reading of a version's files: a file that is missing because of an expiry becomes that error.

        Raises:
            NotFound: ``snapshot-expired``.
            Unsupported: ``forked-process``.
        """
        require_threads()
        try:
            yield
        except (NotFound, Corrupt):
            self.require_readable(version, self.state())
            raise

    @contextmanager
    def preparing(self, base: TableState) -> Iterator[None]:
        """Surrounds work on a version's files that will be committed, as `reading` surrounds the reading.

        Raises:
            Conflict: ``base-expired``: a file is missing since the version expired; ``file-removed``: since it was
                removed as an orphan; ``metadata-changed``: a new log has begun. Begin again on the newest version.
        """
        try:
            with explained(self.delta_log, base.version):
                yield
        except (NotFound, Corrupt) as error:
            newest = self.state()
            if not is_retained(newest, base.version):
                raise base_expired(self.delta_log, base.version) from error
            if newest.log.begins != base.log.begins:
                raise log_begun(newest.log.begins, base.version) from error
            raise

    def version_at(self, timestamp_ms: int) -> int:
        """Returns the newest version committed at or before that time.

        Raises:
            NotFound: ``no-such-version``: the table is younger, or that time is in the future, so that more versions
                may be committed before it; ``snapshot-expired``.
        """
        self._require_past(timestamp_ms)
        return self.delta_log.version_at(timestamp_ms)

    def version_before(self, timestamp_ms: int) -> int:
        """Returns the version after which a reader follows to get all that was committed at that time or later.

        Errors are those of `version_at`.
        """
        self._require_past(timestamp_ms - 1)
        return self.delta_log.version_before(timestamp_ms)

    def _require_past(self, timestamp_ms: int) -> None:
        if timestamp_ms <= self.ambient.now_ms():
            return
        newest = self.state()
        if timestamp_ms > newest.timestamp_ms:  # a writer with a faster clock may have committed a later version
            raise NotFound(
                f"{show_time(timestamp_ms)} is in the future: the newest version of {self.name} is "
                f"{newest.version}, of {show_time(newest.timestamp_ms)}; take an earlier time, "
                "or none for the newest version",
                code="no-such-version",
            )

    def snapshots(self, limit: int | None = None, before: int | None = None) -> list[Snapshot]:
        """Lists the snapshots that can be read, newest first: at most `limit`, all older than version `before`.

        Raises:
            Unavailable: also where a database holds the commits and does not answer: whoever looks for a commit whose
                outcome is unknown must not read that there is none.
        """
        publish_where_held(self.storage)
        newest = self.state()
        readable = (v for v in range(newest.version, -1, -1) if is_retained(newest, v))
        wanted = itertools.islice((v for v in readable if before is None or v < before), limit)
        return [self.snapshot(v) for v in wanted]

    def snapshot(self, version: int) -> Snapshot:
        """Reads the snapshot of a version."""
        return self.required(version).snapshot()

    def required(self, version: int) -> Commit:
        """Reads the Delta log's entry of a version; `NotFound` if it does not exist."""
        entry = self.delta_log.read_entry(version)
        if entry is None and 0 <= version < (newest := self.state()).version:
            raise expired(self.name, version, newest)
        if entry is None:
            raise NotFound(f"{self.name} has no version {version}", code="no-such-version")
        return entry

    def definition(self, version: int) -> TableDefinition:
        """Reads the definition of a version, retained or not, as long as the version's log entry exists."""
        newest = self.state()
        if version == newest.version:
            return newest.definition
        try:
            return self.delta_log.at(version).definition
        except (NotFound, Corrupt):
            self.require_readable(version, self.state())  # an expiry may have removed the entries that are needed
            raise

    def table_files(self, state: TableState) -> TableFiles:
        """Returns what is needed to read and write files of that state."""
        return TableFiles(self.storage, self.location, state.definition, self.ambient, self._lookup_cache(state))

    def _lookup_cache(self, state: TableState) -> LookupCache:
        """Returns the cache that all look-ups in this table share, with the limits that its options set now."""
        options = (self._known or state).definition.options
        if self._cache is None:
            self._cache = LookupCache(state.table_id, CacheLimits.of(options), self.ambient)
        self._cache.limits = CacheLimits.of(options)
        return self._cache

    def commit(
        self, begin: Begin, *, base: TableState | None = None, observer: Observer | None = None
    ) -> Committed | None:
        """Commits an operation; arguments, result and errors are those of `commit_operation`."""
        return commit_operation(self, begin, base, observer)

    def commit_metadata(self, propose: Callable[[TableState], Proposal | None]) -> Committed | None:
        """Commits a proposal that rests on metadata only; `propose` is called again after each conflict.

        Raises:
            Conflict: ``too-many-races``: other commits were first, as often as ``commit.max-retries`` allows.
        """
        try:
            return self.commit(metadata_only(propose))
        except Conflict as error:
            if error.code == "too-many-races":
                raise
            raise Conflict(
                f"other commits to {self.name} were first again and again; the last time {error.message}, or "
                "raise commit.max-retries",
                code="too-many-races",
            ) from error

    def commit_version(self, base: TableState, proposal: Proposal, rebase: Rebaser) -> Committed:
        """Writes the proposal as the next version, and writes a checkpoint when one is due."""
        committed = commit_version(self.delta_log, base, proposal, rebase, self.ambient)
        self._known = committed.state
        if committed.fresh and is_due(committed.state):
            self._known = committed.state.with_checkpoint(committed.state.version)
            self.ambient.beside(self.location, partial(self._checkpoint, committed.state))
        return committed

    def _pack(self) -> None:
        """Packs the newest version's files, and merges what has changed since; this process needs less memory then."""
        state = self._known
        try:
            if state is None or state.files.lean or self._columns is not None:
                return  # a checkpoint has made columns of them
            files = ColumnFiles.of(state.files, state.definition.partition_by).packed(lambda: not awaited())
            self._columns = None if files is None else (files, state)
        finally:
            self._packing = False
            _give_back_memory()

    def _checkpoint(self, state: TableState) -> None:
        """Writes a checkpoint. It only makes reading faster, so a failure is logged: the commit succeeded."""
        try:
            files = write_checkpoint(self.delta_log, state)
        except BaseException as error:
            if not isinstance(error, (OSError, TableStoreError)) and not is_undecodable(error):
                raise
            logger.warning("no checkpoint of %s: %s", self.location, error)
        else:
            self._columns = None if files is None else (files, state)


def _give_back_memory() -> None:
    """Returns to the system what Arrow has of it for this thread, and does not need: it would keep it."""
    pa.default_memory_pool().release_unused()
