"""The orphans' clean-up: files that no version names go, once no writer can still mean to (FORMAT.md section 14)."""

from __future__ import annotations

from collections.abc import Callable

from filestore import layout
from filestore.checks.leftovers import Leftover, leftovers
from filestore.life.expiry import history_of
from filestore.table import FileStore

__all__ = ["find_orphans", "remove_orphans"]


def find_orphans(store: FileStore, before_ms: int, at_work_since_ms: Callable[[], int | None]) -> list[Leftover]:
    """Files that no version names, written before a time and before any writer that is at work began.

    IMPORTANT: files are listed first, writers are looked for second, and versions third. So a writer that finished
    meanwhile has committed what it wrote, and one that has not finished is seen at work.

    Args:
        store: The table.
        before_ms: Only files last written before it, in milliseconds since 1970 UTC.
        at_work_since_ms: When the first of the writers that are at work began, if any is.

    Returns:
        The files, by path. Foreign files are never among them.
    """
    files = list(store.storage.walk(store.location))
    since = at_work_since_ms()
    limit = before_ms if since is None else min(before_ms, since)
    state = store.state()
    named = {path for path, _ in history_of(store.log, state.version).spans()}
    found = (left for left in leftovers(store, files, named, state) if left.is_ours and left.modified_ms < limit)
    return sorted(found, key=lambda left: left.path)


def remove_orphans(store: FileStore, orphans: list[Leftover]) -> None:
    """Removes what `find_orphans` has just found."""
    for left in orphans:
        store.storage.delete(layout.join(store.location, left.path))
