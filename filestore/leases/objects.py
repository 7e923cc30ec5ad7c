"""Leases as objects: for tables in a store of objects, whose writers may be on any machine.

A writer creates the object of its commit, which takes one request, and removes it at its end, which takes another. If
it takes longer, a thread renews the object by replacing it on condition of its tag. Whoever finds the same tag for the
whole time-out, by a clock of its own, takes the writer for dead (`filestore.leases.watch`).

IMPORTANT: it may live all the same, and go on later: a process can be suspended, or cut off from the store. So nothing
that such a lease says is a reason to abort a transaction before a fence is in the table's history
(`filestore.commit.fence`). A lease only makes fences rare.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress

from filestore.ambient import Ambient
from filestore.errors import Conflict, NotFound, TableStoreError, Unavailable
from filestore.layout import LEASES, join
from filestore.leases.beats import Beats
from filestore.leases.watch import Look, Watch
from filestore.storage.interface import Storage, TaggedFile

__all__ = ["BEATS_IN_A_TIMEOUT", "ObjectLeases"]

logger = logging.getLogger(__name__)

BEATS_IN_A_TIMEOUT = 4
"""A writer renews its lease so many times in a time-out: some of them may fail."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_DROPPED = ("table-replaced", "no-table")


class ObjectLeases:
    """Implements `filestore.leases.interface.WriterLeases` in a store of objects.

    It remembers what it has seen of others' leases: a process finds out about a dead one at the earliest one time-out
    after its first look.

    Args:
        storage: The table's storage.
        location: The table's location.
        ambient: Clock, ids, and the pauses of those who wait.
        timeout_s: Returns after how many seconds without a renewal a writer counts as dead.
    """

    certain = False

    def __init__(self, storage: Storage, location: str, ambient: Ambient, timeout_s: Callable[[], float]) -> None:
        self._storage = storage
        self._location = location
        self._ambient = ambient
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._watch = Watch()
        self._own: set[str] = set()

    @contextmanager
    def hold(self, commit_id: str) -> Iterator[None]:
        """Creates the commit's object, renews it, and deletes it at the end."""
        lease = _Lease(self._storage, self._path(commit_id), commit_id, self._ambient.new_id())
        self._acquire(lease)
        self._own.add(commit_id)
        try:
            with Beats(f"lease-{commit_id}", self._timeout_s() / BEATS_IN_A_TIMEOUT, lease.renew):
                yield
        except NotFound as error:
            if error.code in _DROPPED:
                # the table was dropped meanwhile: no writer will clean up, and the object would disturb the next one
                with suppress(Unavailable):
                    self._storage.delete(lease.path)
            raise
        else:
            if not lease.lost:
                self._storage.delete(lease.path)
        finally:
            self._own.discard(commit_id)

    def _acquire(self, lease: _Lease) -> None:
        """Creates the object. One that a dead writer of the same commit has left is taken over."""
        pauses = _Pauses(self._ambient)
        tag = None
        while True:
            try:
                lease.write(tag)
                return
            except Conflict:
                pauses.wait()
            watch = self._look()
            tag = watch.last.tags.get(lease.commit_id)
            while tag is not None and lease.commit_id not in watch.dead(self._timeout_s()):
                pauses.wait()
                watch = self._look()
                tag = watch.last.tags.get(lease.commit_id)

    def dead_among(self, commit_ids: Collection[str]) -> set[str]:
        """Looks once, and returns the commits without a lease, or with a dead one."""
        watch = self._look()
        dead = watch.dead(self._timeout_s())
        return {c for c in commit_ids if c not in self._own and (c in dead or c not in watch.last.tags)}

    def abandoned(self) -> list[str]:
        """Lists dead leases. Between two beats of a writer it answers by its last look, without a request."""
        age_s = self._ambient.monotonic_s() - self._watch.last.answered_s
        watch = self._watch if age_s < self._timeout_s() / BEATS_IN_A_TIMEOUT else self._look()
        return sorted(watch.dead(self._timeout_s()) - self._own)

    def wait_until_known(self) -> None:
        """Looks until each lease that is there now was renewed, is gone, or is dead: for a time-out at most."""
        first = watch = self._look()
        pauses = _Pauses(self._ambient)
        while any(
            watch.last.tags.get(commit_id) == tag
            for commit_id, tag in first.last.tags.items()
            if commit_id not in watch.dead(self._timeout_s()) | self._own
        ):
            pauses.wait()
            watch = self._look()

    def at_work_since_ms(self) -> int | None:
        """Reads all leases. A dead one counts, too, until recovery has fenced its commit and removed it.

        Its writer may live all the same, and commit files that it wrote long ago.
        """
        began: list[int] = []
        for commit_id in self._look().last.tags:
            with suppress(NotFound):
                began.append(_since_ms(self._storage.read_tagged(self._path(commit_id))))
        return min(began, default=None)

    def remove(self, commit_ids: Iterable[str]) -> None:
        """Deletes the objects of commits that are still dead."""
        wanted = set(commit_ids)
        there = self._look().last.tags.keys() & wanted
        dead = self.dead_among(there)
        self._storage.delete_all([self._path(commit_id) for commit_id in sorted(dead)])
        with self._lock:
            self._watch = self._watch.without(dead)

    def _look(self) -> Watch:
        asked_s = self._ambient.monotonic_s()
        tags = self._storage.list_tagged(join(self._location, LEASES))
        look = Look(tags, asked_s, self._ambient.monotonic_s())
        with self._lock:
            self._watch = self._watch.after(look)
            return self._watch

    def _path(self, commit_id: str) -> str:
        return join(self._location, f"{LEASES}/{commit_id}")


def _since_ms(stored: TaggedFile) -> int:
    """Returns since when a lease is held: since its object was written, unless that was a renewal, which says it."""
    try:
        found = json.loads(stored.data)
    except ValueError:
        return stored.modified_ms
    since_ms = found.get("since_ms") if isinstance(found, dict) else None
    return since_ms if isinstance(since_ms, int) else stored.modified_ms


class _Lease:
    """A lease that this process holds.

    Attributes:
        lost: Another process has removed it or taken it over, since it was not renewed in time.
    """

    def __init__(self, storage: Storage, path: str, commit_id: str, holder: str) -> None:
        self.path = path
        self.commit_id = commit_id
        self.lost = False
        self._storage = storage
        self._holder = holder
        self._beat = 0
        self._since_ms: int | None = None
        self._tag: str | None = None

    def write(self, tag: str | None) -> None:
        """Writes the object in place of one with that tag."""
        body = {"commit": self.commit_id, "holder": self._holder, "beat": self._beat, "since_ms": self._since_ms}
        self._tag = self._storage.replace_tagged(self.path, json.dumps(body).encode(), tag)
        self._beat += 1

    def renew(self) -> bool:
        """Replaces the object by one that differs; returns whether there will be another time.

        The first renewal notes when the lease was taken, by the storage's clock. After an error the same bytes are
        written again: then the storage recognises a write that succeeded.
        """
        try:
            if self._since_ms is None:
                self._since_ms = self._storage.read_tagged(self.path).modified_ms
            self.write(self._tag)
        except (Conflict, NotFound):
            self.lost = True
            logger.warning(
                "the lease %s was not renewed in time, and another process takes this writer for dead: its commit may "
                "be refused (fenced)",
                self.path,
            )
        except TableStoreError as error:
            logger.info("the lease %s is renewed later: %s", self.path, error)
        return not self.lost


class _Pauses:
    """Waits between two requests for the same object; each wait is longer than the one before."""

    def __init__(self, ambient: Ambient) -> None:
        self._ambient = ambient
        self._next_s = _FIRST_PAUSE_S

    def wait(self) -> None:
        """Waits, the next time longer."""
        self._ambient.sleep(self._next_s)
        self._next_s = min(_LONGEST_PAUSE_S, self._next_s * 2)
