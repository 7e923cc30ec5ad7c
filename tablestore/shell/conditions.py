"""The expressions that polars evaluates as Spark does: columns, comparisons with literals, aggregates. Pure.

Each is written anew for polars' SQL, so no text of the user reaches polars as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from sqlglot import exp

from filestore.errors import Unsupported

__all__ = ["Aggregate", "Conditions", "column_of", "not_plain", "only", "quoted"]

_COMPARISONS: dict[type[exp.Expression], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
}
_ARITHMETIC: dict[type[exp.Expression], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_WHOLE = re.compile(r"[0-9]{1,18}")
_NUMBER = re.compile(r"[0-9]{1,15}|(?=[0-9.]{2,16}$)[0-9]+\.[0-9]+")
"""Numbers with so few digits that polars and Spark, which first makes a DECIMAL of them, read the same DOUBLE."""
_MOMENTS: dict[exp.DType, tuple[re.Pattern[str], Callable[[pa.DataType], bool], str]] = {
    exp.DType.DATE: (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"), pa.types.is_date32, "DATE"),
    exp.DType.TIMESTAMPTZ: (
        re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}"),
        lambda kind: bool(pa.types.is_timestamp(kind) and kind.tz),
        "TIMESTAMPTZ",
    ),
}
"""Typed literals: how they are written in full, the columns of that type, and the type's name in polars."""


def not_plain(reason: str) -> Unsupported:
    """The error that makes a statement one for Spark."""
    return Unsupported(reason, code="not-plain")


def only(node: exp.Expression, *known: str) -> None:
    """Refuses a node that says something else than what the caller reads of it."""
    for name, value in node.args.items():
        if name not in known and value not in (None, False, []):
            raise not_plain(f"it has {name.strip('_').replace('_', ' ').upper()}, which is for Spark")


def quoted(name: str) -> str:
    """A name for polars' SQL."""
    return '"' + name.replace('"', '""') + '"'


def column_of(node: exp.Expression, schema: pa.Schema, alias: str) -> str:
    """Returns the column of the table that a node names; upper and lower case have to be as in the table."""
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
        raise not_plain(f"it has {node.key.upper()} where a column is plain")
    only(node, "this", "table")
    if node.table and node.table != alias:
        raise not_plain(f"{node.table}.{node.name} may be a part of a column")
    same = [name for name in schema.names if name.lower() == node.name.lower()]
    if same != [node.name]:
        raise not_plain(f"the table has no column {node.name!r} that is written so")
    return node.name


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate.

    Attributes:
        sql: Its text for polars.
        name: The name that Spark gives its column.
        type: Its type in Spark.
    """

    sql: str
    name: str
    type: pa.DataType


class Conditions:
    """Conditions over the rows of a table, or over its groups.

    Args:
        schema: The columns that can be named.
        alias: What they may be qualified with.
        grouped: Over groups: the columns whose aggregates can be named.
    """

    def __init__(self, schema: pa.Schema, alias: str, grouped: pa.Schema | None = None) -> None:
        self._schema = schema
        self.alias = alias
        self._grouped = grouped

    def condition(self, node: exp.Expression) -> str:
        """Writes a condition.

        Raises:
            Unsupported: ``not-plain``.
        """
        if isinstance(node, exp.Paren | exp.Not):
            only(node, "this")
            return f"({'NOT ' if isinstance(node, exp.Not) else ''}{self.condition(node.this)})"
        if isinstance(node, exp.And | exp.Or):
            only(node, "this", "expression")
            word = "AND" if isinstance(node, exp.And) else "OR"
            return f"({self.condition(node.this)} {word} {self.condition(node.expression)})"
        if isinstance(node, exp.Column):
            text, kind = self._operand(node)
            if not pa.types.is_boolean(kind):
                raise not_plain("a condition in it is not BOOLEAN")
            return text
        if type(node) in _COMPARISONS:
            only(node, "this", "expression")
            return self._compared(node.this, [node.expression], lambda a, b: f"({a} {_COMPARISONS[type(node)]} {b[0]})")
        if isinstance(node, exp.Between):
            only(node, "this", "low", "high")
            bounds = [node.args["low"], node.args["high"]]
            return self._compared(node.this, bounds, lambda a, b: f"({a} >= {b[0]} AND {a} <= {b[1]})")
        if isinstance(node, exp.In):
            only(node, "this", "expressions")
            return self._compared(node.this, node.expressions, lambda a, b: f"({a} IN ({', '.join(b)}))")
        if isinstance(node, exp.Is):
            only(node, "this", "expression")
            if isinstance(node.expression, exp.Null):
                return f"({self._operand(node.this)[0]} IS NULL)"
        raise not_plain(f"it has {node.key.upper()}, which is for Spark")

    def _compared(
        self, left: exp.Expression, others: list[exp.Expression], write: Callable[[str, list[str]], str]
    ) -> str:
        """Writes a comparison of a column with values of its type; of two sides either may be the column."""
        if _is_literal(left) and len(others) == 1 and isinstance(left.parent, tuple(_COMPARISONS)):
            text, kind = self._operand(others[0])
            return write(_literal(left, kind), [text])
        text, kind = self._operand(left)
        return write(text, [self._other(node, kind) for node in others])

    def _other(self, node: exp.Expression, kind: pa.DataType) -> str:
        if _is_literal(node):
            return _literal(node, kind)
        text, own = self._operand(node)
        if own != kind or pa.types.is_nested(kind):
            raise not_plain("it compares values of different types")
        return text

    def _operand(self, node: exp.Expression) -> tuple[str, pa.DataType]:
        """A column or an aggregate that can be compared."""
        if isinstance(node, exp.Paren):
            only(node, "this")
            return self._operand(node.this)
        if self._grouped is not None and (found := self.aggregate(node, self._grouped)) is not None:
            return found.sql, found.type
        name = column_of(node, self._schema, self.alias)
        return quoted(name), self._schema.field(name).type

    def double(self, node: exp.Expression) -> str:
        """Writes arithmetic of DOUBLE columns and numbers: it is IEEE's in both engines, and fails in none."""
        text, numbers = self._double(node)
        if numbers:
            raise not_plain("it has arithmetic without a column")
        return text

    def _double(self, node: exp.Expression) -> tuple[str, bool]:
        """The text, and whether there are only numbers in it, which are DECIMAL in Spark."""
        if isinstance(node, exp.Paren):
            only(node, "this")
            text, numbers = self._double(node.this)
            return f"({text})", numbers
        if type(node) in _ARITHMETIC:
            only(node, "this", "expression")
            (left, first), (right, second) = self._double(node.this), self._double(node.expression)
            if first and second:
                raise not_plain("it has arithmetic without a column")
            return f"({left} {_ARITHMETIC[type(node)]} {right})", False
        if _is_literal(node):
            return f"CAST({_literal(node, pa.float64())} AS DOUBLE)", True
        if isinstance(node, exp.Column):
            name = column_of(node, self._schema, self.alias)
            if self._schema.field(name).type == pa.float64():
                return quoted(name), False
            raise not_plain("it has arithmetic with other values than DOUBLE")
        raise not_plain(f"it has {node.key.upper()}, which is for Spark")

    def aggregate(self, node: exp.Expression, schema: pa.Schema) -> Aggregate | None:
        """Reads an aggregate of a column; returns None if the node is none that polars and Spark know alike."""
        if isinstance(node, exp.Count):
            only(node, "this", "big_int")
            return self._count(node.this, schema)
        if not isinstance(node, exp.Sum | exp.Avg | exp.Min | exp.Max):
            return None
        only(node, "this")
        name = column_of(node.this, schema, self.alias)
        kind, column = schema.field(name).type, quoted(name)
        shown = f"{node.key}({name})"
        if isinstance(node, exp.Min | exp.Max) and _is_ordered(kind):
            return Aggregate(f"{node.key.upper()}({column})", shown, kind)
        if isinstance(node, exp.Sum) and pa.types.is_integer(kind):
            # an overflow fails here, and then in Spark with its own words
            return Aggregate(f"CAST(SUM(CAST({column} AS INT128)) AS BIGINT)", shown, pa.int64())
        if isinstance(node, exp.Sum | exp.Avg) and kind == pa.float64():
            return Aggregate(f"{node.key.upper()}({column})", shown, kind)
        raise not_plain(f"it has {node.key.upper()} of a column whose result is rounded or typed by Spark's rules")

    def _count(self, of: exp.Expression, schema: pa.Schema) -> Aggregate:
        if isinstance(of, exp.Star) or (isinstance(of, exp.Literal) and of.name == "1" and not of.is_string):
            only(of, "this", "is_string")
            return Aggregate("COUNT(*)", "count(1)", pa.int64())
        if isinstance(of, exp.Distinct):
            only(of, "expressions")
            if len(of.expressions) != 1:
                raise not_plain("it counts several columns")
            name = column_of(of.expressions[0], schema, self.alias)
            if not _is_ordered(schema.field(name).type):
                raise not_plain("it counts distinct values that are nested or floating")
            return Aggregate(f"COUNT(DISTINCT {quoted(name)})", f"count(DISTINCT {name})", pa.int64())
        name = column_of(of, schema, self.alias)
        return Aggregate(f"COUNT({quoted(name)})", f"count({name})", pa.int64())


def _is_ordered(kind: pa.DataType) -> bool:
    """Returns whether both engines compare the values alike, and aggregates keep the type."""
    plain = (pa.types.is_integer, pa.types.is_string, pa.types.is_date32, pa.types.is_timestamp)
    return any(check(kind) for check in plain)


def _is_literal(node: exp.Expression) -> bool:
    if isinstance(node, exp.Neg):
        return isinstance(node.this, exp.Literal) and not node.this.is_string
    return isinstance(node, exp.Literal | exp.Boolean) or _moment(node) is not None


def _moment(node: exp.Expression) -> tuple[str, exp.DType] | None:
    """Returns text and type of ``DATE'2026-01-31'`` or ``TIMESTAMP'2026-01-31 12:00:00'``, which is in UTC."""
    if not isinstance(node, exp.Cast) or not isinstance(node.this, exp.Literal) or not node.this.is_string:
        return None
    kind = node.to.this
    return (node.this.name, kind) if kind in _MOMENTS else None


def _literal(node: exp.Expression, kind: pa.DataType) -> str:
    """Writes a literal that is compared with values of a type, if Spark compares them without rounding."""
    if isinstance(node, exp.Boolean) and pa.types.is_boolean(kind):
        return "TRUE" if node.this else "FALSE"
    sign = "-" if isinstance(node, exp.Neg) else ""
    number = node.this if sign else node
    if isinstance(number, exp.Literal) and not number.is_string:
        if pa.types.is_integer(kind) and _WHOLE.fullmatch(number.name):
            value = int(sign + number.name)
            if -(1 << (kind.bit_width - 1)) <= value < 1 << (kind.bit_width - 1):
                return str(value)
        if kind == pa.float64() and _NUMBER.fullmatch(number.name):
            return sign + number.name
    if isinstance(node, exp.Literal) and node.is_string and pa.types.is_string(kind):
        text = node.name.replace("'", "''")
        return f"'{text}'"
    written = _moment(node)
    if written is None and isinstance(node, exp.Literal) and node.is_string:
        written = node.name, exp.DType.DATE  # Spark casts it, and it can be no other day
    if written is not None:
        form, fits, name = _MOMENTS[written[1]]
        if fits(kind) and form.fullmatch(written[0]) and _exists(written[0]):
            return f"CAST('{written[0]}' AS {name})"
    raise not_plain("it compares values of different types")


def _exists(moment: str) -> bool:
    try:
        return datetime.fromisoformat(moment).year > 0
    except ValueError:
        return False
