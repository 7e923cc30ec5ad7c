"""Commits that a database holds: for stores that cannot create a file exclusively (FORMAT.md section 6.1, decision 93).

A writer stages its log entry under a name of its own, claims the version in the database of the table's catalog, and
publishes: it writes the entry under the version's name, which any number of processes may do, since all write the same
bytes. The claim alone decides. What a writer that died has claimed is published by whoever comes next, so readers that
know nothing of the database see whole versions, without gaps, and at the latest with the next commit.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import pyarrow as pa

from filestore import layout
from filestore.commit.claims import Claim, Claims
from filestore.errors import CommitUnknown, Corrupt, NotFound, TableStoreError, Unavailable, Unsupported
from filestore.storage.interface import FileInfo, ReadableFile, Storage, TaggedFile
from filestore.storage.refusals import exists_already
from filestore.storage.retries import repeated

__all__ = ["HeldStorage", "held", "needs_its_catalog", "publish_claimed", "publish_where_held"]

logger = logging.getLogger(__name__)


class HeldStorage:
    """Implements `filestore.storage.interface.Storage` for one table whose commits a database holds.

    A copy in another process, and a fork, have no claims: they read and write files, and commit nothing.

    Args:
        inner: The store, which replaces files atomically and is consistent for reads after writes.
        location: The table.
        claims: The claims of the table; None: this process commits nothing.
        new_id: Returns unique ids.
    """

    def __init__(
        self, inner: Storage, location: str, claims: Claims | None = None, new_id: Callable[[], str] | None = None
    ) -> None:
        self.inner = inner
        self.location = location.rstrip("/")
        self._database = claims
        self._process = os.getpid()
        self._new_id = new_id
        self._last: Claim | None = None

    def __reduce__(self) -> tuple[type[HeldStorage], tuple[Storage, str]]:
        return HeldStorage, (self.inner, self.location)

    def __repr__(self) -> str:
        return f"HeldStorage({self.inner!r}, {self.location!r})"

    @property
    def _claims(self) -> Claims | None:
        """The claims; None in a fork of the process that opened them, which must not use its connections."""
        return self._database if os.getpid() == self._process else None

    @property
    def commits(self) -> bool:
        """Returns whether this process can commit."""
        return self._claims is not None

    # --------------------------------------------------------------------------------------------------- log entries

    def write_new(self, path: str, data: bytes) -> None:
        """Commits a log entry; creates any other file.

        Raises:
            AlreadyExists: another writer has the version.
            NotFound: the table was dropped.
            CommitUnknown: the store or the database failed after the version may have been claimed.
        """
        version = self._version_of(path)
        if version is not None:
            self._commit(version, path, data)
        elif self.inner.local_path(path) is not None:
            self.inner.write_new(path, data)
        elif self.inner.exists(path):
            # between the two requests another writer may create it: no file but a log entry depends on that
            raise exists_already(path)
        else:
            self.inner.replace(path, data)

    def read(self, path: str) -> bytes:
        """Returns the file's bytes. An entry that is claimed and not published yet is published first."""
        try:
            return self.inner.read(path)
        except NotFound:
            version = self._version_of(path)
            if version is None or not self._published_for_reader(version):
                raise
        return self.inner.read(path)

    def read_each(self, paths: Sequence[str]) -> list[bytes | None]:
        """Reads several small files; entries that are claimed and not published yet are published first."""
        found = self.inner.read_each(paths)
        missing = [at for at, data in enumerate(found) if data is None]
        versions = [version for at in missing if (version := self._version_of(paths[at])) is not None]
        if versions and self._published_for_reader(min(versions)):
            for at, data in zip(missing, self.inner.read_each([paths[at] for at in missing]), strict=True):
                found[at] = data
        return found

    def list_names(self, path: str, after: str = "") -> list[str]:
        """Returns the names in a folder. Of the Delta log's an entry that is claimed is published first."""
        if path.rstrip("/") == layout.join(self.location, layout.DELTA_LOG):
            self._published_for_reader(None)
        return self.inner.list_names(path, after)

    def publish_claimed(self) -> None:
        """Publishes what is claimed: afterwards the Delta log has every version that was decided before the call.

        Raises:
            Unsupported: ``catalog-commits``: this process has no claims.
            Unavailable: the database or the store does not answer.
        """
        claims, _ = self._required()
        newest = claims.newest()
        if newest is not None and not newest.published:
            self._complete(claims, newest)

    def _commit(self, version: int, path: str, data: bytes) -> None:
        claims, new_id = self._required()
        mine = Claim(version, layout.staged_commit_path(version, new_id()))
        staged = layout.join(self.location, mine.file)
        with self.inner.open_write(staged) as file:  # unlike `write_new` it asks for no condition
            file.write(data)
        self.inner.sync(staged)
        try:
            won = self._claimed(claims, mine)
        except CommitUnknown:
            raise
        except TableStoreError:
            self._forget(mine)
            raise
        if not won:
            self._forget(mine)
            raise exists_already(path)
        try:
            self.inner.replace(path, data)
        except TableStoreError as error:
            raise CommitUnknown(
                f"version {version} of {self.location} is claimed in the catalog's database, but its entry could not "
                f"be written ({error.message}): whoever reads or writes the table next finishes it. Look for your "
                "commit in the history before retrying"
            ) from error
        try:
            self._finished(claims, mine)
        except TableStoreError as error:
            # the entry is there, and the next writer notes it
            logger.info("version %d of %s is not noted as published: %s", version, self.location, error)

    def _claimed(self, claims: Claims, mine: Claim) -> bool:
        """Claims a version; returns False if another writer has it."""
        newest = self._last
        if newest is None or newest.version != mine.version - 1:
            newest = claims.newest()
        while True:
            if newest is not None and newest.file == mine.file:
                return True
            if newest is not None and not newest.published:
                newest = self._complete(claims, newest)
            if newest is not None and newest.version >= mine.version:
                return False
            if not self._follows(mine.version, newest):
                return False
            newest = self._claim(claims, mine, newest)

    def _follows(self, version: int, newest: Claim | None) -> bool:
        """Returns whether a version is the next one. Where the database does not know, the store does.

        It does not if the table is older than its claims, or if a backup of the database was restored.
        """
        if newest is not None and newest.version == version - 1:
            return True
        if self.inner.exists(self._entry(version)):
            return False
        return version == 0 or self.inner.exists(self._entry(version - 1))

    def _claim(self, claims: Claims, mine: Claim, newest: Claim | None) -> Claim:
        """Asks for the claim, and again after a failure: an earlier call may have made it, which the next one shows.

        A call that gives another writer's claim ends all doubt: one that is still on its way would find that claim.
        """
        try:
            return repeated(lambda: claims.claim(mine, newest), lambda error: isinstance(error, Unavailable))
        except Unavailable as error:
            raise CommitUnknown(
                f"the catalog's database failed while version {mine.version} of {self.location} was claimed "
                f"({error.message}), and fails again: look for your commit in the history before retrying"
            ) from error

    def _complete(self, claims: Claims, claim: Claim) -> Claim | None:
        """Publishes what another writer has claimed; returns the newest claim."""
        entry = self._entry(claim.version)
        if not self.inner.exists(entry):
            try:
                data = self.inner.read(layout.join(self.location, claim.file))
            except NotFound as error:
                newest = claims.newest()
                if newest is None or newest != claim:
                    return newest  # somebody else has published it, and removed the staged entry
                raise Corrupt(
                    f"version {claim.version} of {self.location} is claimed in the catalog's database, but its entry "
                    f"{claim.file} is gone: restore the file. If the store was set back to an earlier state, delete "
                    "the table's row from the database's table commits",
                    code="lost-version",
                ) from error
            self.inner.replace(entry, data)
        return self._finished(claims, claim)

    def _finished(self, claims: Claims, claim: Claim) -> Claim | None:
        """Notes that an entry is published; returns the newest claim."""
        newest = claims.publish(claim)
        self._last = newest
        # The next version may be claimed and not published yet. One after that was claimed when the next was published.
        if newest is not None and newest.version > claim.version + 1:
            self._take_back_expired(claim)
        self._forget(claim)
        return newest

    def _take_back_expired(self, claim: Claim) -> None:
        """Removes an entry that this process wrote so late that the version had expired.

        Entries expire oldest first: if the one behind it is gone, too, it was written after its own removal.
        """
        if not self.inner.exists(self._entry(claim.version + 1)):
            self.inner.delete(self._entry(claim.version))

    def _forget(self, claim: Claim) -> None:
        """Removes a staged entry that nobody needs; what is left of it is found as an orphan."""
        with suppress(Unavailable):
            self.inner.delete(layout.join(self.location, claim.file))

    def _published_for_reader(self, version: int | None) -> bool:
        """Publishes what is claimed, if it is that version (or any); returns whether it may be there now.

        A reader gets along without it: until it is published the writer has had no success to report. So a database
        that does not answer, or a store in which this process may not write, does not keep it from reading. Whoever
        decides by what is not there asks by `publish_claimed` before.
        """
        claims = self._claims
        if claims is None:
            return False
        try:
            newest = claims.newest()
            if newest is None or (version is not None and newest.version < version):
                return False
            if not newest.published:
                self._complete(claims, newest)
        except (NotFound, Unavailable) as error:
            logger.debug("claims of %s are not looked at: %s", self.location, error)
            return False
        return True

    def _required(self) -> tuple[Claims, Callable[[], str]]:
        claims = self._claims
        if claims is None or self._new_id is None:
            raise needs_its_catalog(self.location)
        return claims, self._new_id

    def _entry(self, version: int) -> str:
        return layout.join(self.location, layout.log_entry_path(version))

    def _version_of(self, path: str) -> int | None:
        """The version of a log entry of this table; None for any other file."""
        folder, _, name = path.rpartition("/")
        if folder != layout.join(self.location, layout.DELTA_LOG):
            return None
        found = layout.parse_log_entry(name)
        return found.version if found is not None and not found.checkpoint else None

    # --------------------------------------------------------------------------------------------------- other calls

    def replace(self, path: str, data: bytes) -> None:
        """Writes the file, and replaces one that exists."""
        self.inner.replace(path, data)

    def read_tagged(self, path: str) -> TaggedFile:
        """Returns a file that may change, with its tag."""
        return self.inner.read_tagged(path)

    def replace_tagged(self, path: str, data: bytes, tag: str | None) -> str:
        """Writes a file only if it still has a tag. No log entry is written so."""
        return self.inner.replace_tagged(path, data, tag)

    def list_tagged(self, path: str) -> dict[str, str]:
        """Returns the tags of the files in a folder by their names."""
        return self.inner.list_tagged(path)

    def open_read(self, path: str) -> ReadableFile:
        """Opens a file that never changes."""
        return self.inner.open_read(path)

    def read_ahead(self, paths: Sequence[str]) -> None:
        """Reads the ends of files that will be opened soon."""
        self.inner.read_ahead(paths)

    def local_path(self, path: str) -> str | None:
        """Returns the path of a file on this machine."""
        return self.inner.local_path(path)

    def options(self) -> dict[str, str]:
        """Returns the options of the store."""
        return self.inner.options()

    def delta_options(self, path: str) -> dict[str, str]:
        """Returns the options of the store for other libraries."""
        return self.inner.delta_options(path)

    def open_write(self, path: str) -> pa.NativeFile:
        """Creates a file."""
        return self.inner.open_write(path)

    def sync(self, path: str) -> None:
        """Makes a file durable."""
        self.inner.sync(path)

    def sync_all(self, paths: Sequence[str]) -> None:
        """Makes files durable."""
        self.inner.sync_all(paths)

    def exists(self, path: str) -> bool:
        """Returns whether the file exists."""
        return self.inner.exists(path)

    def walk(self, path: str) -> Iterator[FileInfo]:
        """Yields all files in a folder."""
        return self.inner.walk(path)

    def delete(self, path: str) -> None:
        """Deletes a file."""
        self.inner.delete(path)

    def delete_all(self, paths: Sequence[str]) -> None:
        """Deletes files."""
        self.inner.delete_all(paths)

    def delete_tree(self, path: str) -> None:
        """Deletes a folder."""
        self.inner.delete_tree(path)


def held(storage: Storage) -> bool:
    """Returns whether a database holds the commits, so that no number of a version is ever free again."""
    return isinstance(storage, HeldStorage)


def publish_claimed(storage: Storage, location: str) -> None:
    """Calls `HeldStorage.publish_claimed` for a table whose commits are held; raises the same errors.

    Whoever ends, aborts or removes what no version names has to do this first: a claimed version may name it
    (`filestore.table.FileStore.decided`).
    """
    if not isinstance(storage, HeldStorage):
        raise needs_its_catalog(location)
    storage.publish_claimed()


def publish_where_held(storage: Storage) -> None:
    """Publishes what is claimed if this process has the database; for reports, which any process may make.

    Raises:
        Unavailable: the database or the store does not answer: a report that passes over a claimed version is wrong.
    """
    if isinstance(storage, HeldStorage) and storage.commits:
        storage.publish_claimed()


def needs_its_catalog(location: str) -> Unsupported:
    """The error of a commit without the database that holds the table's commits."""
    return Unsupported(
        f"the commits of {location} are held by its catalog's database, which this process does not have: open the "
        "table by its name, with tablestore.connect(…).table(…)",
        code="catalog-commits",
    )
