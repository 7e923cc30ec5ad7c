"""Avro schemas (specification 1.12): derived from columns, and read from JSON.

| column type | Avro |
|---|---|
| BOOLEAN, FLOAT, DOUBLE, STRING, BINARY | boolean, float, double, string, bytes |
| TINYINT, SMALLINT, INT / BIGINT | int / long |
| DECIMAL | bytes, decimal |
| DATE | int, date |
| TIMESTAMP / TIMESTAMP_NTZ | long, timestamp-micros / local-timestamp-micros; or timestamp-millis for both |
| ARRAY, STRUCT | array, record |
| MAP, keys STRING | map |

A nullable one is the union of null and it, null first and the default. The record's name is Flink's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from filestore.errors import Unsupported
from filestore.model.types import contains_type

__all__ = ["RECORD_NAME", "Node", "avro_schema", "check_avro_type", "has_time", "in_milliseconds", "parse_schema"]

RECORD_NAME = "org.apache.flink.avro.generated.record"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_SIMPLE = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int64, "long"),
    (pa.types.is_integer, "int"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_string, "string"),
    (pa.types.is_binary, "bytes"),
)


@dataclass(frozen=True, slots=True)
class Node:
    """A schema, with names resolved.

    Args:
        kind: A primitive type, or record, enum, array, map, union, fixed.
        names: Of a record its fields, of an enum its symbols.
        children: Of a record its fields' types, of a union its branches, of an array or map its element's type.
        size: Of a fixed.
        logical: The logical type, or empty.
        precision: Of a decimal.
        scale: Of a decimal.
    """

    kind: str
    names: tuple[str, ...] = ()
    children: tuple[Node, ...] = ()
    size: int = 0
    logical: str = ""
    precision: int = 0
    scale: int = 0


def avro_schema(schema: pa.Schema) -> str:
    """Returns the schema of rows of these columns, as JSON without spaces."""
    return json.dumps(_record(list(schema), RECORD_NAME), separators=(",", ":"))


def check_avro_type(kind: pa.DataType) -> str | None:
    """Names what a type has that Avro cannot hold; None if nothing."""
    if pa.types.is_map(kind):
        return (
            check_avro_type(kind.item_type) if pa.types.is_string(kind.key_type) else "a MAP whose keys are not STRING"
        )
    if pa.types.is_list(kind):
        return check_avro_type(kind.value_type)
    if pa.types.is_struct(kind):
        return next((found for f in kind if (found := check_avro_name(f.name) or check_avro_type(f.type))), None)
    return None


def check_avro_name(name: str) -> str | None:
    """Says why a name is not allowed in Avro; None if it is."""
    return None if _NAME.fullmatch(name) else f"the name {name!r}: Avro's are ASCII letters, digits and _"


def _record(fields: list[pa.Field], name: str) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [_field(f, name) for f in fields]}


def _field(column: pa.Field, record: str) -> dict[str, Any]:
    described = {"name": column.name, "type": _type(column, f"{record}_{column.name}")}
    return {**described, "default": None} if column.nullable else described


def _type(column: pa.Field, name: str) -> Any:
    inner = _value_type(column.type, name)
    return ["null", inner] if column.nullable else inner


def _value_type(kind: pa.DataType, name: str) -> Any:
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_date(kind):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": _timestamp(kind)}
    if pa.types.is_list(kind):
        return {"type": "array", "items": _type(kind.value_field, name)}
    if pa.types.is_map(kind):
        return {"type": "map", "values": _type(kind.item_field, name)}
    if pa.types.is_struct(kind):
        return _record(list(kind), name)
    return next(avro for matches, avro in _SIMPLE if matches(kind))


def _timestamp(kind: pa.TimestampType) -> str:
    if kind.unit == "ms":
        return "timestamp-millis"
    return "timestamp-micros" if kind.tz else "local-timestamp-micros"


# -------------------------------------------------------------------------------------------- milliseconds


def has_time(kind: pa.DataType) -> bool:
    """Returns whether a type is, or holds, a timestamp."""
    return contains_type(kind, pa.types.is_timestamp)


def in_milliseconds(schema: pa.Schema) -> pa.Schema:
    """Returns the columns with timestamps in milliseconds at any depth, as Flink maps them."""
    return pa.schema([_field_in_milliseconds(f) for f in schema])


def _field_in_milliseconds(field: pa.Field) -> pa.Field:
    return field.with_type(_kind_in_milliseconds(field.type))


def _kind_in_milliseconds(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ms", kind.tz)
    if pa.types.is_list(kind):
        return pa.list_(_field_in_milliseconds(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, _field_in_milliseconds(kind.item_field))
    return pa.struct([_field_in_milliseconds(f) for f in kind]) if pa.types.is_struct(kind) else kind


# ------------------------------------------------------------------------------------------------ from JSON


@dataclass(slots=True)
class _Names:
    """Named types seen so far; None while one is being read."""

    known: dict[str, Node | None] = field(default_factory=dict)

    def full(self, name: str, namespace: str) -> str:
        return name if "." in name or not namespace else f"{namespace}.{name}"


def parse_schema(*texts: str) -> Node:
    """Parses the last of these schemas from JSON; those before it define types whose names it uses.

    Raises:
        Unsupported: ``avro-schema``: it is none, or it holds itself, which no column type can.
    """
    names = _Names()
    try:
        return [_parse(json.loads(text), "", names) for text in texts][-1]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unsupported(f"an Avro schema cannot be read: {error!r}", code="avro-schema") from error


def _parse(given: Any, namespace: str, names: _Names) -> Node:
    if isinstance(given, list):
        return Node("union", children=tuple(_parse(branch, namespace, names) for branch in given))
    if isinstance(given, str):
        return Node(given) if given in _PRIMITIVES else _named(names.full(given, namespace), given, names)
    kind = given["type"]
    if not isinstance(kind, str):
        return _parse(kind, namespace, names)
    if kind in ("record", "error", "enum", "fixed"):
        return _parse_named(given, namespace, names)
    if kind == "array":
        return Node("array", children=(_parse(given["items"], namespace, names),))
    if kind == "map":
        return Node("map", children=(_parse(given["values"], namespace, names),))
    plain = _parse(kind, namespace, names)
    return _logical(plain, given) if kind in _PRIMITIVES else plain


def _named(full: str, given: str, names: _Names) -> Node:
    node = names.known[full] if full in names.known else names.known[given]
    if node is None:
        raise Unsupported(f"the Avro type {given} holds itself, which no column can", code="avro-schema")
    return node


def _parse_named(given: Mapping[str, Any], namespace: str, names: _Names) -> Node:
    full = names.full(given["name"], given.get("namespace", namespace))
    names.known[full] = None
    inner = full.rpartition(".")[0]
    if given["type"] == "enum":
        node = Node("enum", names=tuple(given["symbols"]))
    elif given["type"] == "fixed":
        node = _logical(Node("fixed", size=int(given["size"])), given)
    else:
        fields = given["fields"]
        children = tuple(_parse(f["type"], inner, names) for f in fields)
        node = Node("record", tuple(f["name"] for f in fields), children)
    names.known[full] = node
    return node


def _logical(node: Node, given: Mapping[str, Any]) -> Node:
    logical = given.get("logicalType", "")
    if logical == "decimal":
        return Node(
            node.kind, size=node.size, logical=logical, precision=given["precision"], scale=given.get("scale", 0)
        )
    return Node(node.kind, size=node.size, logical=logical)
