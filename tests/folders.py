"""Folders for tests: in memory where the machine allows it, since the kernel flushes each file to disk."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["memory_folder"]

_MEMORY = Path("/dev/shm")


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder that is gone afterwards."""
    parent = str(_MEMORY) if _MEMORY.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="tablestore-test-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
