"""`JoinSides`: which of two tables that are joined drives the join, and which kinds of join are possible. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from filestore.errors import InvalidRequest
from filestore.model.definition import TableDefinition
from tablestore.views.joins.join_query import JoinKind, JoinQuery, Side, SystemTime, join_query

__all__ = ["JoinSides", "ordered"]


@dataclass(frozen=True, slots=True)
class JoinSides:
    """The tables of a join in the order of its query: a table of events is the left one, wherever it was named.

    Attributes:
        names: The names of the left and of the right table.
        left: The left table.
        right: The right table, which has a primary key.
        swapped: Whether they were named in the other order.
    """

    names: tuple[str, str]
    left: TableDefinition
    right: TableDefinition
    swapped: bool

    @property
    def of_events(self) -> bool:
        """Returns whether the left table is one of events: it has no primary key, so that rows are only added to it."""
        return not self.left.primary_key

    def check(self, kind: JoinKind, at: str | None) -> None:
        """Checks that the result follows from the tables; raises `InvalidRequest` (``bad-join``)."""
        events, other = self.names
        if self.swapped and kind is not JoinKind.INNER:
            raise InvalidRequest(
                f"{events} has no primary key, so rows are only added to the result; a left join of {other} with it "
                "would have rows without an event, which later events take back: use kind='inner', or "
                f"left={events!r} and right={other!r}",
                code="bad-join",
            )
        if at is not None and not self.of_events:
            raise InvalidRequest(
                f"at={at!r} is the time of events, and {events} has a primary key: its rows are joined with the newest "
                "version, and again when that changes; leave at out",
                code="bad-join",
            )

    def query(
        self,
        on: str | Sequence[str],
        kind: JoinKind,
        select: str | Sequence[str] | None,
        known: JoinQuery | None,
        at: str | None,
    ) -> JoinQuery:
        """Makes the query; for arguments and errors see `join_query`."""
        sides = list(Side)
        aliases = dict(zip(map(str, Side), reversed(sides) if self.swapped else sides, strict=True))
        time = SystemTime(at) if self.of_events else None
        left, right = (self.names[0], self.left), (self.names[1], self.right)
        return join_query(left, right, on, kind, select, known, time=time, aliases=aliases)


def ordered(left: str, right: str, definitions: Mapping[str, TableDefinition]) -> JoinSides:
    """Returns the sides of a join.

    Args:
        left: The name of the table that was named first.
        right: The name of the other one.
        definitions: Their definitions by name.

    Raises:
        InvalidRequest: ``bad-join``: neither table has a primary key.
    """
    keyed = [bool(definitions[name].primary_key) for name in (left, right)]
    if not any(keyed):
        raise InvalidRequest(
            f"{left} and {right} have no primary key: a row of one table is found by the primary key of the other",
            code="bad-join",
        )
    swapped = keyed == [True, False]
    names = (right, left) if swapped else (left, right)
    return JoinSides(names, definitions[names[0]], definitions[names[1]], swapped)
