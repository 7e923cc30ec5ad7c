"""Opens formats by their names, and checks options and column types once, when a table is created or opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from filestore.errors import InvalidRequest
from filestore.model.text import name_list
from log.connector.formats.avro.format import AvroConfluentFormat, AvroFormat, Registry
from log.connector.formats.avro.schema import check_avro_name, check_avro_type
from log.connector.formats.avro.schema_registry import SchemaRegistry
from log.connector.formats.canal import CanalJsonFormat
from log.connector.formats.csv import CsvFormat, check_csv_type
from log.connector.formats.debezium.format import DebeziumJsonFormat
from log.connector.formats.format import Format, Role
from log.connector.formats.json.format import JsonFormat, check_json_type
from log.connector.formats.json.texts import JsonStyle
from log.connector.formats.options import FORMAT_OPTIONS, parse_options
from log.connector.formats.raw import RawFormat, check_raw_type

__all__ = ["open_format"]

_CHANGELOG = ("debezium-json", "canal-json")


def open_format(
    name: str,
    schema: pa.Schema,
    options: Mapping[str, str],
    role: Role,
    *,
    topic: str | None = None,
    registry: Registry | None = None,
) -> Format:
    """Opens a format.

    Args:
        name: Such as ``json``: a key of `options.FORMAT_OPTIONS`.
        schema: The columns that it spells, of the types of `filestore.model.types`.
        options: Its options, by their names without the format's (`options.select_options`).
        role: Which half of a message it spells.
        topic: Gives ``avro-confluent`` its subject.
        registry: In place of the one at ``avro-confluent.url``.

    Raises:
        InvalidRequest: ``unknown-format``; ``unknown-option`` or ``invalid-option``; ``format-type``: a column has a
            type that the format cannot hold; ``format-role``: a key cannot be a change.
    """
    if name not in FORMAT_OPTIONS:
        raise InvalidRequest(f"unknown format {name!r}: there are {', '.join(FORMAT_OPTIONS)}", code="unknown-format")
    if role is Role.KEY and name in _CHANGELOG:
        raise InvalidRequest(
            f"{name} encodes changes, so it cannot encode keys: take another format, such as json", code="format-role"
        )
    values = parse_options(name, options)
    _check_types(name, schema)
    if name == "avro-confluent":
        return _avro_confluent(schema, values, role, topic, registry)
    return _OPENERS[name](schema, values)


def _check_types(name: str, schema: pa.Schema) -> None:
    check, check_name = _TYPES[name], check_avro_name if name.startswith("avro") else None
    if name == "raw" and len(schema) != 1:
        raise InvalidRequest(
            f"raw holds one column, and there are {len(schema)}: {name_list(schema.names)}", code="format-type"
        )
    if name == "csv" and not len(schema):
        raise InvalidRequest("csv needs a column at least", code="format-type")
    for field in schema:
        found = (check_name(field.name) if check_name else None) or check(field.type)
        if found:
            raise InvalidRequest(f"column {field.name!r} cannot be {name}: it has {found}", code="format-type")


_TYPES: Mapping[str, Callable[[pa.DataType], str | None]] = {
    "json": check_json_type,
    "debezium-json": check_json_type,
    "canal-json": check_json_type,
    "csv": check_csv_type,
    "avro": check_avro_type,
    "avro-confluent": check_avro_type,
    "raw": check_raw_type,
}


def _style(values: Mapping[str, Any]) -> JsonStyle:
    return JsonStyle(
        iso=values["timestamp-format.standard"] == "ISO-8601",
        ignore_nulls=values["encode.ignore-null-fields"],
        # A number in an envelope that says "string" would be read as another type.
        decimals_as_text=values.get("schema-include", False),
    )


def _json(schema: pa.Schema, values: Mapping[str, Any]) -> Format:
    return JsonFormat(schema, _style(values), values["fail-on-missing-field"])


def _debezium_json(schema: pa.Schema, values: Mapping[str, Any]) -> Format:
    return DebeziumJsonFormat(schema, _style(values), values["schema-include"])


def _canal_json(schema: pa.Schema, values: Mapping[str, Any]) -> Format:
    return CanalJsonFormat(schema, _style(values), values["database.include"], values["table.include"])


def _csv(schema: pa.Schema, values: Mapping[str, Any]) -> Format:
    delimiter, escape = values["field-delimiter"], values["escape-character"]
    quote = None if values["disable-quote-character"] else values["quote-character"]
    if values["disable-quote-character"] and values["quote-character"] != '"':
        raise InvalidRequest(
            "csv.quote-character has no meaning with csv.disable-quote-character = true: leave one away",
            code="invalid-option",
        )
    marks = [mark for mark in (delimiter, quote, escape) if mark is not None]
    if len(set(marks)) < len(marks):
        raise InvalidRequest(
            "csv.field-delimiter, csv.quote-character and csv.escape-character must differ", code="invalid-option"
        )
    return CsvFormat(
        schema,
        delimiter,
        quote,
        escape,
        values["null-literal"],
        values["array-element-delimiter"],
        values["allow-comments"],
    )


def _avro(schema: pa.Schema, values: Mapping[str, Any]) -> Format:
    return AvroFormat(schema, bool(values["timestamp_mapping.legacy"]))


def _raw(schema: pa.Schema, values: Mapping[str, Any]) -> Format:
    return RawFormat(schema, values["charset"], values["endianness"] == "big-endian")


def _avro_confluent(
    schema: pa.Schema, values: Mapping[str, Any], role: Role, topic: str | None, registry: Registry | None
) -> Format:
    if values["url"] is None and registry is None:
        raise InvalidRequest("avro-confluent needs the option avro-confluent.url", code="invalid-option")
    if values["subject"] is None and topic is None:
        raise InvalidRequest("avro-confluent needs the option avro-confluent.subject", code="invalid-option")
    subject = values["subject"] or f"{topic}-{role}"
    if registry is None:
        registry = SchemaRegistry(
            values["url"], values["basic-auth.user-info"], values["bearer-auth.token"], values["ssl.ca.location"]
        )
    return AvroConfluentFormat(schema, registry, subject, values["timestamp_mapping.legacy"])


_OPENERS: Mapping[str, Callable[[pa.Schema, Mapping[str, Any]], Format]] = {
    "json": _json,
    "debezium-json": _debezium_json,
    "canal-json": _canal_json,
    "csv": _csv,
    "avro": _avro,
    "raw": _raw,
}
