"""Makes Spark use this Python for looking up formats, for planning them, and for tasks.

By default Spark starts `python3` of the PATH, unless `PYSPARK_PYTHON` or `PYSPARK_DRIVER_PYTHON` is set. In a job that
cron starts as ``venv/bin/python job.py`` that is another Python without our packages, which does not know
``format("tablestore")``. IMPORTANT: Spark's JVM reads the variables once, when it starts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["look_up_with_this_python", "started_with_this_python", "work_with_this_python"]

_ALL, _DRIVER, _PATH = "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PATH"


def look_up_with_this_python() -> None:
    """Makes the next JVM look formats up with this Python, unless the user has chosen another one.

    Tasks of a cluster keep their own Python, because the path of this one may not exist there.
    """
    if _ALL not in os.environ and sys.executable:
        os.environ.setdefault(_DRIVER, sys.executable)


@contextmanager
def started_with_this_python(name: str | None) -> Iterator[None]:
    """Surrounds the start of a session: its JVM and its tasks use this Python, unless the user has chosen another one.

    The environment is as before at the end: the next session of this process may need other variables.

    Args:
        name: What this Python is called in folders of the PATH, such as ``python3.11``, for a cluster on whose hosts
            it has another path: each host finds its own, and the driver this one. None: its path is the same there.
    """
    before = {variable: os.environ.get(variable) for variable in (_ALL, _DRIVER, _PATH)}
    if before[_ALL] in (None, sys.executable):
        os.environ[_ALL] = name or sys.executable
        if name is not None:
            os.environ[_PATH] = os.pathsep.join(filter(None, (os.path.dirname(sys.executable), before[_PATH])))
    os.environ.setdefault(_DRIVER, sys.executable)
    try:
        yield
    finally:
        for variable, value in before.items():
            if value is None:
                os.environ.pop(variable, None)
            else:
                os.environ[variable] = value


def work_with_this_python(context: SparkContext | None) -> None:
    """Makes the tasks of a session on this machine run with this Python, unless the user has chosen another one.

    Args:
        context: The running context; None with Spark Connect, where the server decides.
    """
    if context is not None and _ALL not in os.environ and sys.executable and (context.master or "").startswith("local"):
        context.pythonExec = sys.executable
