"""Declarations for tests."""

from __future__ import annotations

from collections.abc import Mapping

from filestore.model.sql import parse_column_list
from filestore.model.table_columns import TableColumns
from log.connector.declaration import KafkaDeclaration

__all__ = ["KAFKA", "UPSERT", "declared"]

_BROKER = {"topic": "t", "properties.bootstrap.servers": "127.0.0.1:1"}
KAFKA = {"connector": "kafka", "value.format": "json", **_BROKER}
UPSERT = {"connector": "upsert-kafka", "key.format": "json", "value.format": "json", **_BROKER}


def declared(columns: str, base: Mapping[str, str], **options: str | None) -> KafkaDeclaration:
    """A declaration; options with ``_`` for ``.`` and ``__`` for ``-`` add to those of `base`, None takes one away."""
    parsed = parse_column_list(columns)
    named = {name.replace("__", "-").replace("_", "."): value for name, value in options.items()}
    given = {name: value for name, value in {**base, **named}.items() if value is not None}
    return KafkaDeclaration.of(TableColumns(parsed.columns), parsed.primary_key, given)
