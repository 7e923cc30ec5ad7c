"""Random queries of every shape for which there are rules, over four small tables, and random rows of these."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.tables import define

__all__ = ["COLUMNS", "TABLES", "Shape", "row_of", "shape"]

TABLES = {
    "s.a": define("id BIGINT NOT NULL, x BIGINT, y BIGINT, t STRING", ["id"]),
    "s.b": define("k BIGINT NOT NULL, v BIGINT, t STRING", ["k"]),
    "s.c": define("p BIGINT NOT NULL, q BIGINT NOT NULL, v BIGINT", ["p", "q"]),
    "s.e": define("x BIGINT, v BIGINT"),
}
COLUMNS = {name: definition.schema.names for name, definition in TABLES.items()}
_NUMBERS = {name: [column for column in columns if column != "t"] for name, columns in COLUMNS.items()}
_KEYED = ["s.a", "s.a", "s.b", "s.c"]
_JOINS = ["JOIN", "JOIN", *["LEFT JOIN"] * 3, "LEFT SEMI JOIN", "LEFT ANTI JOIN", "RIGHT JOIN", "CROSS JOIN", ","]


@dataclass(frozen=True)
class Shape:
    """A query, with the key that a user would give; empty: the one that follows."""

    query: str
    primary_key: tuple[str, ...] = ()


def row_of(table: str, dice: random.Random) -> tuple[object, ...]:
    """Returns a row of a table, with few values, so that partners come and go."""
    found: list[object] = []
    for column in TABLES[table].schema:
        value: object = dice.choice("uvw") if column.name == "t" else dice.randrange(4)
        if column.name in ("id", "k"):
            value = dice.randrange(6)
        elif column.nullable and dice.randrange(4) == 0:
            value = None
        found.append(value)
    return tuple(found)


def shape(dice: random.Random) -> Shape:
    """Returns a query."""
    shapes = _Shapes(dice)
    found = [shapes.union, shapes.firsts, *[shapes.select] * 10][dice.randrange(12)]()
    names = ", ".join(f"{name} AS {text}" for name, text in shapes.named.items())
    return Shape(f"WITH {names} {found.query}", found.primary_key) if names else found


@dataclass(frozen=True)
class _Source:
    """A table of FROM, or a subquery, with its columns that are numbers."""

    alias: str
    text: str
    numbers: Sequence[str]
    key: Sequence[str]

    def named(self, columns: Sequence[str]) -> list[str]:
        return [f"{self.alias}.{name}" for name in columns]


class _Shapes:
    """Makes the parts of one query, with aliases of its own for each table."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._aliases = 0
        self.named: dict[str, str] = {}
        """The subqueries that WITH has."""

    def select(self) -> Shape:
        dice = self._dice
        sources, tables = self._joined(dice.choice([0, 0, 1, 1, 1, 2, 2, 3]))
        rest = f" FROM {tables}{self._where(sources, with_subqueries=True)}"
        columns = list(dict.fromkeys(self._column([one]) for one in [*sources, *sources]))
        form = dice.choice(["rows", "rows", "groups", "groups", "distinct", "partitions"])
        if form == "groups":
            return self._groups(columns, self._column(sources), rest)
        if form == "distinct" or not all(one.key for one in sources):
            items = _numbered(columns, "d")
            return Shape(f"SELECT DISTINCT {', '.join(items)}{rest}", _names("d", len(columns)))
        keys = [name for one in sources for name in one.named(one.key)]
        items = [*_numbered(keys, "k"), *_numbered(columns, "d")]
        if dice.randrange(3) == 0:
            items.append(f"coalesce({columns[0]}, 0) + 1 AS more")
        if form == "partitions":
            items.append(self._window(columns, keys))
        more = ("d0",) if dice.randrange(8) == 0 else ()  # a key may have more columns than are needed
        return Shape(f"SELECT {', '.join(items)}{rest}", (*_names("k", len(keys)), *more))

    def firsts(self) -> Shape:
        """Returns the first row of each partition, which is known by no key but these."""
        dice = self._dice
        sources, tables = self._joined(dice.choice([0, 0, 1]))
        if not all(one.key for one in sources):
            return self.select()
        by, value, order = (self._column(sources) for _ in range(3))
        keys = ", ".join(name for one in sources for name in one.named(one.key))
        number = f"row_number() OVER (PARTITION BY {by} ORDER BY {order} DESC, {keys}) AS place"
        rows = f"(SELECT {by} AS p, {value} AS v, {number} FROM {tables}{self._where(sources)})"
        where = f"{dice.choice(['place = 1', 'place <= 1', 'q.place < 2'])} AND p IS NOT NULL"
        return Shape(f"SELECT p AS k0, v AS d0 FROM {rows} AS q WHERE {where}", ("k0",))

    def union(self) -> Shape:
        """Returns a UNION ALL with a constant of its own in each branch."""
        texts = []
        for number in range(2):
            one = self._source()
            first, second = one.named(one.numbers[:2])
            where = self._where([one], with_subqueries=True)
            texts.append(f"SELECT {number} AS branch, {first} AS i, {second} AS j FROM {one.text}{where}")
        return Shape(" UNION ALL ".join(texts), ("branch", "i", "j"))

    def _groups(self, columns: Sequence[str], value: str, rest: str) -> Shape:
        dice = self._dice
        groups = [dice.choice([c, f"coalesce({c}, 7)", f"{c} + 1"]) for c in columns[: dice.choice([1, 1, 2])]]
        items = [*_numbered(groups, "g"), "count(*) AS n", f"sum({value}) AS s", f"min({value}) AS l"]
        having = dice.choice(["", "", " HAVING count(*) > 1"])
        text = f"SELECT {', '.join(items)}{rest} GROUP BY {', '.join(groups)}{having}"
        return Shape(text, _names("g", len(groups)))

    def _window(self, columns: Sequence[str], keys: Sequence[str]) -> str:
        dice = self._dice
        by = dice.choice(columns)
        order = f"ORDER BY {', '.join([dice.choice(columns), *keys])}"
        function = dice.choice(["count(*) OVER ({})", f"rank() OVER ({{}} {order})", f"sum({by}) OVER ({{}} {order})"])
        return f"{function.format(f'PARTITION BY {by}')} AS w"

    def _joined(self, joins: int) -> tuple[list[_Source], str]:
        """Returns the inputs whose columns are visible, and FROM."""
        dice = self._dice
        first = self._source(_KEYED if joins == 0 and dice.randrange(4) else [*_KEYED, "s.e"])
        sources, text = [first], first.text
        for number in range(joins):
            kind = dice.choice(_JOINS if number == 0 else _JOINS[:-3])
            hidden = kind in ("LEFT SEMI JOIN", "LEFT ANTI JOIN")
            other = self._source([*_KEYED, "s.e"] if hidden else _KEYED)
            if kind in (",", "CROSS JOIN"):
                text += f"{kind}{' '}{other.text}" if kind == "," else f" {kind} {other.text}"
            else:
                text += f" {kind} {other.text} ON {self._on(sources, other)}"
            if not hidden:
                sources.append(other)
        return sources, text

    def _on(self, sources: Sequence[_Source], other: _Source) -> str:
        dice = self._dice
        own = other.key if other.key and dice.randrange(3) else [dice.choice(other.numbers)]
        equal = [f"{self._value(sources)} = {name}" for name in other.named(own)]
        if dice.randrange(4) == 0:
            equal.append(self._condition([*sources, other]))
        return " AND ".join(equal)

    def _source(self, tables: Sequence[str] = _KEYED, depth: int = 0) -> _Source:
        dice, alias = self._dice, self._alias()
        kind = dice.choice(["table"] * 5 + ["groups", "rows", "join", "union"]) if depth == 0 else "table"
        if kind == "table":
            table = dice.choice(tables)
            return _Source(alias, f"{table} AS {alias}", _NUMBERS[table], TABLES[table].primary_key)
        if kind == "union":
            first = ", ".join(f"{n} AS {m}" for n, m in zip(_NUMBERS["s.a"][:2], "mn", strict=True))
            second = ", ".join(f"{n} AS {m}" for n, m in zip(_NUMBERS["s.b"], "mn", strict=True))
            text = f"(SELECT {first} FROM s.a UNION ALL SELECT {second} FROM s.b WHERE v IS NOT NULL)"
            return _Source(alias, self._subquery_of_from(text, alias), ["m", "n"], [])
        inner = self._source(tables, depth + 1)
        if kind == "groups":
            group = f"{inner.alias}.{dice.choice(inner.numbers)}"
            value = dice.choice(["count(*)", f"sum({self._column([inner])})", f"max({self._column([inner])})"])
            where = self._where([inner])
            text = f"(SELECT {group} AS g, {value} AS n FROM {inner.text}{where} GROUP BY {group})"
            return _Source(alias, self._subquery_of_from(text, alias), ["g", "n"], ["g"])
        listed, sources, joined, numbers = inner.named(inner.numbers), [inner], inner.text, [*inner.numbers]
        if kind == "join":
            other = self._source(_KEYED, depth + 1)
            equal = " AND ".join(f"{self._value([inner])} = {name}" for name in other.named(other.key))
            joined += f" {dice.choice(['JOIN', 'LEFT JOIN'])} {other.text} ON {equal}"
            listed, numbers = [*listed, f"{self._column([other])} AS other"], [*numbers, "other"]
            sources.append(other)
        elif dice.randrange(3) == 0:
            listed = [f"{inner.alias}.*"]
        text = f"(SELECT {', '.join(listed)} FROM {joined}{self._where(sources)})"
        return _Source(alias, self._subquery_of_from(text, alias), numbers, inner.key)

    def _subquery_of_from(self, text: str, alias: str) -> str:
        if self._dice.randrange(3):
            return f"{text} AS {alias}"
        self.named[f"w{alias}"] = text
        return f"w{alias} AS {alias}"

    def _where(self, sources: Sequence[_Source], *, with_subqueries: bool = False) -> str:
        dice = self._dice
        found = [self._condition(sources) for _ in range(dice.choice([0, 0, 1, 1, 2]))]
        if with_subqueries and dice.randrange(4) == 0:
            found.append(self._subquery(sources))
        return f" WHERE {' AND '.join(found)}" if found else ""

    def _condition(self, sources: Sequence[_Source]) -> str:
        one, other = self._column(sources), self._column(sources)
        return self._dice.choice(
            [
                f"{one} > 1",
                f"{one} IS NULL",
                f"({one} IS NULL OR {one} < 3)",
                f"coalesce({one}, 2) > {self._dice.randrange(3)}",
                f"{one} IS DISTINCT FROM {other}",
                f"NOT ({one} = 2)",
            ]
        )

    def _subquery(self, sources: Sequence[_Source]) -> str:
        """Returns a condition with a subquery that is correlated by an equality."""
        dice, table, alias = self._dice, self._dice.choice(list(TABLES)), self._alias()
        own, more, value = (f"{alias}.{dice.choice(_NUMBERS[table])}" for _ in range(3))
        outer, source = self._value(sources), f"{table} AS {alias}"
        if dice.randrange(5) == 0:
            inner = self._alias()
            source = f"(SELECT {inner}.* FROM {table} AS {inner} WHERE {inner}.{_NUMBERS[table][0]} > 0) AS {alias}"
            source = source.replace("*", f", {inner}.".join(COLUMNS[table]))
        if dice.randrange(3) == 0:
            other, there = dice.choice(["s.b", "s.c", "s.e"]), self._alias()
            columns = [f"{there}.{dice.choice(_NUMBERS[other])}" for _ in range(3)]
            kind = dice.choice(["JOIN", "JOIN", "LEFT JOIN", "LEFT SEMI JOIN"])
            source += f" {kind} {other} AS {there} ON {columns[0]} = {alias}.{dice.choice(_NUMBERS[table])}"
            if kind != "LEFT SEMI JOIN":
                own, more, value = (dice.choice(pair) for pair in zip((own, more, value), columns, strict=True))
        where = f"{own} = {outer}" + (f" AND {more} > 0" if dice.randrange(2) else "")
        key = dice.choice(sources[0].named(sources[0].key) or [outer])
        return dice.choice(
            [
                f"EXISTS (SELECT 1 FROM {source} WHERE {where})",
                f"NOT EXISTS (SELECT 1 FROM {source} WHERE {where})",
                f"({outer} IN (SELECT {own} FROM {source} WHERE {more} > 0) OR {outer} = 3)",
                f"{key} NOT IN (SELECT {own} FROM {source} WHERE {own} IS NOT NULL AND {more} > 0)",
                f"coalesce((SELECT max({value}) FROM {source} WHERE {where}), 2) > 1",
            ]
        )

    def _column(self, sources: Sequence[_Source]) -> str:
        source = self._dice.choice(sources)
        return f"{source.alias}.{self._dice.choice(source.numbers)}"

    def _value(self, sources: Sequence[_Source]) -> str:
        """Returns what a column may have to equal: a column, or an expression of one."""
        column = self._column(sources)
        return self._dice.choice([column, column, column, f"{column} + 1", f"({column} % 3)"])

    def _alias(self) -> str:
        self._aliases += 1
        return f"r{self._aliases}"


def _numbered(expressions: Sequence[str], letter: str) -> list[str]:
    return [f"{text} AS {name}" for text, name in zip(expressions, _names(letter, len(expressions)), strict=True)]


def _names(letter: str, count: int) -> tuple[str, ...]:
    return tuple(f"{letter}{number}" for number in range(count))
