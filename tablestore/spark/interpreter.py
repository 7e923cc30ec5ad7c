"""Which Python Spark starts beside this one: for looking up formats, for planning them, and for tasks.

Spark takes `python3` of the PATH unless `PYSPARK_PYTHON` or `PYSPARK_DRIVER_PYTHON` says otherwise. In a job that cron
starts as ``venv/bin/python job.py`` that is another Python, which lacks our packages: ``format("tablestore")`` was
then unknown. IMPORTANT: Spark's JVM reads the variables once, when it starts.
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
    """From the next start of a JVM on, formats are looked up with this Python, unless the user has chosen another.

    Tasks of a cluster keep the Python that they have: this one's path need not exist there.
    """
    if _ALL not in os.environ and sys.executable:
        os.environ.setdefault(_DRIVER, sys.executable)


def work_with_this_python(context: SparkContext | None) -> None:
    """Tasks of a session on this machine run with this Python, unless the user has chosen another.

    Args:
        context: The running one; None with Spark Connect, whose server has chosen.
    """
    if context is not None and _ALL not in os.environ and sys.executable and (context.master or "").startswith("local"):
        context.pythonExec = sys.executable
