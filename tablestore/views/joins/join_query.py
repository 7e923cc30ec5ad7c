"""`JoinQuery`: the query of a view that joins two tables, as a value and as SQL text. Pure.

A view keeps its query as text (option ``view.query``), in the form that `JoinQuery.sql` writes:

    SELECT l.`id` AS `id`, r.`name` AS `planet` FROM `shop`.`orders` AS l LEFT JOIN `shop`.`planets` AS r
    ON l.`planet_id` = r.`id`

Where the left table is one of events, its rows are looked up in the right one as of a time, as in Flink's SQL:
``… JOIN `shop`.`planets` FOR SYSTEM_TIME AS OF CURRENT_TIMESTAMP() AS r ON …``, or ``AS OF l.`at` ``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from filestore.errors import InvalidRequest, NotFound, Unsupported
from filestore.model.definition import TableDefinition
from filestore.model.names import quoted
from filestore.model.text import name_list
from filestore.model.types import to_sql
from tablestore.views.sql.clauses import conjuncts, is_plain_star, other_clauses, system_time

__all__ = [
    "JoinColumn",
    "JoinKind",
    "JoinQuery",
    "Side",
    "SystemTime",
    "join_query",
    "parse_join",
]

_DIALECT = "spark"


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


_ALIASES: Mapping[str, Side] = {str(side): side for side in Side}


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
        """Returns the query as text, from which `parse_join` makes an equal value."""
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


def join_query(  # noqa: PLR0913  # each part of the query is one
    left: tuple[str, TableDefinition],
    right: tuple[str, TableDefinition],
    on: str | Sequence[str],
    kind: JoinKind,
    select: str | Sequence[str] | Sequence[JoinColumn] | None,
    known: JoinQuery | None = None,
    *,
    time: SystemTime | None = None,
    aliases: Mapping[str, Side] = _ALIASES,
) -> JoinQuery:
    """Makes the query of a join.

    Args:
        left: The name of the left table, and its definition.
        right: Those of the right table.
        on: The columns of the left table that equal the primary key of the right table, in the order of that key.
            Names of columns are the same in upper and lower case, as in SQL.
        kind: The kind of join.
        select: The columns of the result, as in a SELECT: ``["l.id", "r.name AS planet"]``, or one text. A name without
            ``l.`` or ``r.`` has to be in one of the tables only. None: all columns of the left table, then those of
            the right one but for its key. Or the columns themselves.
        known: The query of the view if it exists: "all columns" are those that it has, since a table may have got more.
        time: For a left table of events: the time as of which they are looked up in the right one.
        aliases: The tables that ``l`` and ``r`` mean in `select`.

    Raises:
        InvalidRequest: ``bad-join``: columns that do not fit, or a result with a name twice.
        NotFound: ``unknown-column``.
    """
    (left_name, left_table), (right_name, right_table) = left, right
    columns = [on] if isinstance(on, str) else list(on)
    key = right_table.primary_key
    if len(columns) != len(key) or not key:
        raise InvalidRequest(
            f"on={columns} has {len(columns)} columns, and the primary key of {right_name} has {len(key)} "
            f"({', '.join(key) or 'none'}): name a column of {left_name} for each column of that key",
            code="bad-join",
        )
    pairs = tuple((_spelled(name, left_name, left_table), other) for name, other in zip(columns, key, strict=True))
    for name, other in pairs:
        _check_types(left_name, left_table, name, right_name, right_table, other)
    every = {
        side: [JoinColumn(name, side, name) for name in table.schema.names]
        for side, table in ((Side.LEFT, left_table), (Side.RIGHT, right_table))
    }
    if known is not None:
        every = {side: [column for column in some if column in known.columns] for side, some in every.items()}
    if select is None:
        values = (column for column in every[Side.RIGHT] if column.source not in key)
        chosen = (*every[Side.LEFT], *values)
    elif all(isinstance(column, JoinColumn) for column in select):
        chosen = tuple(column for column in select if isinstance(column, JoinColumn))
    else:
        texts = select if isinstance(select, str) else ", ".join(map(str, select))
        chosen = tuple(_selected(texts, {Side.LEFT: left, Side.RIGHT: right}, every, aliases))
    _check_names(chosen)
    if time is None:
        _check_key(chosen, left_name, left_table)
    elif time.column is not None:
        at = _spelled(time.column, left_name, left_table)
        _check_time(at, left_name, left_table)
        time = SystemTime(at)
    return JoinQuery(left_name, right_name, kind, pairs, chosen, time)


def parse_join(text: str) -> JoinQuery:
    """Reads a query that `JoinQuery.sql` wrote; `Unsupported` (``view-query``) for another."""
    try:
        tree = sqlglot.parse_one(text, dialect=_DIALECT)
        return _parsed(tree)
    except (SqlglotError, _OtherQueryError) as error:
        raise Unsupported(
            f"the view's query is no join that this version can keep up to date ({error}): {text}", code="view-query"
        ) from error


class _OtherQueryError(Exception):
    """A query has another form."""


def _parsed(tree: exp.Expr) -> JoinQuery:
    joins = tree.args.get("joins") or []
    source = tree.args.get("from_")
    if not isinstance(tree, exp.Select) or source is None or len(joins) != 1 or other_clauses(tree):
        raise _OtherQueryError("it is no join of two tables alone")
    join = joins[0]
    kinds = {("", "INNER"): JoinKind.INNER, ("LEFT", ""): JoinKind.LEFT}
    kind = kinds.get((join.side, join.kind))
    pairs = tuple(_pair(equal) for equal in conjuncts(join.args.get("on")))
    if kind is None or not pairs:
        raise _OtherQueryError(f"{join.sql(_DIALECT)} is another kind of join")
    columns = tuple(_column(projection) for projection in tree.expressions)
    return JoinQuery(_table(source.this), _table(join.this), kind, pairs, columns, _time(join.this))


def _time(table: exp.Expr) -> SystemTime | None:
    time = system_time(table)
    if time is None or isinstance(time, exp.CurrentTimestamp):
        return None if time is None else SystemTime()
    column = _column(time)
    if column.side is not Side.LEFT:
        raise _OtherQueryError(f"{time.sql(_DIALECT)} is no column of l")
    return SystemTime(column.source)


def _pair(equal: exp.Expr) -> tuple[str, str]:
    if not isinstance(equal, exp.EQ):
        raise _OtherQueryError(f"{equal.sql(_DIALECT)} is no equality")
    left, right = _column(equal.left), _column(equal.right)
    if (left.side, right.side) != (Side.LEFT, Side.RIGHT):
        raise _OtherQueryError(f"{equal.sql(_DIALECT)} does not compare l with r")
    return left.source, right.source


def _column(projection: exp.Expr) -> JoinColumn:
    name, column = projection.alias_or_name, projection.unalias()
    if not isinstance(column, exp.Column) or column.table not in list(Side):
        raise _OtherQueryError(f"{projection.sql(_DIALECT)} is no column of l or r")
    return JoinColumn(name, Side(column.table), column.name)


def _table(table: exp.Expr) -> str:
    if not isinstance(table, exp.Table):
        raise _OtherQueryError(f"{table.sql(_DIALECT)} is no table")
    return f"{table.db}.{table.name}".lower()  # as the catalog spells it


def _selected(
    text: str,
    tables: Mapping[Side, tuple[str, TableDefinition]],
    every: Mapping[Side, Sequence[JoinColumn]],
    aliases: Mapping[str, Side],
) -> Iterator[JoinColumn]:
    """Reads a list of columns as in a SELECT."""
    try:
        tree = sqlglot.parse_one(f"SELECT {text}", dialect=_DIALECT)
    except SqlglotError as error:
        raise InvalidRequest(f"select={text!r} is no list of columns: {error}", code="bad-join") from error
    if clauses := [name for name, value in tree.args.items() if value and name != "expressions"]:
        raise InvalidRequest(f"select={text!r} is no list of columns: it has {clauses[0]}", code="bad-join")
    for projection in tree.expressions:
        column = projection.unalias()
        table = column.table.lower() if isinstance(column, exp.Column) else ""
        if isinstance(column, exp.Column) and table in aliases and is_plain_star(column.this):
            yield from every[aliases[table]]
            continue
        if (
            not isinstance(column, exp.Column)
            or table not in ("", *aliases)
            or column.db
            or isinstance(column.this, exp.Star)
        ):
            raise InvalidRequest(
                f"select has {projection.sql(_DIALECT)!r}: name columns of the left table as l.column and of the right "
                "one as r.column, each with another name by AS if you like; l.* are all columns of the left table",
                code="bad-join",
            )
        side = aliases[table] if table else _side_of(column.name, tables)
        source = _spelled(column.name, *tables[side])
        yield JoinColumn(projection.alias or source, side, source)


def _side_of(name: str, tables: Mapping[Side, tuple[str, TableDefinition]]) -> Side:
    found = [side for side, (_, table) in tables.items() if table.schema.spelled(name) is not None]
    if len(found) > 1:
        raise InvalidRequest(f"both tables have a column {name!r}: write l.{name} or r.{name}", code="bad-join")
    return found[0] if found else Side.LEFT


def _spelled(name: str, table: str, definition: TableDefinition) -> str:
    """Returns the name of a column as its table has it; `NotFound` (``unknown-column``) if it has none."""
    if (known := definition.schema.spelled(name)) is None:
        raise NotFound(
            f"{table} has no column {name!r}: its columns are {name_list(definition.schema.names)}",
            code="unknown-column",
        )
    return known


def _check_types(
    left_name: str, left: TableDefinition, name: str, right_name: str, right: TableDefinition, other: str
) -> None:
    kind, wanted = left.schema.column(name).type, right.schema.column(other).type
    if kind != wanted:
        raise InvalidRequest(
            f"{left_name}.{name} is {kind} and {right_name}.{other} is {wanted}: a join needs equal types; widen one "
            "of the columns",
            code="bad-join",
        )


def _check_names(columns: Iterable[JoinColumn]) -> None:
    names: dict[str, JoinColumn] = {}
    for column in columns:
        if (other := names.setdefault(column.name.lower(), column)) is not column:
            raise InvalidRequest(
                f"the result would have two columns {column.name!r}, {other.side}.{other.source} and "
                f"{column.side}.{column.source}: name the columns with select, as in 'r.{column.source} AS …'",
                code="bad-join",
            )


def _check_key(columns: Iterable[JoinColumn], left_name: str, left: TableDefinition) -> None:
    sources = {column.source for column in columns if column.side is Side.LEFT}
    if not left.primary_key:
        raise InvalidRequest(
            f"{left_name} has no primary key, by which the rows of the result could be kept: join a table with one",
            code="bad-join",
        )
    if missing := [name for name in left.primary_key if name not in sources]:
        raise InvalidRequest(
            f"the result lacks {name_list(missing)}, and its key is that of {left_name}: add l.{missing[0]} to select",
            code="bad-join",
        )


def _check_time(column: str, left_name: str, left: TableDefinition) -> None:
    if not pa.types.is_timestamp(kind := left.schema.column(column).type):
        raise InvalidRequest(
            f"{left_name}.{column} is {to_sql(kind)}, and events are looked up as of a TIMESTAMP: name such a column, "
            "or leave the time out for the version that is the newest one at the refresh",
            code="bad-join",
        )
