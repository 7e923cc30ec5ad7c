"""Removes overlays that no reader needs any more: a native Spark reader of pending runs creates its own again."""

from __future__ import annotations

from collections.abc import Iterable

from filestore import layout
from filestore.storage.interface import FileInfo
from filestore.table import FileStore

__all__ = ["old_overlays", "remove_old_overlays"]

_DAY_MS = 86_400_000


def remove_old_overlays(store: FileStore) -> int:
    """Removes overlays older than a day, which is longer than a reader takes; returns how many there were."""
    folder = layout.join(store.location, layout.OVERLAYS)
    old = old_overlays(folder, store.storage.walk(folder), store.ambient.now_ms() - _DAY_MS)
    for path in old:
        store.storage.delete_tree(path)
    return len(old)


def old_overlays(folder: str, files: Iterable[FileInfo], before_ms: int) -> list[str]:
    """Returns the folders of overlays whose files were all written before a time. Pure."""
    written: dict[str, int] = {}
    for info in files:
        name = info.path.removeprefix(layout.join(folder, "")).partition("/")[0]
        written[name] = max(written.get(name, 0), info.modified_ms)
    return [layout.join(folder, name) for name, last_ms in sorted(written.items()) if last_ms < before_ms]
