"""Lists what a catalog has as rows for people: databases, tables and views, columns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from filestore.errors import InvalidRequest, NotFound
from filestore.model.types import to_sql
from tablestore.store import Store
from tablestore.table import Table

__all__ = ["Listing", "columns_of", "relations"]

_SQL_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
"""Spark's names of types in JSON that are others in SQL."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A small table for people.

    Attributes:
        header: The titles of its columns.
        rows: The values.
        title: What is above it.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""


def relations(store: Store, database: str | None) -> Listing:
    """Tables and views of a database, or of all."""
    found = []
    for name in store.list_databases() if database is None else [database]:
        found += [(name, table, "table") for table in store.list_tables(name)]
        found += [(name, view, "view") for view in store.list_views(name)]
    return Listing(("database", "name", "kind"), tuple(sorted(found)))


def columns_of(store: Store, name: str) -> Listing:
    """The columns of a table or a view.

    Raises:
        NotFound: there is neither.
    """
    try:
        table = store.any_table(name)
    except NotFound as error:
        try:
            view = store.view(name)
        except NotFound:
            raise error from None
        return Listing(("column", "type"), _of_view(view.columns), f"view {name}: {view.query}")
    key = table.definition.primary_key if isinstance(table, Table) else ()
    comments = {c.name: c.comment for c in table.definition.schema} if isinstance(table, Table) else {}
    rows = tuple(
        (
            column.name,
            to_sql(column.type),
            "" if column.nullable else "not null",
            "key" if column.name in key else "",
            comments.get(column.name) or "",
        )
        for column in table.schema
    )
    kind = "table" if isinstance(table, Table) else "Kafka topic"
    return Listing(("column", "type", "null", "key", "comment"), rows, f"{kind} {name}")


def _of_view(columns: str) -> tuple[tuple[str, str], ...]:
    """The columns of a view, which the catalog keeps as Spark writes them."""
    try:
        fields: list[dict[str, Any]] = json.loads(columns)["fields"]
        return tuple((field["name"], _shown(field["type"])) for field in fields)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidRequest("the view was made by an engine that is unknown here", code="unknown-view") from error


def _shown(kind: Any) -> str:
    if isinstance(kind, str):
        return _SQL_NAMES.get(kind, kind).upper()
    match kind.get("type"):
        case "array":
            return f"ARRAY<{_shown(kind['elementType'])}>"
        case "map":
            return f"MAP<{_shown(kind['keyType'])}, {_shown(kind['valueType'])}>"
        case "struct":
            inner = (f"{field['name']}: {_shown(field['type'])}" for field in kind["fields"])
            return f"STRUCT<{', '.join(inner)}>"
        case other:
            return str(other).upper()
