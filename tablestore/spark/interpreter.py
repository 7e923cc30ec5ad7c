"""Makes Spark use this Python for looking up formats, for planning them, and for tasks.

By default Spark starts `python3` of the PATH, unless `PYSPARK_PYTHON` or `PYSPARK_DRIVER_PYTHON` is set. In a job that
cron starts as ``venv/bin/python job.py`` that is another Python without our packages, which does not know
``format("tablestore")``. IMPORTANT: Spark's JVM reads the variables once, when it starts.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["look_up_with_this_python", "start_with_this_python", "work_with_this_python"]

_ALL, _DRIVER = "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"


def look_up_with_this_python() -> None:
    """Makes the next JVM look formats up with this Python, unless the user has chosen another one.

    Tasks of a cluster keep their own Python, because the path of this one may not exist there.
    """
    if _ALL not in os.environ and sys.executable:
        os.environ.setdefault(_DRIVER, sys.executable)


def start_with_this_python(name: str | None) -> None:
    """Makes the next JVM, and the context in it, use this Python, unless the user has chosen another one.

    Args:
        name: What this Python is called in folders of the PATH, such as ``python3.11``, for a cluster on whose hosts
            it has another path: each host finds its own, and the driver this one. None: its path is the same there.
    """
    if os.environ.get(_ALL) in (None, sys.executable):
        os.environ[_ALL] = name or sys.executable
        own = os.path.dirname(sys.executable)
        if name is not None and own not in os.environ.get("PATH", "").split(os.pathsep)[:1]:
            os.environ["PATH"] = os.pathsep.join(filter(None, (own, os.environ.get("PATH"))))
    os.environ.setdefault(_DRIVER, sys.executable)


def work_with_this_python(context: SparkContext | None) -> None:
    """Makes the tasks of a session on this machine run with this Python, unless the user has chosen another one.

    Args:
        context: The running context; None with Spark Connect, where the server decides.
    """
    if context is not None and _ALL not in os.environ and sys.executable and (context.master or "").startswith("local"):
        context.pythonExec = sys.executable
