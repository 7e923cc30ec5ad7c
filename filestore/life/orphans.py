"""Removes orphans: files that no version names, and that no living writer may still commit (FORMAT.md section 14)."""

from __future__ import annotations

from collections.abc import Callable

from filestore import layout
from filestore.checks.leftovers import Leftover, leftovers
from filestore.retention.history import history_of
from filestore.table import FileStore

__all__ = ["find_orphans", "remove_orphans"]


def find_orphans(store: FileStore, before_ms: int, at_work_since_ms: Callable[[], int | None]) -> list[Leftover]:
    """Finds files that no version names and that were written before a time, and before any running writer began.

    IMPORTANT: files are listed first, writers second, and versions third. So a writer that finished meanwhile has
    committed what it wrote, and a writer that has not finished is in the list of writers.

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
    files = list(store.storage.walk(store.location))
    since = at_work_since_ms()
    limit = before_ms if since is None else min(before_ms, since)
    state = store.decided()
    named = {path for path, _ in history_of(store.delta_log, state.version).spans()}
    found = (left for left in leftovers(store, files, named, state) if left.is_ours and left.modified_ms < limit)
    return sorted(found, key=lambda left: left.path)


def remove_orphans(store: FileStore, orphans: list[Leftover]) -> None:
    """Removes what `find_orphans` has just found."""
    store.storage.delete_all([layout.join(store.location, left.path) for left in orphans])
