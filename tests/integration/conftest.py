"""What the integration tests share."""

from __future__ import annotations

import random

import pytest


@pytest.fixture
def seed() -> int:
    """A seed drawn from the run's seed, which pytest-randomly prints; this fixture prints the seed of one test."""
    drawn = random.randrange(1 << 30)
    print(f"seed {drawn}")
    return drawn
