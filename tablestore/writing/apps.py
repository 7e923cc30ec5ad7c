"""Checks who writes: callers' own numbers of their writes, and that only refreshes write the rows of a view."""

from __future__ import annotations

from filestore.commit.proposal import AppVersion
from filestore.errors import InvalidRequest
from filestore.model.definition import TableDefinition
from filestore.model.text import check_text

__all__ = ["VIEW_APP", "app_version", "check_may_write"]

VIEW_APP = "tablestore.view"
"""The app id of the refreshes of a maintained view."""

_RESERVED_APPS = ("tablestore.", "spark.")


def app_version(app_id: str, number: int) -> AppVersion:
    """Returns a caller's app version; refuses ids of the store and its Spark sink, whose numbers would collide."""
    if not app_id or app_id.startswith(_RESERVED_APPS):
        raise InvalidRequest(
            f"app id {app_id!r} is empty or begins with one of {', '.join(_RESERVED_APPS)}, which the store keeps for "
            "itself: take another, such as your job's name",
            code="bad-app",
        )
    check_text("the app id", app_id)
    if not 0 <= number < 2**63:
        raise InvalidRequest(
            f"app {app_id!r} has number {number}: numbers go from 0 to 2**63 - 1, and grow from write to write",
            code="bad-app",
        )
    return AppVersion(app_id, number)


def check_may_write(definition: TableDefinition, app: AppVersion | None) -> None:
    """Checks that a write of a maintained view is a refresh of it.

    Raises:
        InvalidRequest: ``maintained-view``.
    """
    if definition.is_view and (app is None or app.app_id != VIEW_APP):
        raise InvalidRequest(
            f"the table is a maintained view, whose rows are the result of {definition.options['view.query']}: write "
            "to the tables that it reads, and refresh it",
            code="maintained-view",
        )
