"""What the integration tests share."""

from __future__ import annotations

import random

import pytest


@pytest.fixture
def seed() -> int:
    """Of the run's own chance, which pytest-randomly seeds and prints; printed again for one test alone."""
    drawn = random.randrange(1 << 30)
    print(f"seed {drawn}")
    return drawn
