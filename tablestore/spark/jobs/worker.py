"""Prepares the Python workers of Spark, each one once."""

from __future__ import annotations

import functools
import gc

__all__ = ["collect_only_new_objects"]


@functools.cache
def collect_only_new_objects() -> None:
    """Exempts what the worker holds now, its modules above all, from garbage collection (decision 114).

    NOTE: PySpark's daemon collects garbage in a worker after each task, before the worker takes the next one. With the
    modules that tasks of ours import that takes 50 ms, several times as long as a small task.
    """
    gc.collect()
    gc.freeze()
