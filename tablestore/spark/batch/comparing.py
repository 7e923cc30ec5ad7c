"""Compares values of a DataFrame's columns: null-safe, NaN equals NaN, and the order of a map does not count."""

from __future__ import annotations

import math

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark program gives it
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType

__all__ = ["comparable", "nearly_same", "same"]

_CLOSE = 1e-9


def same(left: Column, right: Column, kind: DataType) -> Column:
    """Returns whether two values are the same."""
    return comparable(left, kind).eqNullSafe(comparable(right, kind))


def nearly_same(left: Column, right: Column, kind: DataType) -> Column:
    """Returns whether two values are the same but for the last digits of a sum, which depend on the order of rows."""
    equal = same(left, right, kind)
    if not isinstance(kind, FloatType | DoubleType):
        return equal
    left, right = left.cast(DoubleType()), right.cast(DoubleType())
    apart = F.abs(left - right)
    close = (apart < F.lit(math.inf)) & (apart <= F.lit(_CLOSE) * F.greatest(F.abs(left), F.abs(right)))
    return equal | F.coalesce(close, F.lit(False))


def comparable(column: Column, kind: DataType) -> Column:
    """Returns a value that Spark can compare: with the entries of a map as an array in the order of their keys."""
    if not _has_map(kind):
        return column
    if isinstance(kind, MapType):
        entries = F.transform(
            F.map_entries(column),
            lambda entry: F.struct(
                entry["key"].alias("key"), comparable(entry["value"], kind.valueType).alias("value")
            ),
        )
        return F.array_sort(entries)
    if isinstance(kind, ArrayType):
        return F.transform(column, lambda element: comparable(element, kind.elementType))
    assert isinstance(kind, StructType)
    fields = [comparable(column.getField(field.name), field.dataType).alias(field.name) for field in kind]
    return F.when(column.isNotNull(), F.struct(*fields))


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_map(kind.elementType)
    if isinstance(kind, StructType):
        return any(_has_map(field.dataType) for field in kind)
    return isinstance(kind, MapType)
