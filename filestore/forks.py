"""Refuses work in a process that was forked after its parent had started threads which it lacks: it would hang.

A fork copies the memory of a process, and one of its threads. Polars waits for threads of its pool that are not there.
`multiprocessing` forks by default on Linux (up to Python 3.13), and so do gunicorn with ``--preload`` and Airflow's
executors. A child of a parent that has read nothing yet works.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from filestore.errors import Unsupported

__all__ = ["forked_process", "require_threads"]

_TASKS = Path("/proc/self/task")  # Linux
_POOL = re.compile(r"polars-\d|tokio-rt-worker")  # those of Polars' computations, and of clients in Rust


class _Fork:
    """The process's own past.

    Attributes:
        threads: Whether it had such threads when it forked last.
        lost: Whether its parent had them.
    """

    threads = False
    lost = False


def require_threads() -> None:
    """Raises an error instead of waiting for threads that a fork has lost.

    Raises:
        Unsupported: ``forked-process``.
    """
    if _Fork.lost:
        raise forked_process("read or written a table", "threads")


def forked_process(done: str, lost: str) -> Unsupported:
    """Returns the error of a process that cannot work since it was forked.

    Args:
        done: What its parent had done.
        lost: What of the parent does not survive a fork.
    """
    return Unsupported(
        f"this process was forked from one that has {done}, whose {lost} do not survive that: start it by "
        "multiprocessing's spawn or forkserver, as in multiprocessing.get_context('forkserver'), or fork before any "
        "table is used",
        code="forked-process",
    )


def _before() -> None:
    _Fork.threads = _has_threads()


def _in_child() -> None:
    _Fork.lost = _Fork.lost or _Fork.threads


def _has_threads() -> bool:
    return any(_POOL.match(_name(path)) for path in _TASKS.glob("*/comm"))


def _name(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # the thread has just ended


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_child=_in_child)
