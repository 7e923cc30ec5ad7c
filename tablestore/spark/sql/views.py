"""Performs Java's requests about views: the catalog keeps Spark's descriptions, and only Spark reads their queries."""

from __future__ import annotations

from typing import Any

from catalog_service.wire.views import ViewInfo
from filestore.errors import NotFound, Unsupported
from tablestore.spark.sql.databases import ensure_default
from tablestore.spark.sql.requests import Request, name_of
from tablestore.store import Store

__all__ = ["create_view", "described_view", "drop_view", "load_view", "rename_view"]

_OF_SPARK = {"table_type", "owner", "provider"}
_EVOLVING = {"EVOLUTION", "TYPE EVOLUTION"}


def load_view(store: Store, request: Request) -> dict[str, Any]:
    """Returns a view."""
    return described_view(store.view(name_of(request)))


def described_view(view: ViewInfo) -> dict[str, Any]:
    """Describes a view for ``Views.java``."""
    return view.model_dump(include={"query", "columns", "context", "properties", "comment"})


def create_view(store: Store, request: Request) -> dict[str, Any]:
    """Creates a view, or replaces one."""
    _refuse_what_is_not_kept(request)
    ensure_default(store, request)
    view = store.create_view(
        name_of(request),
        request["query"],
        columns=request["columns"],
        context=request["context"],
        properties={name: value for name, value in request["properties"].items() if name not in _OF_SPARK},
        comment=request["comment"],
        or_replace=request["replace"],
    )
    return described_view(view)


def _refuse_what_is_not_kept(request: Request) -> None:
    """Raises `Unsupported` for a view that would not be read as it was meant (decision 118)."""
    if (mode := request["context"]["schema_mode"]) in _EVOLVING:
        raise Unsupported(
            f"view {name_of(request)} cannot be WITH SCHEMA {mode}: Spark changes the columns of such views while they "
            "are read, and in its own catalog alone. Leave the clause out, or write WITH SCHEMA COMPENSATION; if the "
            "columns have changed, write CREATE OR REPLACE VIEW",
            code="view-schema-mode",
        )
    if (kind := request["properties"].get("table_type", "VIEW")) != "VIEW":
        raise Unsupported(f"{name_of(request)} would be a {kind}: write CREATE VIEW … AS SELECT", code="unsupported")


def drop_view(store: Store, request: Request) -> bool:
    """Drops a view; returns whether there was one."""
    try:
        store.drop_view(name_of(request))
    except NotFound:
        return False
    return True


def rename_view(store: Store, request: Request) -> None:
    """Gives a view another name."""
    store.rename_view(name_of(request), f"{request['new_database']}.{request['new_table']}")
