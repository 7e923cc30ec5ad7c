"""Encodes and decodes the definitions of tables and views as the catalog's database stores them: as JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from catalog_service.database.schema import Definition
from catalog_service.model.view_definition import ViewDefinition
from filestore.model.definition import TableDefinition
from filestore.model.schema import Column, Schema
from filestore.model.table_columns import MetadataColumn, TableColumns
from filestore.model.table_options import TableOptions
from log.connector.declaration import KafkaDeclaration

__all__ = ["VIEW", "comment_in", "connector_of", "decode_definition", "encode_definition"]

VIEW = "view"
"""The value that a view has in place of a connector."""

_REMEMBERED = 20_000  # characters of a definition that is kept decoded


def connector_of(definition: Definition) -> str | None:
    """The name of a table's connector; None for a managed table, and `VIEW` for a view."""
    if isinstance(definition, ViewDefinition):
        return VIEW
    return str(definition.connector) if isinstance(definition, KafkaDeclaration) else None


def encode_definition(definition: Definition) -> str:
    """Encodes a definition as the JSON that the catalog stores."""
    if isinstance(definition, ViewDefinition):
        return definition.encoded()
    if isinstance(definition, KafkaDeclaration):
        return json.dumps(_encoded(definition))
    return json.dumps(
        {
            "schema": definition.schema.to_delta(),
            "primary_key": definition.primary_key,
            "partition_by": definition.partition_by,
            "options": definition.options.as_dict(),
            "comment": definition.comment,
        }
    )


def decode_definition(text: str) -> Definition:
    """Reverses `encode_definition`. It does not check again: rules of later versions must not break old tables."""
    return _remembered(text) if len(text) < _REMEMBERED else _decoded(text)


def _decoded(text: str) -> Definition:
    stored = json.loads(text)
    if "query" in stored:
        return ViewDefinition.decoded(stored)
    if "metadata" in stored:
        return _declaration(stored)
    return TableDefinition(
        Schema.from_delta(stored["schema"]),
        tuple(stored["primary_key"]),
        tuple(stored["partition_by"]),
        TableOptions(tuple(sorted(stored["options"].items()))),
        stored["comment"],
    )


def comment_in(text: str) -> str | None:
    """Returns only the comment of a stored definition: a list of tables needs nothing else."""
    comment: str | None = json.loads(text)["comment"]
    return comment


_remembered = lru_cache(maxsize=1024)(_decoded)  # the same definitions are read often, and each text has one meaning


def _encoded(declaration: KafkaDeclaration) -> dict[str, Any]:
    """Encodes all columns as for a managed table, and beside them, by name, what makes some metadata columns."""
    columns = declaration.columns
    schema = Schema(tuple(Column(c.name, c.type, c.nullable, c.comment) for c in columns.columns))
    return {
        "schema": schema.to_delta(),
        "metadata": {c.name: {"key": c.key, "virtual": c.virtual} for c in columns.metadata},
        "primary_key": declaration.primary_key,
        "options": declaration.options,
        "comment": declaration.comment,
    }


def _declaration(stored: Mapping[str, Any]) -> KafkaDeclaration:
    metadata = stored["metadata"]
    columns = tuple(
        MetadataColumn(c.name, c.type, metadata[c.name]["key"], metadata[c.name]["virtual"], c.nullable, c.comment)
        if c.name in metadata
        else c
        for c in Schema.from_delta(stored["schema"])
    )
    options = tuple(sorted(stored["options"].items()))
    return KafkaDeclaration(TableColumns(columns), tuple(stored["primary_key"]), options, stored["comment"])
