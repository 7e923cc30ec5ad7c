"""Converts columns from and to Spark's descriptions: Spark's JSON of a schema is that of Delta."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from filestore.errors import Unsupported
from filestore.model.changes import (
    AddColumn,
    Change,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SetComment,
    SetNullable,
    SetOption,
    UnsetOption,
    WidenColumn,
)
from filestore.model.schema import Schema
from filestore.model.types import from_delta
from tablestore.spark.sql.clauses import constraint_refused, refuse_clauses

__all__ = ["changes_from_spark", "schema_from_spark", "schema_to_spark"]

_COMMENT = "comment"
_PLAIN_STRING = "string collate UTF8_BINARY"
"""The spelling of STRING in Spark's SHOW CREATE TABLE."""


def schema_from_spark(text: str) -> Schema:
    """Parses Spark's JSON of a schema.

    Raises:
        InvalidRequest: a type that tables do not have.
        Unsupported: ``string-type``: a length or a collation, which tables do not keep.
    """
    parsed = json.loads(text)
    return Schema.from_delta(_kept(parsed, "the table"))


def schema_to_spark(schema: Schema) -> str:
    """Returns Spark's JSON of a schema."""
    return json.dumps(schema.plain().to_delta())


def changes_from_spark(described: Iterable[Mapping[str, Any]]) -> list[Change]:
    """Returns the changes of an ALTER TABLE, as ``TableChanges`` describes them.

    Raises:
        Unsupported: a change that tables do not have.
    """
    return [_KINDS.get(change["kind"], _unknown)(change) for change in described]


def _unknown(change: Mapping[str, Any]) -> Change:
    raise Unsupported(f"ALTER TABLE cannot do this: {change['kind']}")


def _option(change: Mapping[str, Any]) -> Change:
    name, value = change["name"], change.get("value")
    if value is not None:
        refuse_clauses({name: value})
    if name == _COMMENT:
        return SetComment(value)  # COMMENT ON TABLE … IS NULL has an empty text here, which is none
    return UnsetOption(name) if value is None else SetOption(name, value)


def _added(change: Mapping[str, Any]) -> Change:
    if change.get("default"):
        return _default(change)
    name, place = change["name"], (change.get("after"), change.get("first", False))
    return AddColumn(name, _type(name, change["type"]), change["nullable"], change.get("comment"), *place)


def _nullable(change: Mapping[str, Any]) -> Change:
    if change["nullable"]:
        return SetNullable(change["name"])
    raise Unsupported(
        f"column {change['name']} cannot become NOT NULL: rows that are stored may have nulls there", code="not-null"
    )


def _default(change: Mapping[str, Any]) -> Change:
    raise Unsupported(f"a column has no DEFAULT here: rows that lack column {change['name']} have null")


def _clustered(change: Mapping[str, Any]) -> Change:
    raise Unsupported(
        "rows of a table are in partitions and buckets, and not clustered by other columns: leave CLUSTER BY out. "
        "PARTITIONED BY, and a primary key that begins with a column, store its rows together"
    )


def _constraint(change: Mapping[str, Any]) -> Change:
    raise constraint_refused(f"{change['kind'].removesuffix('Constraint').upper()} CONSTRAINT {change['name']}")


_KINDS: Mapping[str, Callable[[Mapping[str, Any]], Change]] = {
    "set": _option,
    "unset": _option,
    "add": _added,
    "drop": lambda change: DropColumn(change["name"]),
    "rename": lambda change: RenameColumn(change["name"], change["new_name"]),
    "type": lambda change: WidenColumn(change["name"], _type(change["name"], change["type"])),
    "nullable": _nullable,
    "comment": lambda change: SetComment(change["comment"], change["name"]),
    "default": _default,
    "ClusterBy": _clustered,
    "AddConstraint": _constraint,
    "DropConstraint": _constraint,
    "move": lambda change: MoveColumn(change["name"], change.get("after")),
}
"""The changes by the names that ``TableChanges.java`` gives them."""


def _type(name: str, text: str) -> pa.DataType:
    return from_delta(_kept(json.loads(text), f"column {name}"))


def _kept(described: Any, where: str) -> Any:
    """Returns a type as Delta describes it, without what Spark says of each type."""
    match described:
        case str() if described in (_PLAIN_STRING, "string"):
            return "string"
        case str() if described.startswith(("char(", "varchar(", "string collate")):
            raise _string_type(where, described)
        case {"type": "struct", "fields": fields}:
            for field in fields:
                if collation := field["metadata"].get("__COLLATIONS"):  # the type itself is STRING then
                    raise _string_type(f"column {field['name']}", f"STRING COLLATE {', '.join(collation.values())}")
            kept = [{**field, "type": _kept(field["type"], f"column {field['name']}")} for field in fields]
            return {**described, "fields": kept}
        case {"type": "array", "elementType": element}:
            return {**described, "elementType": _kept(element, where)}
        case {"type": "map", "keyType": key, "valueType": value}:
            return {**described, "keyType": _kept(key, where), "valueType": _kept(value, where)}
        case str():
            try:
                from_delta(described)
            except Unsupported as error:
                raise _unknown_type(where, described) from error
    return described


_INSTEAD = {
    "variant": "STRING with its JSON",
    "void": "the type that its values will have",
    "interval": "BIGINT with a number of units",
}


def _unknown_type(where: str, described: str) -> Unsupported:
    instead = next((text for name, text in _INSTEAD.items() if described.startswith(name)), "another type")
    return Unsupported(
        f"{where} has the type {described.upper()}, which tables do not have: make it {instead}",
        code="unsupported-type",
    )


def _string_type(where: str, described: str) -> Unsupported:
    return Unsupported(
        f"{where} has the type {described}, and tables keep neither lengths nor collations of strings: make it STRING",
        code="string-type",
    )
