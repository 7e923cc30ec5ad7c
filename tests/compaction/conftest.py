"""What the compaction's tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.folders import memory_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder, in memory if possible."""
    with memory_folder() as path:
        yield path
