"""Requests and answers about views and names. This module does not import Arrow."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from catalog_service.wire.messages import AnswerModel, OptionText, RequestModel, with_examples

__all__ = ["CreateView", "Rename", "ViewInfo", "ViewPage", "ViewSummary"]

_VIEW_ID = "2a7d9c54-0b1e-4d4f-9a57-3c1f5f0d8e21"
_CREATED = "2026-11-25T12:00:00Z"
_QUERY = "SELECT id, amount FROM orders WHERE amount > 100"
_COLUMNS = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":false,"metadata":{}}]}'
_CONTEXT = {"catalog": "lake", "namespace": ["shop"]}


class CreateView(RequestModel):
    """The body of ``POST /databases/{database}/views``."""

    model_config = with_examples({"name": "large", "query": _QUERY, "columns": _COLUMNS, "context": _CONTEXT})

    name: str = Field(description="As a table's; a view and a table of one database cannot have one name.")
    query: str = Field(description="The text of the query, which the catalog does not parse.")
    columns: str = Field(description="The columns as the engine describes them; Spark writes a StructType as JSON.")
    context: dict[str, Any] = Field(
        default_factory=dict, description="What the engine needs to read the text, such as the current catalog."
    )
    properties: dict[str, OptionText] = Field(default_factory=dict)
    comment: str | None = None


class ViewSummary(AnswerModel):
    """A view in a list."""

    model_config = with_examples({"database": "shop", "name": "large", "view_id": _VIEW_ID, "created_at": _CREATED})

    database: str
    name: str
    view_id: str
    comment: str | None = None
    created_at: datetime


class ViewInfo(ViewSummary):
    """A view in full."""

    model_config = with_examples(
        {
            "database": "shop",
            "name": "large",
            "view_id": _VIEW_ID,
            "query": _QUERY,
            "columns": _COLUMNS,
            "context": _CONTEXT,
            "properties": {},
            "created_at": _CREATED,
        }
    )

    query: str
    columns: str
    context: dict[str, Any]
    properties: dict[str, str]


class ViewPage(AnswerModel):
    """A page of views, ordered by name."""

    views: list[ViewSummary]
    next_page_token: str | None = Field(None, description="The token of the next page; null on the last.")


class Rename(RequestModel):
    """The body of ``POST …/rename``: the new name of a table or a view."""

    model_config = with_examples({"name": "orders_of_2026"})

    name: str = Field(description="The new name, in the same database.")
    replace: bool = Field(
        False, description="Whether a table that has the new name is dropped in the same moment; of a view, a view."
    )
