"""A place of a test where the tasks of refreshes run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from tablestore.views.engines.either import Engine
from tablestore.views.engines.tasks import Tasks, WorkRunner

__all__ = ["running"]


def running(run: WorkRunner) -> Engine:
    """Returns what `View.executed_by` takes for a view whose rows need no Spark: tasks are run by `run`."""
    return cast(Engine, SimpleNamespace(tasks=Tasks(run)))
