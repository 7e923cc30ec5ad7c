"""Compares values of a DataFrame's columns: null-safe, NaN equals NaN, and the order of a map does not count.

To Spark 0.0 and -0.0 are equal. A value that is stored is another one if it has another sign.
"""

from __future__ import annotations

import math

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark program gives it
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StringType, StructType

__all__ = ["comparable", "nearly_same", "same"]

_CLOSE = 1e-9


def same(left: Column, right: Column, kind: DataType) -> Column:
    """Returns whether two values are the same, bit by bit: 0.0 is not -0.0."""
    return comparable(left, kind, signs=True).eqNullSafe(comparable(right, kind, signs=True))


def nearly_same(left: Column, right: Column, kind: DataType) -> Column:
    """Returns whether two values are the same but for the last digits of a sum, which depend on the order of rows."""
    equal = comparable(left, kind).eqNullSafe(comparable(right, kind))  # which zero is the least one is chance
    if not isinstance(kind, FloatType | DoubleType):
        return equal
    left, right = left.cast(DoubleType()), right.cast(DoubleType())
    apart = F.abs(left - right)
    close = (apart < F.lit(math.inf)) & (apart <= F.lit(_CLOSE) * F.greatest(F.abs(left), F.abs(right)))
    return equal | F.coalesce(close, F.lit(False))


def comparable(column: Column, kind: DataType, *, signs: bool = False) -> Column:
    """Returns a value that Spark can compare: with the entries of a map as an array in the order of their keys.

    Args:
        column: The value.
        kind: Its type.
        signs: Whether 0.0 is to be another value than -0.0.
    """
    if not _is_changed(kind, signs):
        return column
    if isinstance(kind, FloatType | DoubleType):
        is_negative = (column == F.lit(0.0)) & (column.cast(StringType()) == F.lit("-0.0"))
        return F.when(column.isNotNull(), F.struct(column.alias("value"), is_negative.alias("is_negative")))
    if isinstance(kind, MapType):
        entries = F.transform(
            F.map_entries(column),
            lambda entry: F.struct(
                entry["key"].alias("key"), comparable(entry["value"], kind.valueType, signs=signs).alias("value")
            ),
        )
        return F.array_sort(entries)
    if isinstance(kind, ArrayType):
        return F.transform(column, lambda element: comparable(element, kind.elementType, signs=signs))
    assert isinstance(kind, StructType)
    fields = [comparable(column.getField(field.name), field.dataType, signs=signs).alias(field.name) for field in kind]
    return F.when(column.isNotNull(), F.struct(*fields))


def _is_changed(kind: DataType, signs: bool) -> bool:
    """Returns whether values of a type have to become others to be compared."""
    match kind:
        case ArrayType():
            return _is_changed(kind.elementType, signs)
        case StructType():
            return any(_is_changed(field.dataType, signs) for field in kind)
        case FloatType() | DoubleType():
            return signs
    return isinstance(kind, MapType)
