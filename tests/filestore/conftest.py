"""What the filestore' tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.folders import memory_folder

settings.register_profile("tablestore", deadline=None, print_blob=True, max_examples=40)
settings.load_profile("tablestore")


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder, in memory if possible."""
    with memory_folder() as path:
        yield path
