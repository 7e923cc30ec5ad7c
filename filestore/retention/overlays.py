"""Finds overlays that no reader needs any more (FORMAT.md section 11.3). Pure."""

from __future__ import annotations

from collections.abc import Iterable

from filestore import layout
from filestore.storage.interface import FileInfo

__all__ = ["OVERLAY_MS", "old_overlays"]

OVERLAY_MS = 86_400_000
"""The age in milliseconds up to which an overlay is kept: a day, which is longer than a reader takes."""


def old_overlays(folder: str, files: Iterable[FileInfo], before_ms: int) -> list[str]:
    """Returns the folders of overlays whose files were all written before a time."""
    written: dict[str, int] = {}
    for info in files:
        name = info.path.removeprefix(layout.join(folder, "")).partition("/")[0]
        written[name] = max(written.get(name, 0), info.modified_ms)
    return [layout.join(folder, name) for name, last_ms in sorted(written.items()) if last_ms < before_ms]
