"""Decides which statements polars can run with the meaning that they have in Spark. Pure.

A whitelist: a SELECT over one table, of which each clause is known here. `select_of` looks at the clauses, for which no
table is needed; `plan` at expressions, for which the types of the columns are. What is left out has another meaning in
polars, or may have: integer arithmetic (Spark refuses an overflow), division, casts between types, functions, LIKE,
FLOAT, ordinals, names in another case. Both raise `Unsupported` with the reason, and the statement is one for Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from filestore.model.types import contains_type
from tablestore.shell.conditions import Conditions, column_of, not_plain, only, quoted

__all__ = ["TABLE", "Plan", "Select", "plan", "select_of"]

TABLE = "t"
"""The name of the one table in a plan's text."""

_CLAUSES = ("expressions", "from_", "where", "group", "having", "order", "limit", "offset", "distinct")
_TEXTS = frozenset({TokenType.STRING, TokenType.RAW_STRING, TokenType.NATIONAL_STRING})


@dataclass(frozen=True, slots=True)
class Select:
    """A SELECT whose clauses are plain.

    Attributes:
        tree: The statement, parsed.
        table: The table's name as it is written, in its parts.
        alias: The name that columns may be qualified with.
    """

    tree: exp.Select
    table: tuple[str, ...]
    alias: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A SELECT for polars.

    Attributes:
        sql: Its text; the table is `TABLE`.
        schema: The columns of the result, with Spark's names and types.
    """

    sql: str
    schema: pa.Schema


def select_of(statement: str) -> Select:
    """Parses a statement, and checks its clauses.

    Raises:
        Unsupported: ``not-plain``: it is none for polars; the message is the reason.
    """
    try:
        _check_words(statement)
        tree = sqlglot.parse_one(statement, dialect="spark")
    except (SqlglotError, RecursionError) as error:
        raise not_plain("it is not parsed here") from error
    if not isinstance(tree, exp.Select):
        raise not_plain("it is not a plain SELECT")
    only(tree, *_CLAUSES)
    if tree.args.get("distinct") is not None:
        only(tree.args["distinct"])
    source = tree.args.get("from_")
    if source is None:
        raise not_plain("it reads no table")
    only(source, "this")
    table = source.this
    if not isinstance(table, exp.Table):
        raise not_plain("it reads something else than a table")
    only(table, "this", "db", "catalog", "alias")
    parts = tuple(part.name for part in table.parts if isinstance(part, exp.Identifier))
    if len(parts) != len(table.parts) or not all(parts):
        raise not_plain("it reads something else than a table")
    if any("$" in part for part in parts):
        raise not_plain("it reads a system table")
    return Select(tree, parts, _alias(table) or parts[-1])


def _check_words(statement: str) -> None:
    """Refuses what is no SELECT, and texts of which sqlglot and Spark may make different values."""
    tokens = sqlglot.tokenize(statement, dialect="spark")
    if not tokens or tokens[0].token_type is not TokenType.SELECT:
        raise not_plain("it is not a plain SELECT")
    before = None
    for token in tokens:
        if token.token_type is TokenType.PIPE_GT:
            raise not_plain("it has |>, which is for Spark")
        if token.token_type in _TEXTS:
            if "\\" in statement[token.start : token.end + 1]:
                raise not_plain("a text in it has a backslash")
            if before in _TEXTS:
                raise not_plain("a text in it has a quote")
        before = token.token_type


def _alias(table: exp.Table) -> str | None:
    alias = table.args.get("alias")
    if alias is None:
        return None
    only(alias, "this")
    if not isinstance(alias.this, exp.Identifier):
        raise not_plain("it reads a system table")
    return alias.this.name


def plan(select: Select, schema: pa.Schema) -> Plan:
    """Checks the expressions of a statement, and writes it for polars.

    Args:
        select: What `select_of` returned.
        schema: The columns of its table.

    Raises:
        Unsupported: ``not-plain``, as `select_of`.
    """
    try:
        return _Writer(select, schema).plan()
    except RecursionError as error:
        raise not_plain("it is nested too deeply") from error


class _Writer:
    """Writes one statement."""

    def __init__(self, select: Select, schema: pa.Schema) -> None:
        self._tree = select.tree
        self._schema = schema
        self._rows = Conditions(schema, select.alias)
        group = self._tree.args.get("group")
        if group is not None:
            only(group, "expressions")
        self._keys = [self._key(node) for node in group.expressions] if group is not None else None
        self._distinct = self._tree.args.get("distinct") is not None

    def plan(self) -> Plan:
        listed, fields = self._outputs()
        parts = [f"SELECT {'DISTINCT ' if self._distinct else ''}{', '.join(listed)} FROM {TABLE}"]
        if (where := self._tree.args.get("where")) is not None:
            only(where, "this")
            parts.append(f"WHERE {self._rows.condition(where.this)}")
        if self._keys is not None:
            parts.append(f"GROUP BY {', '.join(map(quoted, self._keys))}")
        if (having := self._tree.args.get("having")) is not None:
            only(having, "this")
            if self._keys is None:
                raise not_plain("it has HAVING without GROUP BY")
            grouped = Conditions(pa.schema([self._schema.field(k) for k in self._keys]), self._rows.alias, self._schema)
            parts.append(f"HAVING {grouped.condition(having.this)}")
        parts += self._order([field.name for field in fields])
        for word in ("limit", "offset"):
            if (clause := self._tree.args.get(word)) is not None:
                parts.append(f"{word.upper()} {_whole(clause)}")
        return Plan(" ".join(parts), pa.schema(fields))

    def _key(self, node: exp.Expression) -> str:
        """Returns a column whose values can be grouped: both engines take the same ones for equal."""
        name = column_of(node, self._schema, self._rows.alias)
        _require_equatable(self._schema.field(name))
        return name

    def _outputs(self) -> tuple[list[str], list[pa.Field]]:
        """The expressions behind SELECT, and the columns of the result."""
        found: list[tuple[str, pa.Field]] = []
        aggregates = self._keys is not None
        for node in self._tree.expressions:
            value, alias = (node.this, node.args["alias"].name) if isinstance(node, exp.Alias) else (node, None)
            if isinstance(node, exp.Alias):
                only(node, "this", "alias")
            if isinstance(value, exp.Star):
                only(value)
                found += [(quoted(field.name), field) for field in self._schema]
            elif (aggregate := self._rows.aggregate(value, self._schema)) is not None:
                aggregates = True
                name = alias or aggregate.name
                found.append((f"{aggregate.sql} AS {quoted(name)}", pa.field(name, aggregate.type)))
            elif isinstance(value, exp.Column):
                name = column_of(value, self._schema, self._rows.alias)
                shown = self._schema.field(name).with_name(alias or name)
                found.append((f"{quoted(name)} AS {quoted(shown.name)}", shown))
            elif alias is not None:
                found.append((f"{self._rows.double(value)} AS {quoted(alias)}", pa.field(alias, pa.float64())))
            else:
                raise not_plain("an expression in it has no name")
        self._check_outputs([field for _, field in found])
        if aggregates:
            self._check_grouped()
        return [text for text, _ in found], [field for _, field in found]

    def _check_outputs(self, fields: Sequence[pa.Field]) -> None:
        names = [field.name.lower() for field in fields]
        if len(set(names)) < len(names):
            raise not_plain("two columns of its result have one name")
        for field in fields:
            if contains_type(field.type, pa.types.is_map):
                raise not_plain("it reads a MAP")
            if self._distinct:
                _require_equatable(field)

    def _check_grouped(self) -> None:
        """Checks that beside aggregates all columns are keys of the groups."""
        if self._distinct:
            raise not_plain("it has DISTINCT over aggregates")
        for node in self._tree.expressions:
            value = node.this if isinstance(node, exp.Alias) else node
            if self._rows.aggregate(value, self._schema) is not None:
                continue
            if not isinstance(value, exp.Column) or value.name not in (self._keys or ()):
                raise not_plain("it shows something else than aggregates and the columns of GROUP BY")

    def _order(self, outputs: Sequence[str]) -> list[str]:
        """Translates ORDER BY, with Spark's place of null values."""
        order = self._tree.args.get("order")
        if order is None:
            return []
        only(order, "expressions")
        free = self._keys is None and not self._distinct and not self._aggregates()
        found = []
        for ordered in order.expressions:
            only(ordered, "this", "desc", "nulls_first")
            column = ordered.this
            if not isinstance(column, exp.Column):
                raise not_plain("it has ORDER BY something else than a column")
            name = self._ordered_by(column, outputs, free)
            direction = "DESC" if ordered.args.get("desc") else "ASC"
            found.append(f"{quoted(name)} {direction} NULLS {'FIRST' if ordered.args.get('nulls_first') else 'LAST'}")
        return [f"ORDER BY {', '.join(found)}"]

    def _ordered_by(self, column: exp.Column, outputs: Sequence[str], free: bool) -> str:
        self._check_aliases()
        if not column.table and column.name in outputs:
            only(column, "this")
            kind = self._schema.field(column.name).type if column.name in self._schema.names else None
        elif free:
            kind = self._schema.field(column_of(column, self._schema, self._rows.alias)).type
        else:
            raise not_plain("it has ORDER BY a column that is not in its result")
        if kind is not None and pa.types.is_nested(kind):
            raise not_plain("it has ORDER BY a nested column")
        return column.name

    def _aggregates(self) -> bool:
        values = (node.this if isinstance(node, exp.Alias) else node for node in self._tree.expressions)
        return any(isinstance(value, exp.AggFunc) for value in values)

    def _check_aliases(self) -> None:
        """Refuses an alias that ORDER BY may mean as the result's or as the table's column: engines differ in that."""
        names = {name.lower() for name in self._schema.names}
        for node in self._tree.expressions:
            if not isinstance(node, exp.Alias) or node.alias.lower() not in names:
                continue
            if not isinstance(node.this, exp.Column) or node.this.name != node.alias:
                raise not_plain("it has ORDER BY, and an alias that is also a column of the table")


def _require_equatable(field: pa.Field) -> None:
    if pa.types.is_nested(field.type) or pa.types.is_floating(field.type):
        raise not_plain(f"it compares values of {field.name}, which are nested or floating")


def _whole(clause: exp.Expression) -> str:
    only(clause, "expression")
    number = clause.args["expression"]
    if not isinstance(number, exp.Literal) or number.is_string or not number.name.isdecimal():
        raise not_plain("its LIMIT or OFFSET is not a number")
    if int(number.name) >= 1 << 31:
        raise not_plain("its LIMIT or OFFSET is too large")
    return str(int(number.name))
