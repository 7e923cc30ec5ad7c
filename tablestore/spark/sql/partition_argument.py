"""The partition that an argument of a procedure names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from filestore.errors import InvalidRequest
from filestore.model.definition import TableDefinition
from tablestore.spark.store import SparkStore
from tablestore.writing.overwrite import parse_spec

__all__ = ["partition_argument"]

_CASE = "spark.sql.caseSensitive"


def partition_argument(store: SparkStore, table: str, text: str) -> dict[str, Any]:
    """Returns the values of partition columns, as statements of the session mean them.

    Their names may be in another case unless the session minds it, and times without a zone are of its time zone.

    Args:
        store: The store, with the session.
        table: ``database.table``.
        text: The argument.

    Raises:
        InvalidRequest: ``bad-partition``.
    """
    definition = store.store.table(table).definition
    found = _as_declared(store, definition, text)
    return {name: _moment(store, value) if _is_time(definition, name) else value for name, value in found.items()}


def _as_declared(store: SparkStore, definition: TableDefinition, text: str) -> dict[str, str | None]:
    given = parse_spec(text)
    if str(store.spark.conf.get(_CASE)).lower() == "true":
        return given
    partition_by = definition.partition_by
    names = {name.lower(): name for name in partition_by} | {name: name for name in partition_by}
    found = {names.get(name) or names.get(name.lower(), name): value for name, value in given.items()}
    if len(found) < len(given):
        raise InvalidRequest(f"partition {text!r} names a column twice: leave one of the two out", code="bad-partition")
    return found


def _is_time(definition: TableDefinition, name: str) -> bool:
    kind = definition.schema.column(name).type if name in definition.partition_by else None
    return kind is not None and pa.types.is_timestamp(kind) and kind.tz is not None


def _moment(store: SparkStore, text: str | None) -> str | datetime | None:
    """Returns the time that a text is to the session; what is none stays as it is, and is refused as such."""
    read = "SELECT unix_micros(try_cast(:text AS TIMESTAMP_LTZ))"
    [(micros,)] = store.spark.sql(read, {"text": text}).collect()
    return text if micros is None else datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)
