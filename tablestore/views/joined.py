"""Works out the rows of a join for some rows of the left table. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from tablestore.views.join_query import JoinKind, JoinQuery, Side

__all__ = ["Joined", "foreign_keys", "joined", "narrowed"]

_LEFT, _RIGHT = "\0l.", "\0r."
_HAS_RIGHT = "\0matched"


@dataclass(frozen=True, slots=True)
class Joined:
    """The result for some rows of the left table.

    Attributes:
        rows: The rows of the result, with its columns.
        without: The keys of left rows of which the result has none, with the key columns of the result.
    """

    rows: pl.DataFrame
    without: pl.DataFrame


def narrowed(values: pl.Series, kind: pl.DataType) -> pl.Series:
    """Converts values to another type; those that it does not have become null, which equals no key.

    A column that names keys may have been widened since the view was created, and keys keep their type.
    """
    if values.dtype == kind:
        return values
    found = values.cast(kind, strict=False)
    return found.set((found.cast(values.dtype, strict=False) != values).fill_null(value=False), None)


def foreign_keys(query: JoinQuery, left: pl.DataFrame, key: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Returns the keys of the right table that the rows name, each once.

    Args:
        query: The join.
        left: Rows of the left table.
        key: The names and types of the right table's primary key.
    """
    found = pl.DataFrame([narrowed(left[name], key[of]).alias(of) for name, of in query.on])
    return found.drop_nulls().unique()


def joined(query: JoinQuery, key: tuple[str, ...], left: pl.DataFrame, right: pl.DataFrame) -> Joined:
    """Joins rows of the left table with the rows of the right one.

    Args:
        query: The join.
        key: The primary key of the result.
        left: Rows with the query's `left_columns`.
        right: Rows with its `right_columns`: all that the left rows name; each key once.
    """
    names = {name: _RIGHT + name for name in right.columns}
    named = {f"{_LEFT}{at}": narrowed(left[name], right.schema[of]) for at, (name, of) in enumerate(query.on)}
    found = left.with_columns(**named).join(
        right.rename(names).with_columns(pl.lit(value=True).alias(_HAS_RIGHT)),
        left_on=list(named),
        right_on=[names[key] for _, key in query.on],
        how="left",
        coalesce=False,
    )
    has_right = found[_HAS_RIGHT].is_not_null()
    rows = found.select(
        pl.col(column.source if column.side is Side.LEFT else _RIGHT + column.source).alias(column.name)
        for column in query.columns
    )
    if query.kind is JoinKind.LEFT:
        return Joined(rows, rows.clear().select(key))
    return Joined(rows.filter(has_right), rows.filter(~has_right).select(key))
