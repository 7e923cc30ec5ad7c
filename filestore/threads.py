"""Runs independent tasks of one operation in threads of this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
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
    most: int | None = None,
) -> list[Result]:
    """Runs the tasks in a thread for each core, or in `most` threads; returns their results in the order of the tasks.

    If a task fails, `forget` gets the results of those that succeeded, and the error is raised. So it is after an
    interrupt: tasks that have begun end first, and no other begins. An interpreter that is shutting down starts no
    threads any more; then the caller's thread does the remaining tasks.
    """
    futures: list[Future[Result]] = []
    own: list[Result] = []
    pool = ThreadPoolExecutor(max(1, min(len(tasks), most or os.cpu_count() or 1)), name)
    try:
        with suppress(RuntimeError):
            futures += (pool.submit(work, task) for task in tasks)
        wait(futures)
        done = [future.result() for future in futures]
        for task in tasks[len(futures) :]:
            own.append(work(task))
    except BaseException:
        pool.shutdown(cancel_futures=True)
        ended = [future for future in futures if not future.cancelled() and future.exception() is None]
        forget([*(future.result() for future in ended), *own])
        raise
    pool.shutdown()
    return [*done, *own]
