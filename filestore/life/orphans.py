"""Removes orphans: files that no version names, and that no writer may commit any more (FORMAT.md section 14)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice

from filestore import layout
from filestore.checks.leftovers import Leftover, leftovers
from filestore.commit.fence import fence_files
from filestore.errors import Corrupt, InvalidRequest
from filestore.retention.history import note_named, paths_until
from filestore.retention.paths import Paths
from filestore.storage.interface import FileInfo
from filestore.table import FileStore

__all__ = ["MINIMUM_AGE_MS", "check_age", "clean_orphans", "find_orphans", "remove_orphans"]

MINIMUM_AGE_MS = 3_600_000
"""Younger files are removed only for callers that say so: they often belong to a write that is running."""

_TOGETHER = 10_000
"""The most files that one version fences: its entry has about 60 bytes for each."""


def check_age(older_than_ms: int, *, even_young: bool) -> None:
    """Refuses to remove files that are so young that they often belong to a write that is running. Pure.

    Raises:
        InvalidRequest: ``young-orphans``.
    """
    if older_than_ms < MINIMUM_AGE_MS and not even_young:
        raise InvalidRequest(
            "files that were written within the last hour often belong to a write or a compaction that is running, "
            "which would have to begin again: remove orphans that are older than an hour, or pass even_young=True",
            code="young-orphans",
        )


def clean_orphans(store: FileStore, older_than_ms: int, *, dry_run: bool, even_young: bool) -> list[Leftover]:
    """Finds orphans, and removes them unless `dry_run`; see `tablestore.Table.remove_orphans`."""
    if not dry_run:
        check_age(older_than_ms, even_young=even_young)
    found = find_orphans(store, store.ambient.now_ms() - older_than_ms, store.leases.at_work_since_ms)
    return found if dry_run else remove_orphans(store, found)


def find_orphans(store: FileStore, before_ms: int, at_work_since_ms: Callable[[], int | None]) -> list[Leftover]:
    """Finds files that no version names and that were written before a time, and before any running writer began.

    IMPORTANT: files are listed first, writers second, and versions third. So a writer that finished meanwhile has
    committed what it wrote, and a writer that has not finished is in the list of writers. Writers without a lease are
    not: `remove_orphans` refuses their commits. What a version names when it begins is not listed at all, since most
    files of a large table are such.

    Args:
        store: The table.
        before_ms: Only files last written before it, in milliseconds since 1970 UTC.
        at_work_since_ms: Returns when the first of the running writers began; None if no writer is running.

    Returns:
        The files, by path. Foreign files are never among them.

    Raises:
        Unsupported: ``catalog-commits``: the catalog's database holds the commits, and this process does not have it.
        Unavailable: the storage, or that database, does not answer.
    """
    live, prefix = Paths.of_version(store.state()), layout.join(store.location, "")
    files = [i for i in store.storage.walk(store.location) if i.path.removeprefix(prefix) not in live]
    since = at_work_since_ms()
    limit = before_ms if since is None else min(before_ms, since)
    state = store.decided()
    unnamed = leftovers(store, files, paths_until(store.delta_log, state.version), state)
    found = (left for left in unnamed if left.is_ours and left.modified_ms < limit)
    return sorted(found, key=lambda left: left.path)


def remove_orphans(store: FileStore, orphans: Sequence[Leftover]) -> list[Leftover]:
    """Removes what `find_orphans` has found, however long ago; returns what was removed.

    IMPORTANT: first a version says which files no commit may name from then on, and then the history is read once more.
    So a writer at work has committed its files before, and they stay, or it begins again with others.

    Raises:
        Conflict: ``too-many-races``.
        Unavailable: the storage did not answer. Call it again: what was removed by then is not found any more.
    """
    removed: list[Leftover] = []
    waiting, named, read = iter(orphans), None, 0
    while some := list(islice(waiting, _TOGETHER)):
        if fenced := [left.path for left in some if left.can_be_committed]:
            fence_files(store, fenced)
        state = store.decided()
        named = _named(store, named, read, state.version)
        read = state.version
        infos = [FileInfo(layout.join(store.location, left.path), left.size, left.modified_ms) for left in some]
        gone = list(leftovers(store, infos, named, state))
        store.storage.delete_all([layout.join(store.location, left.path) for left in gone])
        removed += gone
    return removed


def _named(store: FileStore, named: Paths | None, read: int, until: int) -> Paths:
    """Reads the whole history, or only what has been committed since a version."""
    if named is not None:
        with suppress(Corrupt):  # entries have expired meanwhile
            note_named(store.delta_log, named, range(read + 1, until + 1))
            return named
    return paths_until(store.delta_log, until)
