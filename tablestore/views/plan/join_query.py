"""`JoinQuery`: a query that joins two tables by the primary key of one, as a value and as SQL text. Pure.

`JoinQuery.sql` writes it in one form, which each version of this package reads:

    SELECT l.`id` AS `id`, r.`name` AS `planet` FROM `shop`.`orders` AS l LEFT JOIN `shop`.`planets` AS r
    ON l.`planet_id` = r.`id`

Where the left table is one of events, its rows are looked up in the right one as of a time, as in Flink's SQL:
``… JOIN `shop`.`planets` FOR SYSTEM_TIME AS OF CURRENT_TIMESTAMP() AS r ON …``, or ``AS OF l.`at` ``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from filestore.errors import InvalidRequest
from filestore.model.names import quoted

__all__ = ["JoinColumn", "JoinKind", "JoinQuery", "Side", "SystemTime"]


class JoinKind(StrEnum):
    """Decides about rows of the left table without a row of the right one."""

    INNER = "inner"
    """The result has no such row."""
    LEFT = "left"
    """The result has it, with nulls for the columns of the right table."""

    @classmethod
    def of(cls, text: str) -> JoinKind:
        """Returns the kind of that name, in upper or lower case; `InvalidRequest` (``bad-join``) for another."""
        try:
            return cls(text.lower())
        except ValueError:
            raise InvalidRequest(f"kind={text!r} is no kind of join: use 'inner' or 'left'", code="bad-join") from None


class Side(StrEnum):
    """A table of the join, by the alias that it has in the query."""

    LEFT = "l"
    RIGHT = "r"


@dataclass(frozen=True, slots=True)
class JoinColumn:
    """A column of the result.

    Attributes:
        name: Its name in the result.
        side: The table that it is from.
        source: Its name in that table.
    """

    name: str
    side: Side
    source: str


@dataclass(frozen=True, slots=True)
class SystemTime:
    """The time of which the version of the right table is meant in which an event is looked up.

    Attributes:
        column: The column of the left table with the time; None: the time of the refresh that reads the event.
    """

    column: str | None = None

    def sql(self) -> str:
        """Returns the time as text."""
        return "CURRENT_TIMESTAMP()" if self.column is None else f"l.{quoted(self.column)}"


@dataclass(frozen=True, slots=True)
class JoinQuery:
    """A join of two tables by the primary key of the right one.

    Attributes:
        left: The left table, ``database.table``.
        right: The right table.
        kind: The kind of join.
        on: Pairs of a column of the left table and the column of the right table's key that it has to equal.
        columns: The columns of the result.
        time: If the left table is one of events, the time as of which they are looked up in the right one; None if
            both tables have a primary key, and the result follows all their changes.
    """

    left: str
    right: str
    kind: JoinKind
    on: tuple[tuple[str, str], ...]
    columns: tuple[JoinColumn, ...]
    time: SystemTime | None = None

    def sql(self) -> str:
        """Returns the query as text."""
        columns = ", ".join(f"{c.side}.{quoted(c.source)} AS {quoted(c.name)}" for c in self.columns)
        left, right = (".".join(map(quoted, name.split("."))) for name in (self.left, self.right))
        on = " AND ".join(f"l.{quoted(left)} = r.{quoted(right)}" for left, right in self.on)
        time = "" if self.time is None else f" FOR SYSTEM_TIME AS OF {self.time.sql()}"
        return f"SELECT {columns} FROM {left} AS l {self.kind.upper()} JOIN {right}{time} AS r ON {on}"

    def of_side(self, side: Side) -> list[JoinColumn]:
        """Returns the columns that are from one table."""
        return [column for column in self.columns if column.side is side]

    @property
    def left_columns(self) -> tuple[str, ...]:
        """The columns of the left table on which the result depends, each once."""
        time = [] if self.time is None or self.time.column is None else [self.time.column]
        shown = (column.source for column in self.of_side(Side.LEFT))
        return tuple(dict.fromkeys([*shown, *(left for left, _ in self.on), *time]))

    @property
    def right_columns(self) -> tuple[str, ...]:
        """The columns of the right table on which the result depends, each once."""
        return tuple(dict.fromkeys([*(right for _, right in self.on), *(c.source for c in self.of_side(Side.RIGHT))]))
