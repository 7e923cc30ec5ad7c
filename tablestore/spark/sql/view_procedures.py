"""The procedures of materialized views: they create, explain, drop and refresh them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from filestore.errors import AlreadyExists, CommitUnknown, Conflict
from tablestore.spark.sql.procedure import TABLE, Arguments, Parameter, Procedure, Row
from tablestore.spark.store import SparkStore
from tablestore.views.opening import drop_view
from tablestore.views.sql.place import Place
from tablestore.views.view import Refreshed, View
from tablestore.views.view_creation import MaterializedView

__all__ = ["VIEW_PROCEDURES"]


def _asked(given: Arguments) -> MaterializedView:
    name = given["table"]
    return MaterializedView(
        name,
        given["query"],
        Place(given["catalog"], given["database"] or name.partition(".")[0]),
        json.loads(given["options"]),
        given["comment"],
        tuple(json.loads(given["primary_key"])),
    )


def _create_view(store: SparkStore, given: Arguments) -> list[Row]:
    name = given["table"]
    try:
        view = store.create_asked_view(_asked(given))
    except AlreadyExists:
        if not given["if_not_exists"]:
            raise
        return []
    try:
        done = view.refresh()
    except (Conflict, CommitUnknown):
        raise  # somebody has refreshed it, or perhaps this statement
    except BaseException:
        drop_view(store.store, name, if_exists=True)
        raise
    return [] if done is None else [_refreshed(view, done)]


def _explain_view(store: SparkStore, given: Arguments) -> list[Row]:
    return [(line,) for line in store.explain_view(None if given["query"] is None else _asked(given), given["table"])]


def _drop_view(store: SparkStore, given: Arguments) -> list[Row]:
    drop_view(store.store, given["table"], if_exists=given["if_exists"])
    return []


def _refresh(store: SparkStore, given: Arguments) -> list[Row]:
    return [_refreshed(view, done) for view, done in store.refresh(given["table"], rebuild=given["rebuild"])]


def _refreshed(view: View, done: Refreshed) -> Row:
    """Returns the row of a refresh: the view, its version, the versions of its tables, and whether it was whole."""
    versions = ", ".join(f"{table} {version}" for table, version in done.inputs.items())
    return view.table.identifier, done.version, versions, done.whole


_VIEW_PARTS = (
    Parameter("database", "that of names without one; null: the view's", default="NULL"),
    Parameter("options", "options of its table, as a JSON object", default="'{}'"),
    Parameter("comment", "free text", default="NULL"),
)
_VIEW_KEY = Parameter("primary_key", "the columns of its key, as a JSON list; empty: that of the query", default="'[]'")
_REFRESHED = "view STRING, version BIGINT, inputs STRING, whole BOOLEAN"

VIEW_PROCEDURES: Sequence[Procedure] = (
    Procedure(
        "create_materialized_view",
        "Creates a view whose rows are stored, and computes them. CREATE MATERIALIZED VIEW calls it.",
        (
            TABLE,
            Parameter("query", "its query"),
            *_VIEW_PARTS,
            Parameter("if_not_exists", "whether the name may be taken", "BOOLEAN", "false"),
            _VIEW_KEY,
        ),
        _REFRESHED,
        _create_view,
    ),
    Procedure(
        "explain_materialized_view",
        "Says how a view is refreshed: incrementally, or as a whole and why. EXPLAIN of the other statements calls it.",
        (
            TABLE,
            Parameter("query", "that of a view to be created; null: the view exists", default="NULL"),
            *_VIEW_PARTS,
            Parameter("if_not_exists", "changes nothing", "BOOLEAN", "false"),
            _VIEW_KEY,
        ),
        "plan STRING",
        _explain_view,
    ),
    Procedure(
        "drop_materialized_view",
        "Drops a materialized view with its rows. DROP MATERIALIZED VIEW calls it.",
        (TABLE, Parameter("if_exists", "whether there may be none", "BOOLEAN", "false")),
        _REFRESHED,
        _drop_view,
    ),
    Procedure(
        "refresh",
        "Adds what has changed to a materialized view, and before to the views that it reads; returns those that "
        "were not up to date. REFRESH MATERIALIZED VIEW [FULL] calls it.",
        (TABLE, Parameter("rebuild", "computes all rows of the view again", "BOOLEAN", "false")),
        _REFRESHED,
        _refresh,
    ),
)
"""The procedures of materialized views."""
