"""Parses SQL column lists (FORMAT.md section 3) with sqlglot, in Spark's dialect with metadata columns.

Other modules call `filestore.model.sql`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from filestore.errors import InvalidRequest
from filestore.model.names import quoted
from filestore.model.schema import Column, Schema
from filestore.model.sql import ColumnList
from filestore.model.sql_dialect import WRITTEN, ColumnListDialect, MetadataConstraint
from filestore.model.table_columns import MetadataColumn, TableColumns, managed_schema
from filestore.model.text import check_text
from filestore.model.types import TIMESTAMP, TIMESTAMP_NTZ, to_sql

__all__ = ["read_column_list", "read_columns", "read_table_columns", "read_type"]

_T = exp.DataType.Type
_SHOWN = 200  # characters of a bad text in the message
_INSTANTS = ("TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMPLTZ", "TIMESTAMPTZ")
_ZONES = ("WITH TIME ZONE", "WITH LOCAL TIME ZONE")
_TIMES: dict[str, pa.DataType] = {
    **dict.fromkeys((*_INSTANTS, *(f"TIMESTAMP {zone}" for zone in _ZONES)), TIMESTAMP),
    **dict.fromkeys(("TIMESTAMP_NTZ", "TIMESTAMPNTZ", "TIMESTAMP WITHOUT TIME ZONE"), TIMESTAMP_NTZ),
}
_PRIMITIVES: dict[str, pa.DataType] = {
    **dict.fromkeys(("BOOLEAN", "BOOL"), pa.bool_()),
    **dict.fromkeys(("TINYINT", "BYTE"), pa.int8()),
    **dict.fromkeys(("SMALLINT", "SHORT"), pa.int16()),
    **dict.fromkeys(("INT", "INTEGER"), pa.int32()),
    **dict.fromkeys(("BIGINT", "LONG"), pa.int64()),
    **dict.fromkeys(("FLOAT", "REAL"), pa.float32()),
    **dict.fromkeys(("DOUBLE", "DOUBLE PRECISION"), pa.float64()),
    **dict.fromkeys(("STRING", "TEXT", "VARCHAR"), pa.string()),
    **dict.fromkeys(("BINARY", "BYTES"), pa.binary()),
    "DATE": pa.date32(),
    **_TIMES,
}
"""The supported names of types without parts (FORMAT.md section 3): all others are refused."""
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_MICROSECONDS = 6


def read_column_list(text: str, primary_key: Sequence[str]) -> ColumnList:
    """Implements `sql.parse_column_list`."""
    definitions = _parsed(text)
    keys = [_key(d) for d in definitions if not isinstance(d, exp.ColumnDef)]
    keys += [(d.name,) for d in definitions if isinstance(d, exp.ColumnDef) and any(map(_is_key, d.constraints))]
    if None in keys:
        raise _bad_list(text)
    given = tuple(primary_key)
    found = {key for key in keys if key is not None} | ({given} if given else set())
    if len(keys) > 1 or len(found) > 1:
        declared = " and ".join(str(list(key)) for key in sorted(found))
        raise InvalidRequest(
            f"the primary key is declared twice ({declared}): once is enough, in the column list or beside it",
            code="primary-key",
        )
    key = next(iter(found), ())
    columns = [d for d in definitions if isinstance(d, exp.ColumnDef)]
    for definition in columns:
        definition.set("constraints", [c for c in definition.constraints if not _is_key(c)])
    return ColumnList(tuple(_column(definition, text, key) for definition in columns), key)


def _key(definition: exp.Expression) -> tuple[str, ...] | None:
    """The columns of ``[CONSTRAINT name] PRIMARY KEY (…) [NOT ENFORCED]``; None for another expression."""
    if isinstance(definition, exp.Constraint) and len(definition.expressions) == 1:
        definition = definition.expressions[0]
    if not isinstance(definition, exp.PrimaryKey) or not _enforced_by_none(definition):
        return None
    return tuple(column.name for column in definition.expressions)


def _is_key(constraint: exp.ColumnConstraint) -> bool:
    return isinstance(constraint.kind, exp.PrimaryKeyColumnConstraint) and _enforced_by_none(constraint.kind)


def _enforced_by_none(key: exp.Expression) -> bool:
    return all(str(option).upper() == "NOT ENFORCED" for option in key.args.get("options") or ())


def read_columns(text: str, primary_key: Collection[str]) -> Schema:
    """Implements `sql.parse_columns`."""
    return managed_schema(_columns(text, primary_key))


def read_table_columns(text: str, primary_key: Collection[str]) -> TableColumns:
    """Implements `sql.parse_table_columns`."""
    return TableColumns(_columns(text, primary_key))


def read_type(text: str, column: str) -> pa.DataType:
    """Implements `sql.parse_type`."""
    try:
        columns = _columns(f"{quoted(column or 'c')} {text}", ())
    except InvalidRequest as error:
        if error.code != "bad-column-list":
            raise
        columns = ()
    if len(columns) != 1 or columns[0] != Column(column or "c", columns[0].type):
        raise InvalidRequest(
            f"column {column!r}: {text!r} is not a type; write it as in BIGINT, DECIMAL(10,2) or ARRAY<STRING>",
            code="unsupported-type",
        )
    return columns[0].type


def _columns(text: str, primary_key: Collection[str]) -> tuple[Column | MetadataColumn, ...]:
    return tuple(_column(definition, text, primary_key) for definition in _parsed(text))


def _parsed(text: str) -> list[exp.Expression]:
    check_text("the column list", text)
    try:
        if not _balanced(text):
            raise _bad_list(text)
        statement = sqlglot.parse_one(f"CREATE TABLE t ({text}\n)", read=ColumnListDialect)
    except (SqlglotError, RecursionError) as error:
        raise _bad_list(text, _place(error)) from error
    parsed = statement.this
    if not isinstance(parsed, exp.Schema) or not parsed.expressions:
        raise _bad_list(text)
    return list(parsed.expressions)


def _balanced(text: str) -> bool:
    """Returns whether brackets are balanced: the text is put in brackets, and must not end them itself."""
    depth = 0
    for token in sqlglot.tokenize(text, read="spark"):
        depth += (token.token_type.name == "L_PAREN") - (token.token_type.name == "R_PAREN")
        if depth < 0:
            return False
    return depth == 0


def _place(error: Exception) -> str:
    """The word at which parsing failed, if the parser reports it."""
    found = error.errors[0].get("highlight") if isinstance(error, ParseError) and error.errors else None
    return f" at {_short(found)}" if found and found.strip(")\n") else ""


def _bad_list(text: str, place: str = "") -> InvalidRequest:
    return InvalidRequest(
        f"cannot read the column list {_short(text)}{place}: write it as in 'id BIGINT NOT NULL, name STRING'",
        code="bad-column-list",
    )


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def _column(definition: exp.Expression, text: str, primary_key: Collection[str]) -> Column | MetadataColumn:
    if isinstance(definition, exp.Identifier) or (isinstance(definition, exp.ColumnDef) and definition.kind is None):
        raise InvalidRequest(
            f"column {definition.name!r} has no type: write it as in '{quoted(definition.name)} STRING'",
            code="bad-column-list",
        )
    if not isinstance(definition, exp.ColumnDef) or definition.kind is None:
        raise _bad_list(text)
    name, kind = definition.name, _type(definition.kind, definition.name)
    nullable, comment, metadata = name not in primary_key, None, None
    for constraint in definition.constraints:
        found = constraint.kind
        if isinstance(found, exp.NotNullColumnConstraint):
            nullable = bool(found.args.get("allow_null"))
        elif isinstance(found, exp.CommentColumnConstraint):
            comment = found.this.name
        elif isinstance(found, MetadataConstraint) and metadata is None:
            metadata = found
        else:
            raise InvalidRequest(
                f"column {name!r}: {_refused(constraint)}; only NOT NULL, COMMENT and one METADATA [FROM 'key'] "
                "[VIRTUAL] are",
                code="bad-column-list",
            )
    if metadata is None:
        return Column(name, kind, nullable, comment)
    key = name if metadata.this is None else metadata.this.name
    return MetadataColumn(name, kind, key, metadata.args["virtual"], nullable, comment)


def _refused(constraint: exp.ColumnConstraint) -> str:
    if isinstance(constraint.kind, MetadataConstraint):
        return "a second METADATA is not supported"
    return f"{constraint.sql('spark')!r} is not supported here"


def _type(kind: exp.Expression, column: str) -> pa.DataType:
    written = kind.meta.get(WRITTEN, ())
    if isinstance(kind, exp.DataType) and written:
        if kind.this == _T.ARRAY and written[0] != "ARRAY":
            raise _unsupported(column, " ".join(written).replace(" [ ]", "[]"))
        if kind.this == _T.ARRAY and len(kind.expressions) == 1:
            return pa.list_(pa.field("element", _type(kind.expressions[0], column)))
        if kind.this == _T.MAP and len(kind.expressions) == 2:
            return pa.map_(_type(kind.expressions[0], column), _type(kind.expressions[1], column))
        if kind.this == _T.STRUCT and kind.expressions:
            return pa.struct([_struct_field(f, column) for f in kind.expressions])
        return _plain(kind, column)
    raise _unsupported(column, kind.sql())


def _plain(kind: exp.DataType, column: str) -> pa.DataType:
    """Parses a type without parts, by the name that the user wrote."""
    words = " ".join(kind.meta[WRITTEN])
    name, _, behind = words.partition(" ( ")
    inside, _, rest = behind.partition(")")
    name, inside = (name + rest).strip(), inside.strip()
    if name in _DECIMALS:
        return _decimal(kind, column)
    if name not in _PRIMITIVES:
        raise _unsupported(column, words.replace(" ( ", "(").replace(" )", ")"))
    if behind and not (name in _TIMES and inside.isdecimal() and int(inside) <= _MICROSECONDS):
        reason = "times have microseconds (6 digits)" if name in _TIMES else "tables do not enforce it"
        raise InvalidRequest(
            f"column {column!r} has type {name}({inside}), and {reason}: write {to_sql(_PRIMITIVES[name])}",
            code="unsupported-type",
        )
    return _PRIMITIVES[name]


def _unsupported(column: str, written: str) -> InvalidRequest:
    return InvalidRequest(
        f"column {column!r} has type {written}, which is not supported: use BOOLEAN, TINYINT, SMALLINT, "
        "INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p,s), STRING, BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ, ARRAY<…>, "
        "MAP<…> or STRUCT<…>",
        code="unsupported-type",
    )


def _decimal(kind: exp.DataType, column: str) -> pa.DataType:
    texts = [p.name for p in kind.expressions]
    if len(texts) > 2 or not all(text.isdecimal() for text in texts):
        raise InvalidRequest(
            f"column {column!r}: {kind.sql('spark')} is not a type; write it as in DECIMAL(10, 2)",
            code="unsupported-type",
        )
    precision, scale = [*map(int, texts), *(10, 0)[len(texts) :]]
    if not 1 <= precision <= 38 or not 0 <= scale <= precision:
        raise InvalidRequest(
            f"column {column!r}: DECIMAL({precision},{scale}) does not exist; the precision is 1 to 38 and the scale "
            "0 to the precision",
            code="unsupported-type",
        )
    return pa.decimal128(precision, scale)


def _struct_field(definition: exp.Expression, column: str) -> pa.Field:
    if not isinstance(definition, exp.ColumnDef) or definition.kind is None:
        raise InvalidRequest(f"column {column!r}: a STRUCT lists fields as `name: TYPE`", code="bad-column-list")
    if any(isinstance(c.kind, MetadataConstraint) for c in definition.constraints):
        raise InvalidRequest(
            f"column {column!r}: the STRUCT field {definition.name!r} cannot be METADATA, only a whole column can",
            code="bad-column-list",
        )
    required = any(isinstance(c.kind, exp.NotNullColumnConstraint) for c in definition.constraints)
    return pa.field(definition.name, _type(definition.kind, column), nullable=not required)
