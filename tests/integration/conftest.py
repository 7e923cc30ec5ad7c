"""What the integration tests share."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tablestore import Store
from tests.folders import memory_folder
from tests.warehouses import warehouse


@pytest.fixture
def store() -> Iterator[Store]:
    with warehouse() as opened:
        yield opened


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder, in memory if possible."""
    with memory_folder() as path:
        yield path


@pytest.fixture
def seed() -> int:
    """Of the run's own chance, which pytest-randomly seeds and prints; printed again for one test alone."""
    drawn = random.randrange(1 << 30)
    print(f"seed {drawn}")
    return drawn
