"""Casts a DataFrame's columns to the table's types; a cast that would change a value is an error.

Spark's own cast cuts 1.5 to 1, matches the fields of structs by position, and without ANSI mode makes nulls of what it
cannot read. Here fields are matched by name, as columns are, and a value that does not come back the same is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark program gives it
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from filestore.errors import InvalidRequest
from filestore.model.names import quoted
from filestore.model.rowkind import KIND_COLUMN
from filestore.model.schema import Column as OwnColumn
from filestore.model.schema import Schema
from filestore.model.text import none_named
from tablestore.incoming.fitting import fit
from tablestore.spark.jobs.errors import BAD_VALUE

__all__ = ["canonical", "conformed", "spark_type"]

_TIMES = (DateType, TimestampType, TimestampNTZType)
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}


def conformed(df: DataFrame, schema: Schema, unread: Container[str] = ()) -> DataFrame:
    """A table's columns in its order and types, and ``_kind`` if the rows have one.

    Args:
        df: The rows.
        schema: The table's columns.
        unread: Those that a delete does not need: rows with ``_kind`` may lack them, and tasks check the other rows.

    Raises:
        InvalidRequest: ``duplicate-column``, ``unknown-column``, ``missing-column`` or ``bad-type``.
    """
    names = df.columns
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InvalidRequest(f"the rows have two columns {twice[0]!r}: rename one", code="duplicate-column")
    known = {*schema.names, KIND_COLUMN}
    if unknown := [name for name in names if name not in known]:
        raise InvalidRequest(
            f"the rows have a column that the table lacks: {none_named('column', unknown[0], schema.names)}",
            code="unknown-column",
        )
    given = {field.name: field.dataType for field in df.schema}
    columns = [
        _column(given, column, field.dataType, left_out=KIND_COLUMN in given and column.name in unread)
        for column, field in zip(schema.columns, spark_type(schema), strict=True)
    ]
    if KIND_COLUMN in given:
        columns.append(F.col(KIND_COLUMN).cast(StringType()))
    if all(isinstance(column, str) for column in columns) and columns == list(map(quoted, names)):
        return df
    try:
        return df.select(*columns)
    except AnalysisException as error:
        raise InvalidRequest(f"the rows do not fit the table: {error}", code="bad-type") from error


def _column(given: Mapping[str, DataType], column: OwnColumn, wanted: DataType, *, left_out: bool) -> Column | str:
    """Returns a column of the result; one that stays as it is by its name, since each function is a call of Java."""
    name = column.name
    if name not in given:
        if column.nullable or left_out:
            return F.lit(None).cast(wanted).alias(name)
        raise InvalidRequest(f"the rows lack the column {name!r}, which is NOT NULL", code="missing-column")
    if given[name].simpleString() == wanted.simpleString():
        return quoted(name)
    return _fitted(F.col(quoted(name)), given[name], wanted, name).alias(name)


def spark_type(schema: Schema) -> StructType:
    """A table's schema as Spark's."""
    return StructType.fromJson(schema.plain().to_delta())


def canonical(batches: Iterable[pa.RecordBatch], own: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Spark's Arrow in a table's own types: its timestamps carry the session's zone."""
    known = {field.name: field.with_nullable(True) for field in own}
    for batch in batches:
        if batch.num_rows == 0:
            continue
        fields = [known.get(field.name, field) for field in batch.schema]
        columns = [fit(pa.chunked_array([batch.column(f.name)]), f) for f in fields]
        yield from pa.table(columns, schema=pa.schema(fields)).to_batches()


def _fitted(column: Column, given: DataType, wanted: DataType, path: str) -> Column:
    """The column as that type.

    Raises:
        InvalidRequest: no value of the given type fits (``bad-type``), or a struct has a field that is not wanted
            (``unknown-column``) or lacks one that must not be null (``missing-column``). A single value that does not
            fit fails the job, with a message that begins with `BAD_VALUE`.
    """
    if given.simpleString() == wanted.simpleString():
        return column
    if isinstance(given, NullType):
        return column.cast(wanted)
    if isinstance(given, StructType) and isinstance(wanted, StructType):
        return _struct(column, given, wanted, path)
    if isinstance(given, ArrayType) and isinstance(wanted, ArrayType):
        elements = given.elementType, wanted.elementType
        return F.transform(column, lambda e: _fitted(e, *elements, f"{path}.element"))
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        keys, values = (given.keyType, wanted.keyType), (given.valueType, wanted.valueType)
        column = F.transform_keys(column, lambda k, _: _fitted(k, *keys, f"{path}.key"))
        return F.transform_values(column, lambda _, v: _fitted(v, *values, f"{path}.value"))
    if _nested(given) or _nested(wanted):
        raise InvalidRequest(
            f"column {path!r} is {given.simpleString()} and does not fit {wanted.simpleString()}", code="bad-type"
        )
    return column.cast(wanted) if _lossless(given, wanted) else _checked(column, given, wanted, path)


def _struct(column: Column, given: StructType, wanted: StructType, path: str) -> Column:
    given_types = {field.name: field.dataType for field in given}
    known = set(wanted.names)
    for name in given.names:
        if name not in known:
            raise InvalidRequest(
                f"the rows have a field {path}.{name!r} that the table lacks; the fields of {path!r} are "
                f"{', '.join(wanted.names)}",
                code="unknown-column",
            )
    fields = []
    for field in wanted:
        if field.name in given_types:
            kind = given_types[field.name]
            value = _fitted(column.getField(field.name), kind, field.dataType, f"{path}.{field.name}")
        elif field.nullable:
            value = F.lit(None).cast(field.dataType)
        else:
            raise InvalidRequest(
                f"the rows lack the field {path}.{field.name}, which is NOT NULL", code="missing-column"
            )
        fields.append(value.alias(field.name))
    return F.when(column.isNotNull(), F.struct(*fields))


def _nested(kind: DataType) -> bool:
    return isinstance(kind, StructType | ArrayType | MapType)


def _lossless(given: DataType, wanted: DataType) -> bool:
    """Returns whether every value fits. Floats lose digits in FLOAT, as they do everywhere."""
    if isinstance(wanted, StringType):
        return True
    if isinstance(wanted, FloatType | DoubleType):
        return isinstance(given, FloatType | DoubleType)
    if isinstance(given, _TIMES) and isinstance(wanted, TimestampType | TimestampNTZType):
        return True
    if isinstance(given, IntegralType | DecimalType) and isinstance(wanted, IntegralType | DecimalType):
        (whole, scale), (room, places) = _digits(given), _digits(wanted)
        fits = whole <= room and scale <= places
        return fits and (isinstance(wanted, DecimalType) or isinstance(given, IntegralType))
    return False


def _digits(kind: DataType) -> tuple[int, int]:
    """Digits before and behind the point."""
    if isinstance(kind, DecimalType):
        return kind.precision - kind.scale, kind.scale
    return _DIGITS[kind.simpleString()], 0


def _wider(kind: DataType) -> DataType | None:
    """The type that shows whether another cuts a text: Spark rounds decimals and drops the time of a day."""
    if isinstance(kind, DecimalType):
        return DecimalType(38, max(kind.scale, 38 - (kind.precision - kind.scale)))
    return TimestampNTZType() if isinstance(kind, DateType) else None


def _checked(column: Column, given: DataType, wanted: DataType, path: str) -> Column:
    """Casts a column, and checks that the result, cast back, is what was given; texts are compared by a wider type."""
    value = column.try_cast(wanted)
    if not isinstance(given, StringType):
        same = value.cast(given).eqNullSafe(column)
    elif (wider := _wider(wanted)) is not None:
        whole = column.try_cast(wider)
        same = value.cast(wider).eqNullSafe(whole) & (column.isNull() | value.isNotNull())
    else:
        same = column.isNull() | value.isNotNull()
    text = F.concat(
        F.lit(f"{BAD_VALUE}column {path!r} is {given.simpleString()} and holds "),
        column.cast(StringType()),
        F.lit(f", which does not fit {wanted.simpleString()}"),
    )
    return F.when(same, value).otherwise(F.raise_error(text).cast(wanted))
