"""SQL column lists, such as ``id BIGINT NOT NULL, name STRING COMMENT '…'`` (FORMAT.md section 3).

sqlglot reads them, in Spark's dialect with metadata columns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from filestore.errors import InvalidRequest
from filestore.model.schema import Column, Schema
from filestore.model.sql_dialect import ColumnListDialect, MetadataConstraint
from filestore.model.table_columns import MetadataColumn, TableColumns, managed_schema
from filestore.model.text import check_text
from filestore.model.types import TIMESTAMP, TIMESTAMP_NTZ, quoted

__all__ = ["ColumnList", "parse_column_list", "parse_columns", "parse_table_columns", "parse_type"]

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


@dataclass(frozen=True, slots=True)
class ColumnList:
    """What a column list declares: `TableColumns` or `managed_schema` make a table's columns of `columns`."""

    columns: tuple[Column | MetadataColumn, ...]
    primary_key: tuple[str, ...]


def parse_column_list(text: str, primary_key: Sequence[str] = ()) -> ColumnList:
    """A column list in which ``PRIMARY KEY (id) NOT ENFORCED`` may stand, behind the columns or behind one of them.

    NOT ENFORCED may be left out: nothing else is meant by it here than in Flink's and Spark's SQL.

    Args:
        text: The list.
        primary_key: As it was given beside the list; both must say the same.

    Raises:
        InvalidRequest: ``primary-key``: the list has two keys, or another than the one beside it; or as
            `parse_table_columns`.
    """
    definitions = _parsed(text)
    keys = [_key(d) for d in definitions if not isinstance(d, exp.ColumnDef)]
    keys += [(d.name,) for d in definitions if isinstance(d, exp.ColumnDef) and any(map(_is_key, d.constraints))]
    if None in keys:
        raise _bad_list(text)
    given = tuple(primary_key)
    found = {key for key in keys if key is not None} | ({given} if given else set())
    if len(keys) > 1 or len(found) > 1:
        told = " and ".join(str(list(key)) for key in sorted(found))
        raise InvalidRequest(
            f"the primary key is declared twice ({told}): once is enough, in the column list or beside it",
            code="primary-key",
        )
    key = next(iter(found), ())
    columns = [d for d in definitions if isinstance(d, exp.ColumnDef)]
    for definition in columns:
        definition.set("constraints", [c for c in definition.constraints if not _is_key(c)])
    return ColumnList(tuple(_column(definition, text, key) for definition in columns), key)


def _key(definition: exp.Expression) -> tuple[str, ...] | None:
    """The columns of ``[CONSTRAINT name] PRIMARY KEY (…) [NOT ENFORCED]``; None if it is something else."""
    if isinstance(definition, exp.Constraint) and len(definition.expressions) == 1:
        definition = definition.expressions[0]
    if not isinstance(definition, exp.PrimaryKey) or not _enforced_by_none(definition):
        return None
    return tuple(column.name for column in definition.expressions)


def _is_key(constraint: exp.ColumnConstraint) -> bool:
    return isinstance(constraint.kind, exp.PrimaryKeyColumnConstraint) and _enforced_by_none(constraint.kind)


def _enforced_by_none(key: exp.Expression) -> bool:
    return all(str(option).upper() == "NOT ENFORCED" for option in key.args.get("options") or ())


def parse_columns(text: str, primary_key: Collection[str] = ()) -> Schema:
    """The schema of a managed table's column list; otherwise as `parse_table_columns`.

    Raises:
        InvalidRequest: as there, or ``metadata-column``: a managed table has none.
    """
    return managed_schema(_columns(text, primary_key))


def parse_table_columns(text: str, primary_key: Collection[str] = ()) -> TableColumns:
    """The columns of a column list, metadata columns too.

    A key column is NOT NULL unless the text says NULL, as in standard SQL. The key of a metadata column is its name
    unless the text says another.

    Raises:
        InvalidRequest: not a column list (``bad-column-list``), an unknown type (``unsupported-type``),
            ``bad-text``, or what `TableColumns` refuses.
    """
    return TableColumns(_columns(text, primary_key))


def parse_type(text: str, column: str = "c") -> pa.DataType:
    """The canonical type of one SQL type, such as ``DECIMAL(10, 2)`` or ``ARRAY<STRING>``.

    Args:
        text: The type alone.
        column: Whose type it is, for the message.

    Raises:
        InvalidRequest: ``unsupported-type``, or ``bad-text``.
    """
    try:
        columns = _columns(f"{quoted(column or 'c')} {text}", ())
    except InvalidRequest as error:
        if error.code != "bad-column-list":
            raise
        columns = ()
    if len(columns) != 1 or columns[0] != Column(column or "c", columns[0].type):
        raise InvalidRequest(
            f"column {column!r}: {text!r} is no type; write it as in BIGINT, DECIMAL(10,2) or ARRAY<STRING>",
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
        raise _bad_list(text) from error
    parsed = statement.this
    if not isinstance(parsed, exp.Schema) or not parsed.expressions:
        raise _bad_list(text)
    return list(parsed.expressions)


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


def _column(definition: exp.Expression, text: str, primary_key: Collection[str]) -> Column | MetadataColumn:
    if not isinstance(definition, exp.ColumnDef) or definition.kind is None:
        raise _bad_list(text)
    name, kind = definition.name, _type(definition.kind, definition.name)
    nullable, comment, metadata = name not in primary_key, None, None
    for constraint in definition.constraints:
        said = constraint.kind
        if isinstance(said, exp.NotNullColumnConstraint):
            nullable = bool(said.args.get("allow_null"))
        elif isinstance(said, exp.CommentColumnConstraint):
            comment = said.this.name
        elif isinstance(said, MetadataConstraint) and metadata is None:
            metadata = said
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
        f"column {column!r} has type {kind.sql()}, which is not supported: use BOOLEAN, TINYINT, SMALLINT, "
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
