"""Requests and answers about databases, lists, errors and the service; a part of `catalog_service.wire`.

This module does not import Arrow, so that a client that only lists tables loads in a fraction of the time.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from catalog_service.messages import AnswerModel, RequestModel, with_examples

__all__ = [
    "CatalogConfig",
    "CreateDatabase",
    "DatabaseInfo",
    "DatabasePage",
    "Health",
    "Problem",
    "TablePage",
    "TableSummary",
    "Violation",
]

_TABLE_ID = "6f1c2f0e-9d3b-4c39-8a53-0c7f0a2d7c11"
_LOCATION = "/data/warehouse/shop/orders"
_CREATED = "2026-11-21T12:00:00Z"


class CreateDatabase(RequestModel):
    """The body of ``POST /databases``."""

    model_config = with_examples({"name": "shop", "comment": "Orders and items"})

    name: str = Field(description="ASCII letters, digits and underscores, a letter first; stored in lower case.")
    comment: str | None = None


class DatabaseInfo(AnswerModel):
    """A database."""

    model_config = with_examples(
        {
            "name": "shop",
            "comment": "Orders and items",
            "location": "/data/warehouse/shop",
            "created_at": _CREATED,
        }
    )

    name: str
    comment: str | None = None
    location: str = Field(description="The folder or URL that contains its tables.")
    created_at: datetime


class DatabasePage(AnswerModel):
    """A page of databases, ordered by name."""

    databases: list[DatabaseInfo]
    next_page_token: str | None = Field(None, description="The token of the next page; null on the last.")


class TableSummary(AnswerModel):
    """A table in a list."""

    model_config = with_examples(
        {
            "database": "shop",
            "name": "orders",
            "table_id": _TABLE_ID,
            "location": _LOCATION,
            "comment": "One row an order",
            "created_at": _CREATED,
        }
    )

    database: str
    name: str
    table_id: str
    connector: str | None = Field(None, description="`kafka` or `upsert-kafka`; null for a managed table.")
    location: str | None = Field(description="The path or URL of the table; null for a table with a connector.")
    comment: str | None = None
    created_at: datetime


class TablePage(AnswerModel):
    """A page of tables, ordered by name."""

    tables: list[TableSummary]
    next_page_token: str | None = Field(None, description="The token of the next page; null on the last.")


class CatalogConfig(AnswerModel):
    """The service's limits and endpoints, which a client may read before its first request."""

    version: str = Field(description="The version of Tablestore.", examples=["0.1.0"])
    warehouse: str = Field(description="The folder that contains the databases.", examples=["/data/warehouse"])
    page_size: int = Field(description="The entries of a page if the request names no other number.", examples=[100])
    page_size_max: int = Field(examples=[1000])
    endpoints: list[str] = Field(examples=[["GET /api/v1/databases"]])


class Health(AnswerModel):
    """Says that the service answers, and for `/ready` that its database does, too."""

    status: Literal["ok"] = "ok"


class Violation(BaseModel):
    """A part of a request that does not fit the schema."""

    pointer: str = Field(description="The place, as a JSON pointer that begins with body, query or path.")
    detail: str


class Problem(BaseModel):
    """An error in the format of RFC 9457. Programs check `code`; people read `detail`, which may change."""

    model_config = with_examples(
        {
            "type": "urn:tablestore:problem:not-found",
            "title": "Not found",
            "status": 404,
            "detail": "there is no table 'orders' in database 'shop': create it, or look at the list of tables",
            "instance": "/api/v1/databases/shop/tables/orders",
            "code": "table-not-found",
        }
    )

    type: str = Field(description="The class of the error; it says what the client can do next.")
    title: str
    status: int
    detail: str = Field(description="What is wrong with which value, and what to do.")
    instance: str = Field(description="The path of the request.")
    code: str = Field(description="The stable code of the error.")
    errors: list[Violation] | None = Field(None, description="Each violation, for `invalid-request`.")
