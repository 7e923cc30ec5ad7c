"""Works out the rows of a join for some rows of the left table. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from filestore.lazily import pl
from filestore.rows.frames import gatherable, narrowed
from tablestore.views.plan.join_query import JoinKind, JoinQuery, Side

__all__ = ["Joined", "foreign_keys", "joined"]

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


def foreign_keys(query: JoinQuery, left: pl.DataFrame) -> pl.DataFrame:
    """Returns the keys of the right table that the rows name, each once, with that table's names of the columns."""
    return left.select(pl.col(name).alias(key) for name, key in query.on).drop_nulls().unique()


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
    found = gatherable(left.with_columns(**named)).join(
        gatherable(right.rename(names)).with_columns(pl.lit(value=True).alias(_HAS_RIGHT)),
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
