"""Removes overlays that no reader needs any more: a native Spark reader of pending runs creates its own again."""

from __future__ import annotations

from filestore import layout
from filestore.retention.overlays import OVERLAY_MS, old_overlays
from filestore.table import FileStore

__all__ = ["remove_old_overlays"]


def remove_old_overlays(store: FileStore) -> int:
    """Removes the overlays that are older than `OVERLAY_MS`; returns how many there were."""
    folder = layout.join(store.location, layout.OVERLAYS)
    old = old_overlays(folder, store.storage.walk(folder), store.ambient.now_ms() - OVERLAY_MS)
    for path in old:
        store.storage.delete_tree(path)
    return len(old)
