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

__all__ = ["look_up_with_this_python", "work_with_this_python"]

_ALL, _DRIVER = "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"


def look_up_with_this_python() -> None:
    """Makes the next JVM look formats up with this Python, unless the user has chosen another one.

    Tasks of a cluster keep their own Python, because the path of this one may not exist there.
    """
    if _ALL not in os.environ and sys.executable:
        os.environ.setdefault(_DRIVER, sys.executable)


def work_with_this_python(context: SparkContext | None) -> None:
    """Makes the tasks of a session on this machine run with this Python, unless the user has chosen another one.

    Args:
        context: The running context; None with Spark Connect, where the server decides.
    """
    if context is not None and _ALL not in os.environ and sys.executable and (context.master or "").startswith("local"):
        context.pythonExec = sys.executable
