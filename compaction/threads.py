"""Tasks of a compaction in the threads of one process."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
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
    """What each task gives, in their order; a thread for each core. If one fails, the others' work is forgotten.

    An interpreter that is ending starts no threads any more: what is then left to do is done in the caller's.
    """
    futures: list[Future[Result]] = []
    with ThreadPoolExecutor(min(len(tasks), os.cpu_count() or 1), name) as pool, suppress(RuntimeError):
        futures += (pool.submit(work, task) for task in tasks)
    done = [future.result() for future in futures if future.exception() is None]
    try:
        for future in futures:
            future.result()
        for task in tasks[len(futures) :]:
            done.append(work(task))
    except BaseException:
        forget(done)
        raise
    return done
