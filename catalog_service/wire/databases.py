"""Requests and answers about databases, and the lists of databases and tables.

This module does not import Arrow, so that a client that only lists tables loads in a fraction of the time.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from catalog_service.wire.messages import AnswerModel, RequestModel, with_examples

__all__ = [
    "CreateDatabase",
    "DatabaseInfo",
    "DatabasePage",
    "TablePage",
    "TableSummary",
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
