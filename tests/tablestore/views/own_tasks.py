"""Who computes the rows of views in tests: places where tasks run, and the ways of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

from filestore.commit.proposal import AppVersion
from tablestore.views.engines.either import Engine
from tablestore.views.tasks import Tasks, WorkRunner
from tablestore.views.view import View
from tablestore.writing.apps import VIEW_APP
from tablestore.writing.given_rows import GivenRows
from tests.tables import to_arrow
from tests.warehouses import Row

__all__ = ["IN_SPARK", "WAYS", "forged", "running"]

IN_SPARK = {"view.local-memory": "0"}
"""Those of one that Spark computes, by keys or as a whole, and compares."""
_COMPARED = {"view.setting.spark.sql.maxPlanStringLength": "1000"}
"""Those of one whose rows Spark computes, for a setting that changes nothing, and this process compares."""
WAYS: Mapping[str, Mapping[str, str]] = {"here": {}, "in Spark": IN_SPARK, "compared here": _COMPARED}


def running(run: WorkRunner) -> Engine:
    """Returns what `View.executed_by` takes for a view whose rows need no Spark: tasks are run by `run`."""
    return cast(Engine, SimpleNamespace(tasks=Tasks(run)))


def forged(view: View, *changes: Row) -> None:
    """Commits rows as a refresh that is wrong."""
    state = view.table.filestore.state()
    app = AppVersion(VIEW_APP, state.app_versions[VIEW_APP] + 1, tuple(sorted(state.positions.items())))
    view.table.writer().write(GivenRows(to_arrow(state.definition, changes)), app=app)
