"""Reads the query of ``CREATE MATERIALIZED VIEW``: a join of two tables, with names as users write them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import SqlglotError

from filestore.errors import InvalidRequest, NotFound, Unsupported
from filestore.model.definition import TableDefinition
from tablestore.views.joins.join_query import JoinColumn, JoinKind, JoinQuery, Side, SystemTime, join_query
from tablestore.views.sql.clauses import conjuncts, is_plain_star, other_clauses, system_time
from tablestore.views.sql.place import Place
from tablestore.views.sql.spark_syntax import parsed

__all__ = ["join_of_statement", "looks_up_events"]

_DIALECT = "spark"


def join_of_statement(text: str, place: Place, definition_of: Callable[[str], TableDefinition]) -> JoinQuery:
    """Returns the join that a query asks for.

    Args:
        text: The query: ``SELECT`` of columns ``FROM`` a table ``[LEFT] JOIN`` another ``ON`` its primary key. If the
            first table is one of events, behind the name of the other one ``FOR SYSTEM_TIME AS OF current_timestamp()``
            or a column of the events.
        place: Completes names of tables.
        definition_of: Returns the definition of a table; raises `NotFound`.

    Raises:
        Unsupported: ``view-query``: a query that cannot be kept up to date.
        InvalidRequest: ``bad-join``: columns or types that do not fit.
        NotFound: there is no such table or column.
    """
    try:
        tree = parsed(text)
    except SqlglotError as error:
        raise InvalidRequest(f"the query cannot be parsed: {error}", code="bad-join") from error
    if not isinstance(tree, exp.Select) or (found := other_clauses(tree)):
        what = found[0].upper() if isinstance(tree, exp.Select) else type(tree).__name__.upper()
        raise _unsupported(f"it has {what}")
    joins, source = tree.args.get("joins") or [], tree.args.get("from_")
    tables = [part.this for part in (source, *joins) if part is not None]
    if len(tables) != 2 or not all(isinstance(table, exp.Table) for table in tables):
        raise _unsupported("it does not join two tables")
    kind, swapped = _kind(joins[0])
    _check_plain(tables[0], ())
    _check_plain(tables[1], () if swapped else ("version",))
    names = _Names.of([tables[1], tables[0]] if swapped else tables, place, definition_of)
    time = _time(tables[1], names)
    listed = list(_pairs(joins[0], names))
    pairs, key = dict(listed), names.definitions[Side.RIGHT].primary_key
    if len(set(listed)) != len(pairs):
        raise _unsupported("a column of the right table has to equal several of the left one")
    if set(pairs) != set(key):
        raise InvalidRequest(
            f"the join is by {', '.join(pairs)} of {names.tables[Side.RIGHT]}, and the primary key of that table is "
            f"{', '.join(key) or 'missing'}: a join can be kept up to date by that key only",
            code="bad-join",
        )
    columns = list(_columns(tree, names))
    return join_query(
        (names.tables[Side.LEFT], names.definitions[Side.LEFT]),
        (names.tables[Side.RIGHT], names.definitions[Side.RIGHT]),
        [pairs[name] for name in key],
        kind,
        columns,
        time=time,
    )


def looks_up_events(text: str) -> bool:
    """Returns whether a query joins a table ``FOR SYSTEM_TIME AS OF`` a time."""
    try:
        tree = parsed(text)
    except SqlglotError:
        return False
    return any(system_time(join.this) is not None for join in tree.args.get("joins") or [])


def _time(table: exp.Table, names: _Names) -> SystemTime | None:
    """Returns the time as of which events are looked up; None for a join of all rows of both tables."""
    time, left = system_time(table), names.tables[Side.LEFT]
    if time is None:
        if table.args.get("version") is not None:
            raise _unsupported(f"it reads one version of {names.tables[Side.RIGHT]}")
        return None
    if names.definitions[Side.LEFT].primary_key:
        raise InvalidRequest(
            f"FOR SYSTEM_TIME AS OF is for events, and {left} has a primary key, so that the result follows each "
            "change of both tables: leave it out",
            code="bad-join",
        )
    if isinstance(time, exp.CurrentTimestamp):
        return SystemTime()
    side, column = names.column(time)
    if side is not Side.LEFT:
        raise InvalidRequest(
            f"FOR SYSTEM_TIME AS OF {time.sql(_DIALECT)} is no time of {left}: name one of its columns, or "
            "current_timestamp()",
            code="bad-join",
        )
    return SystemTime(column)


def _check_plain(table: exp.Table, more: tuple[str, ...]) -> None:
    """Refuses what a query may say of a table beside its name and an alias, such as a version or a sample of it."""
    known = ("this", "db", "catalog", "alias", *more)
    clauses = [name for name, value in table.args.items() if value and name not in known]
    alias = table.args.get("alias")
    if clauses or (alias is not None and alias.args.get("columns")):
        raise _unsupported(f"it does not read all rows of a table by its own names: {table.sql(_DIALECT)}")


def _kind(join: exp.Join) -> tuple[JoinKind, bool]:
    """Returns the kind of join, and whether the tables change places, as for RIGHT JOIN."""
    sort = " ".join(filter(None, [join.method, join.side, join.kind]))
    if sort in ("", "INNER"):
        return JoinKind.INNER, False
    if sort in ("LEFT", "LEFT OUTER", "RIGHT", "RIGHT OUTER"):
        return JoinKind.LEFT, sort.startswith("RIGHT")
    raise _unsupported(f"it has a {sort} JOIN")


@dataclass(frozen=True, slots=True)
class _Names:
    """The tables of the join, and how the statement names them. Names are compared without case, as in Spark."""

    aliases: Mapping[str, Side]
    tables: Mapping[Side, str]
    definitions: Mapping[Side, TableDefinition]

    @classmethod
    def of(cls, tables: list[exp.Table], place: Place, definition_of: Callable[[str], TableDefinition]) -> _Names:
        sides = dict(zip(Side, tables, strict=True))
        aliases = {table.alias_or_name.lower(): side for side, table in sides.items()}
        if len(aliases) < len(sides):
            raise InvalidRequest(
                f"both tables are called {tables[0].alias_or_name}: give one an alias", code="bad-join"
            )
        names = {side: place.name(table) for side, table in sides.items()}
        return cls(aliases, names, {side: definition_of(name) for side, name in names.items()})

    def column(self, column: exp.Expr) -> tuple[Side, str]:
        """Returns the table of a column, and the column's name in it."""
        if not isinstance(column, exp.Column) or column.db or isinstance(column.this, exp.Star):
            raise _unsupported(f"{column.sql(_DIALECT)} is no column of a table of the query")
        found = [(side, name) for side in self._sides(column.table) if (name := self._in(side, column.name))]
        if len(found) == 1:
            return found[0]
        if found:
            raise InvalidRequest(f"both tables have a column {column.name!r}: say of which it is", code="bad-join")
        raise NotFound(
            f"{column.sql(_DIALECT)} is no column of {' or '.join(self.tables.values())}", code="unknown-column"
        )

    def all_columns(self, table: str) -> Iterator[tuple[Side, str]]:
        """Returns the columns that ``*`` or ``alias.*`` stands for."""
        return ((side, name) for side in self._sides(table) for name in self.definitions[side].schema.names)

    def _sides(self, table: str) -> list[Side]:
        if not table:
            return list(self.aliases.values())
        if table.lower() not in self.aliases:
            raise NotFound(f"no table of the query is called {table!r}", code="unknown-column")
        return [self.aliases[table.lower()]]

    def _in(self, side: Side, column: str) -> str | None:
        return self.definitions[side].schema.spelled(column)


def _pairs(join: exp.Join, names: _Names) -> Iterator[tuple[str, str]]:
    """Yields columns of the right table, each with the column of the left one that equals it."""
    for name in join.args.get("using") or []:
        both = {side: names.column(exp.column(name.name, table=alias))[1] for alias, side in names.aliases.items()}
        yield both[Side.RIGHT], both[Side.LEFT]
    for equal in conjuncts(join.args.get("on")):
        if not isinstance(equal, exp.EQ):
            raise _unsupported(f"the condition {equal.sql(_DIALECT)} is no equality of two columns")
        both = dict(names.column(column) for column in (equal.left, equal.right))
        if len(both) != 2:
            raise _unsupported(f"the condition {equal.sql(_DIALECT)} compares columns of one table")
        yield both[Side.RIGHT], both[Side.LEFT]


def _columns(tree: exp.Select, names: _Names) -> Iterator[JoinColumn]:
    for projection in tree.expressions:
        column = projection.unalias()
        star = column.this if isinstance(column, exp.Column) else column
        if is_plain_star(star):
            table = column.table if isinstance(column, exp.Column) else ""
            yield from (JoinColumn(name, side, name) for side, name in names.all_columns(table))
            continue
        side, source = names.column(column)
        yield JoinColumn(projection.alias or source, side, source)


def _unsupported(what: str) -> Unsupported:
    return Unsupported(
        f"the view cannot be kept up to date: {what}. It takes SELECT of columns FROM a table [LEFT] JOIN another ON "
        "its primary key; for other queries create a view, or a table AS SELECT",
        code="view-query",
    )
