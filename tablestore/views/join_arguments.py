"""Makes a statement of the arguments of `tablestore.Store.maintain_join`, which is read like any other. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from filestore.errors import InvalidRequest, NotFound, TableStoreError
from filestore.model.definition import TableDefinition
from filestore.model.names import quoted
from filestore.model.text import name_list
from tablestore.views.plan.join_query import JoinColumn, JoinKind, JoinQuery, Side
from tablestore.views.plan.scope import NotPlainError
from tablestore.views.plan.two_tables import join_of
from tablestore.views.sql.place import Place
from tablestore.views.sql.view_query import view_of_statement

__all__ = ["JoinSides", "asks_for", "join_of_arguments", "ordered"]


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

    @property
    def definitions(self) -> Mapping[str, TableDefinition]:
        """The definitions by the names of the tables."""
        return dict(zip(self.names, (self.left, self.right), strict=True))

    @property
    def aliases(self) -> tuple[str, str]:
        """The names by which users call the left and the right table: those of the places at which they named them."""
        return ("r", "l") if self.swapped else ("l", "r")


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


def join_of_arguments(
    sides: JoinSides,
    on: str | Sequence[str],
    kind: JoinKind,
    select: str | Sequence[str] | None,
    at: str | None,
    known: JoinQuery | None,
) -> JoinQuery:
    """Returns the join that the arguments ask for.

    Args:
        sides: The tables.
        on: The columns of the left table that equal the primary key of the right table, in the order of that key.
            Names of columns are the same in upper and lower case, as in SQL.
        kind: The kind of join.
        select: The columns of the result, as in a SELECT: ``["l.id", "r.name AS planet"]``, or one text. A name without
            ``l.`` or ``r.`` has to be in one of the tables only. None: all columns of the left table, then those of
            the right one but for its key.
        at: For a left table of events the column with the time as of which they are looked up.
        known: The join of the view if it exists: without `select` the columns are those that it has.

    Raises:
        InvalidRequest: ``bad-join``: columns that do not exist or do not fit, or a result with a name twice.
    """
    given = "" if select is None else f"select={select!r}, "
    columns = _all_columns(sides, known) if select is None else select
    listed = columns if isinstance(columns, str) else ", ".join(map(str, columns))
    if not listed.strip():
        raise InvalidRequest(f"select={select!r} names no column: name some, or leave it out", code="bad-join")

    def definition_of(name: str) -> TableDefinition:
        if name not in sides.definitions:
            raise NotFound(f"{name} is no table of the join", code="table-not-found")
        return sides.definitions[name]

    statement = _statement(sides, on, kind, listed, at)
    try:
        join = join_of(view_of_statement(statement, Place("", ""), definition_of), sides.definitions)
    except (NotPlainError, TableStoreError) as error:
        why = error.message if isinstance(error, TableStoreError) else str(error)
        raise InvalidRequest(
            f"{' and '.join(sides.names)} cannot be joined with {given}on={on!r}: {why}", code="bad-join"
        ) from error
    _check_key(sides, join)
    return join


def asks_for(select: str | Sequence[str] | None, join: JoinQuery, known: JoinQuery) -> bool:
    """Returns whether arguments ask for a view that exists: "all columns" are those that it has.

    Args:
        select: The argument.
        join: The join that the arguments ask for.
        known: That of the view.
    """
    if select is not None and not any("*" in one for one in ([select] if isinstance(select, str) else select)):
        return join == known
    return known == replace(join, columns=tuple(column for column in join.columns if column in known.columns))


def _all_columns(sides: JoinSides, known: JoinQuery | None) -> list[str]:
    """Returns all columns of the left table, and those of the right one but for its key, as parts of a SELECT."""
    found = []
    for alias, side, table in zip(sides.aliases, Side, (sides.left, sides.right), strict=True):
        left_out = sides.right.primary_key if side is Side.RIGHT else ()
        for name in table.schema.names:
            if name not in left_out and (known is None or JoinColumn(name, side, name) in known.columns):
                found.append(f"{alias}.{quoted(name)}")
    return found


def _statement(sides: JoinSides, on: str | Sequence[str], kind: JoinKind, listed: str, at: str | None) -> str:
    columns, key = [on] if isinstance(on, str) else list(on), sides.right.primary_key
    if len(columns) != len(key):
        raise InvalidRequest(
            f"on={columns} has {len(columns)} columns, and the primary key of {sides.names[1]} has {len(key)} "
            f"({', '.join(key)}): name a column of {sides.names[0]} for each column of that key",
            code="bad-join",
        )
    left, right = sides.aliases
    pairs = (f"{left}.{quoted(name)} = {right}.{quoted(other)}" for name, other in zip(columns, key, strict=True))
    time = "current_timestamp()" if at is None else f"{left}.{quoted(at)}"
    tables = [".".join(map(quoted, name.split("."))) for name in sides.names]
    as_of = f" FOR SYSTEM_TIME AS OF {time}" if sides.of_events else ""
    # a new line, since the list may end with a comment
    return (
        f"SELECT {listed}\nFROM {tables[0]} AS {left} {kind.upper()} JOIN {tables[1]}{as_of} AS {right} "
        f"ON {' AND '.join(pairs)}"
    )


def _check_key(sides: JoinSides, join: JoinQuery) -> None:
    if (join.left, join.right) != sides.names:
        raise InvalidRequest(f"select reads other tables than {' and '.join(sides.names)}", code="bad-join")
    sources = {column.source for column in join.of_side(Side.LEFT)}
    if missing := [name for name in sides.left.primary_key if name not in sources]:
        raise InvalidRequest(
            f"the result lacks {name_list(missing)}, and its key is that of {join.left}: add "
            f"{sides.aliases[0]}.{missing[0]} to select",
            code="bad-join",
        )
