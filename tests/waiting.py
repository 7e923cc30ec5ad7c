"""Waiting for a condition with a deadline, which is how tests wait for other threads and processes."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["until"]


def until(holds: Callable[[], object], seconds: float = 120.0, what: str = "the condition") -> None:
    """Returns as soon as it holds; fails when it has not held within the time, which is long: machines may be busy."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not hold within {seconds} s"
        time.sleep(0.005)
