"""SQL column lists, such as ``id BIGINT NOT NULL, name STRING COMMENT '…'`` (FORMAT.md section 3).

sqlglot's Spark dialect reads them.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from filestore.errors import InvalidRequest
from filestore.model.schema import Column, Schema
from filestore.model.text import check_text
from filestore.model.types import TIMESTAMP, TIMESTAMP_NTZ

__all__ = ["parse_columns", "parse_type"]

_T = exp.DataType.Type
_SHOWN = 200  # characters of a bad text in the message
_PRIMITIVES: dict[object, pa.DataType] = {
    _T.BOOLEAN: pa.bool_(),
    _T.TINYINT: pa.int8(),
    _T.SMALLINT: pa.int16(),
    _T.INT: pa.int32(),
    _T.BIGINT: pa.int64(),
    _T.FLOAT: pa.float32(),
    _T.DOUBLE: pa.float64(),
    _T.TEXT: pa.string(),
    _T.VARCHAR: pa.string(),
    _T.CHAR: pa.string(),
    _T.BINARY: pa.binary(),
    _T.DATE: pa.date32(),
    _T.TIMESTAMPTZ: TIMESTAMP,
    _T.TIMESTAMPLTZ: TIMESTAMP,
    _T.TIMESTAMP: TIMESTAMP,
    _T.TIMESTAMPNTZ: TIMESTAMP_NTZ,
}


def parse_columns(text: str, primary_key: Collection[str] = ()) -> Schema:
    """The schema of a column list. A key column is NOT NULL unless the text says NULL, as in standard SQL.

    Raises:
        InvalidRequest: not a column list (``bad-column-list``), an unknown type (``unsupported-type``), or
            ``bad-text``.
    """
    check_text("the column list", text)
    try:
        if not _balanced(text):
            raise _bad_list(text)
        statement = sqlglot.parse_one(f"CREATE TABLE t ({text}\n)", read="spark")
    except (SqlglotError, RecursionError) as error:
        raise _bad_list(text) from error
    parsed = statement.this
    if not isinstance(parsed, exp.Schema) or not parsed.expressions:
        raise _bad_list(text)
    return Schema(tuple(_column(definition, text, primary_key) for definition in parsed.expressions))


def parse_type(text: str) -> pa.DataType:
    """The canonical type of one SQL type, such as ``DECIMAL(10, 2)`` or ``ARRAY<STRING>``."""
    return parse_columns(f"c {text}").columns[0].type


def _balanced(text: str) -> bool:
    """The text is read between brackets: it must not close them and go on with a statement of its own."""
    depth = 0
    for token in sqlglot.tokenize(text, read="spark"):
        depth += (token.token_type.name == "L_PAREN") - (token.token_type.name == "R_PAREN")
        if depth < 0:
            return False
    return depth == 0


def _bad_list(text: str) -> InvalidRequest:
    return InvalidRequest(
        f"cannot read the column list {_short(text)}: write it as in 'id BIGINT NOT NULL, name STRING'",
        code="bad-column-list",
    )


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def _column(definition: exp.Expression, text: str, primary_key: Collection[str]) -> Column:
    if not isinstance(definition, exp.ColumnDef) or definition.kind is None:
        raise _bad_list(text)
    nullable, comment = definition.name not in primary_key, None
    for constraint in definition.constraints:
        kind = constraint.kind
        if isinstance(kind, exp.NotNullColumnConstraint):
            nullable = bool(kind.args.get("allow_null"))
        elif isinstance(kind, exp.CommentColumnConstraint):
            comment = kind.this.name
        else:
            raise InvalidRequest(
                f"column {definition.name!r}: {constraint.sql('spark')!r} is not supported here; only NOT NULL and "
                "COMMENT are",
                code="bad-column-list",
            )
    return Column(definition.name, _type(definition.kind, definition.name), nullable, comment)


def _type(kind: exp.Expression, column: str) -> pa.DataType:
    if isinstance(kind, exp.DataType):
        if kind.this in _PRIMITIVES:
            return _PRIMITIVES[kind.this]
        if kind.this == _T.DECIMAL:
            return _decimal(kind, column)
        if kind.this == _T.ARRAY and len(kind.expressions) == 1:
            return pa.list_(pa.field("element", _type(kind.expressions[0], column)))
        if kind.this == _T.MAP and len(kind.expressions) == 2:
            return pa.map_(_type(kind.expressions[0], column), _type(kind.expressions[1], column))
        if kind.this == _T.STRUCT and kind.expressions:
            return pa.struct([_struct_field(f, column) for f in kind.expressions])
    raise InvalidRequest(
        f"column {column!r} has type {kind.sql('spark')}, which is not supported: use BOOLEAN, TINYINT, SMALLINT, "
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
    required = any(isinstance(c.kind, exp.NotNullColumnConstraint) for c in definition.constraints)
    return pa.field(definition.name, _type(definition.kind, column), nullable=not required)
