"""Performs Java's requests about views: the catalog keeps Spark's descriptions, and only Spark reads their queries."""

from __future__ import annotations

from typing import Any

from catalog_service.wire.views import ViewInfo
from filestore.errors import NotFound
from tablestore.spark.sql.databases import ensure_default
from tablestore.spark.sql.requests import Request, name_of
from tablestore.store import Store

__all__ = ["create_view", "described_view", "drop_view", "load_view", "rename_view"]

_OF_SPARK = {"table_type", "owner", "provider"}


def load_view(store: Store, request: Request) -> dict[str, Any]:
    """Returns a view."""
    return described_view(store.view(name_of(request)))


def described_view(view: ViewInfo) -> dict[str, Any]:
    """Describes a view for ``Views.java``."""
    return view.model_dump(include={"query", "columns", "context", "properties", "comment"})


def create_view(store: Store, request: Request) -> dict[str, Any]:
    """Creates a view, or replaces one."""
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
