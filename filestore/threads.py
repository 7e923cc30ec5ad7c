"""Runs independent tasks of one operation in threads of this process."""

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
    """Runs the tasks in a thread for each core, and returns their results in the order of the tasks.

    If a task fails, `forget` gets the results of those that succeeded, and the error is raised. An interpreter that is
    shutting down starts no threads any more; then the caller's thread does the remaining tasks.
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
