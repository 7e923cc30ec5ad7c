"""Derives a table's columns and key from one message of a Debezium topic. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from filestore.errors import InvalidRequest
from filestore.model.schema import Column, Schema
from log.connector.formats.connect.columns import columns_of
from log.connector.formats.connect.messages import schemas_of
from log.connector.formats.connect.schema import Described, described
from log.connector.formats.debezium.envelopes import row_schema

__all__ = ["has_schema", "key_names", "learned", "new_columns", "row_of", "teaches"]

_WITH_ROWS, _WITHOUT_ROWS = ("c", "r", "u", "d"), ("t", "m")


@dataclass(frozen=True, slots=True)
class Learned:
    """The table of a topic's changes.

    Attributes:
        columns: Its columns; those of the key are NOT NULL.
        primary_key: Its primary key.
    """

    columns: Schema
    primary_key: tuple[str, ...]


def learned(topic: str, key: bytes | None, value: bytes, columns: Schema | None, primary_key: Sequence[str]) -> Learned:
    """Derives the table from a message and from what is given.

    Args:
        topic: The topic's name, for errors.
        key: The message's key; its members are the primary key.
        value: The message's value.
        columns: If they are given, the message's schema is not read.
        primary_key: If it is given, the message's key is not read.

    Raises:
        InvalidRequest: ``no-schema``, ``no-primary-key``, ``key-fields``, ``underivable-column``, or as `Schema`.
    """
    found = columns if columns is not None else Schema(columns_of(_row(topic, value)))
    names = tuple(primary_key) or key_names(key)
    if not names:
        raise InvalidRequest(
            f"the messages of topic {topic} have no key with columns, which would identify the row of a change: pass "
            "the primary key",
            code="no-primary-key",
        )
    if strange := [name for name in names if name not in found]:
        raise InvalidRequest(
            f"the messages of topic {topic} have the key {', '.join(names)}, but {strange[0]!r} is not one of the "
            f"columns {', '.join(found.names)}: pass the primary key",
            code="key-fields",
        )
    return Learned(found.required(names), names)


def has_schema(value: bytes) -> bool | None:
    """Returns whether a message is ``{"schema": …, "payload": …}``; None if it is not a JSON object."""
    document = _object(value)
    return None if document is None else "payload" in document and "op" not in document


def teaches(value: bytes, *, strict: bool) -> bool:
    """Returns whether a table's columns and key can be derived from a message.

    A truncation or a message of the application has no row, and often no key. Messages that cannot be read are skipped
    if malformed ones are; otherwise they are accepted, and a later error says what is missing.

    Args:
        value: The message's value.
        strict: Whether a malformed message fails the ingestion.
    """
    document = _object(value)
    wrapped = document is not None and "payload" in document and "op" not in document
    payload = document["payload"] if document is not None and wrapped else document
    if not isinstance(payload, dict) or not isinstance(payload.get("op"), str):
        return strict
    if payload["op"] not in _WITH_ROWS:
        return strict and payload["op"] not in _WITHOUT_ROWS
    return strict or _readable(value, payload, document.get("schema") if document is not None and wrapped else None)


def _readable(value: bytes, payload: dict[str, Any], schema: object) -> bool:
    """Returns whether a change has a row that its schema, if it has one, describes."""
    if not any(isinstance(payload.get(side), dict) for side in ("before", "after")):
        return False
    return schema is None or _describes_rows(value)


def _describes_rows(value: bytes) -> bool:
    return any(row_of(schema) is not None for schema in schemas_of([value]))


def key_names(key: bytes | None) -> tuple[str, ...]:
    """The members of a key, in their order; none if it is not a JSON object."""
    document = None if key is None else _object(key)
    if document is None:
        return ()
    if {"schema", "payload"} == document.keys():
        document = document["payload"] if isinstance(document["payload"], dict) else {}
    return tuple(document)


def row_of(schema: str) -> Described | None:
    """The rows that an envelope's schema describes; None if it describes none."""
    try:
        return row_schema(described(schema))
    except ValueError:
        return None  # the decoder of the message reports it


def new_columns(known: Schema, row: Described) -> tuple[Column, ...]:
    """The columns of a row that a table lacks.

    Raises:
        InvalidRequest: ``underivable-column``; ``column-case``: the table has a column whose name differs only in case,
            which matters for JSON's members: its values would be null.
    """
    names = {name.lower(): name for name in known.names}
    for name, _ in row.fields:
        if (ours := names.get(name.lower(), name)) != name:
            raise InvalidRequest(
                f"the messages have the column {name!r} and the table has {ours!r}, which differs only in case: pass "
                "the columns to read, or ingest into another table",
                code="column-case",
            )
    return tuple(column for column in columns_of(row) if column.name.lower() not in names)


def _row(topic: str, value: bytes) -> Described:
    for schema in schemas_of([value]):
        if (row := row_of(schema)) is not None:
            return row
    what = "no envelope in their schema" if has_schema(value) else "no schema"
    raise InvalidRequest(
        f"the messages of topic {topic} have {what}: pass the columns, or let the converter write schemas "
        "(value.converter.schemas.enable = true)",
        code="no-schema",
    )


def _object(message: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(message)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
