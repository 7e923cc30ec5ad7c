"""Folders of benchmarks whose data is too large for a system's temporary folder, which may be in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tablestore.jars import cache_root

__all__ = ["cached_folder"]


@contextmanager
def cached_folder(name: str) -> Iterator[Path]:
    """An empty folder of the benchmark beside the cached jars; it is removed at the end."""
    cache_root().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-", dir=cache_root()) as path:
        yield Path(path)
