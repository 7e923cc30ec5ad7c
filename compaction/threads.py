"""Tasks of a compaction in the threads of one process."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_threads"]

Task = TypeVar("Task")
Result = TypeVar("Result")


def in_threads(
    name: str,
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    forget: Callable[[list[Result]], None],
) -> list[Result]:
    """What each task gives, in their order; a thread for each core. If one fails, the others' work is forgotten."""
    with ThreadPoolExecutor(min(len(tasks), os.cpu_count() or 1), name) as pool:
        futures = [pool.submit(work, task) for task in tasks]
    if any(future.exception() is not None for future in futures):
        forget([future.result() for future in futures if future.exception() is None])
    return [future.result() for future in futures]
