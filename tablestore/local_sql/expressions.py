"""Expressions: which ones DuckDB evaluates as Spark does, how they are written for it, and their types. Pure.

Each node is known by its class and its types, or refused. All results are held by a test that evaluates the same text
in both (`tests/spark/sql/test_local_sql.py`). What fails in Spark, as a sum that is too large, fails here, too; then
the query is one for Spark, whose error is the right one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from tablestore.local_sql.numbers import has_room, number
from tablestore.local_sql.refusal import NotLocalError, only
from tablestore.local_sql.texts import OF_TEXTS
from tablestore.local_sql.times import OF_TIMES, day_of, moment_literal
from tablestore.local_sql.typed import Typed, required_type, text_literal
from tablestore.local_sql.value_types import (
    as_decimal,
    comparable_type,
    decimal_type,
    duckdb_type,
    is_decimal,
    is_exact,
    is_integer,
    is_number,
    same_type,
    sum_type,
)

__all__ = ["Expressions"]

_COMPARISONS: Mapping[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}
_PREDICATES = (*_COMPARISONS, exp.Is, exp.In, exp.Between, exp.Like)
"""Spark and sqlglot bind some of these in another order: one is an operand of another only in parentheses."""
_ARITHMETIC: Mapping[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_AGGREGATES = (exp.Count, exp.CountIf, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Filter)
_RANKS: dict[type[exp.Expr], str] = {exp.RowNumber: "row_number", exp.Rank: "rank", exp.DenseRank: "dense_rank"}
_CAST_TYPES = {
    exp.DType.TINYINT: pa.int8(),
    exp.DType.SMALLINT: pa.int16(),
    exp.DType.INT: pa.int32(),
    exp.DType.BIGINT: pa.int64(),
    exp.DType.DOUBLE: pa.float64(),
}
_DAY = re.compile(r"(?!0000)[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])")
"""Days that every month has; others are for Spark."""


@dataclass(frozen=True, slots=True)
class Expressions:
    """Writes the expressions of one SELECT.

    Attributes:
        column: Returns the column that a name means; refuses one that is unknown.
        query: Returns a subquery, which may name columns of this SELECT: its text, its columns, and what it uses.
        in_utc: Whether the session's time zone is UTC.
    """

    column: Callable[[exp.Column], Typed]
    query: Callable[[exp.Expr], tuple[str, tuple[Typed, ...]]]
    in_utc: bool

    def typed(self, node: exp.Expr) -> Typed:
        """Writes an expression; raises `NotLocalError` for one that is not known."""
        kind = type(node)
        if kind in _COMPARISONS:
            return self._compared(node)
        if kind in _ARITHMETIC:
            return self._computed(node)
        if isinstance(node, _AGGREGATES):
            return self._aggregate(node)
        if (write := _WRITERS.get(kind)) is not None:
            return write(self, node)
        if (function := OF_TEXTS.get(kind) or OF_TIMES.get(kind)) is not None:
            return function(self, node)
        raise NotLocalError(f"it has {_shown(node)}")

    def where(self, node: exp.Expr) -> Typed:
        """Writes a condition that rows have to fulfil: of WHERE, or of a join.

        Only there a subquery may be behind IN. As a value it is not what SQL says: Spark takes FALSE for NULL.
        """
        if isinstance(node, exp.And | exp.Or):
            return self._connection(node, self.where(node.this), self.where(node.expression))
        if isinstance(node, exp.Not):
            found = self.where(node.this)
            return Typed(f"(NOT {found.text})", pa.bool_(), found.uses)
        if isinstance(node, exp.Paren):
            return self.where(node.this)
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            return self._in_query(node)
        return self.condition(node)

    def condition(self, node: exp.Expr) -> Typed:
        """Writes a condition."""
        found = self.typed(node)
        if not pa.types.is_boolean(found.kind):
            raise NotLocalError(f"{_shown(node)} in it is no condition")
        return found

    # ------------------------------------------------------------------------------------------ values

    def _paren(self, node: exp.Expr) -> Typed:
        only(node, "this")
        return self.typed(node.this)

    def _literal(self, node: exp.Expr) -> Typed:
        text = str(node.this)
        if node.is_string:
            return Typed(text_literal(text), pa.string())
        return number(text)

    def _boolean(self, node: exp.Expr) -> Typed:
        return Typed("TRUE" if node.this else "FALSE", pa.bool_())

    def _null(self, node: exp.Expr) -> Typed:
        return Typed("NULL", pa.null())

    def _negated(self, node: exp.Expr) -> Typed:
        only(node, "this")
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            found = number(f"-{node.this.this}")
            return Typed(f"({found.text})", found.kind)
        found = self._numbers(node.this)
        return Typed(f"(-{found.text})", found.kind, found.uses)

    def _numbers(self, node: exp.Expr) -> Typed:
        found = self.typed(node)
        if not is_number(found.kind):
            raise NotLocalError(f"it computes with {_shown(node)}, which is no number")
        return found

    def _cast(self, node: exp.Expr) -> Typed:
        """Writes a cast that never fails: sqlglot reads CAST and TRY_CAST as one."""
        only(node, "this", "to")
        to, inner = node.args["to"], node.this
        if to.this == exp.DType.TIMESTAMPTZ and isinstance(inner, exp.Literal) and inner.is_string:
            return moment_literal(self, str(inner.this))
        if to.this == exp.DType.DATE and isinstance(inner, exp.Literal) and inner.is_string:
            if not _DAY.fullmatch(str(inner.this)):
                raise NotLocalError(f"it has {_shown(node)}")
            return Typed(f"DATE {text_literal(str(inner.this))}", pa.date32())
        if to.this == exp.DType.DATE:
            return day_of(self, inner)
        found = self.typed(inner)
        if to.this in (exp.DType.TEXT, exp.DType.VARCHAR) and not to.expressions and is_integer(found.kind):
            return Typed(found.cast(pa.string()), pa.string(), found.uses)
        wanted = _CAST_TYPES.get(to.this)
        if isinstance(inner, exp.Literal) and wanted is not None and not to.expressions and has_room(found, wanted):
            return Typed(f"CAST({text_literal(str(inner.this))} AS {required_type(wanted)})", wanted)
        if wanted is None or to.expressions or (not is_integer(found.kind) and found.kind != pa.float32()):
            raise NotLocalError(f"it has {_shown(node)}")
        if same_type([found.kind, wanted]) != wanted:
            raise NotLocalError(f"it has {_shown(node)}")
        return Typed(found.cast(wanted), wanted, found.uses)

    def _computed(self, node: exp.Expr) -> Typed:
        left, right = self._numbers(node.this), self._numbers(node.expression)
        uses = left.uses | right.uses
        if is_decimal(left.kind) and is_integer(right.kind):
            right = _with_digits(node.expression, right)
        elif is_integer(left.kind) and is_decimal(right.kind):
            left = _with_digits(node.this, left)
        if is_decimal(left.kind) and is_decimal(right.kind):
            kind = _decimal_result(type(node), left.kind, right.kind)
            if not isinstance(node, exp.Mul):
                left, right = (Typed(one.cast(kind), kind) for one in (left, right))
            text = f"({left.text} {_ARITHMETIC[type(node)]} {right.text})"
            return Typed(f"CAST({text} AS {required_type(kind)})", kind, uses)
        kind = same_type([left.kind, right.kind])
        return Typed(f"({left.cast(kind)} {_ARITHMETIC[type(node)]} {right.cast(kind)})", kind, uses)

    def _divided(self, node: exp.Expr) -> Typed:
        left, right = self._numbers(node.this), self._numbers(node.expression)
        if is_decimal(left.kind) or is_decimal(right.kind) or pa.float32() in (left.kind, right.kind):
            raise NotLocalError("it divides values of DECIMAL or FLOAT")
        one, other = left.cast(pa.float64()), right.cast(pa.float64())
        text = f"CASE WHEN {other} = 0 THEN error('division by zero') ELSE {one} / {other} END"
        return Typed(f"({text})", pa.float64(), left.uses | right.uses)

    def _of_integers(self, node: exp.Expr) -> Typed:
        """Writes DIV, whose result is BIGINT, and the rest of a division."""
        left, right = self._numbers(node.this), self._numbers(node.expression)
        if not is_integer(left.kind) or not is_integer(right.kind):
            raise NotLocalError(f"it has {_shown(node)}")
        divides = isinstance(node, exp.IntDiv)
        kind = pa.int64() if divides else same_type([left.kind, right.kind])
        text = f"({left.cast(kind)} {'//' if divides else '%'} {right.cast(kind)})"
        return Typed(text, kind, left.uses | right.uses)

    def _absolute(self, node: exp.Expr) -> Typed:
        only(node, "this")
        found = self._numbers(node.this)
        return Typed(f"abs({found.text})", found.kind, found.uses)

    # ------------------------------------------------------------------------------------------ conditions

    def _connected(self, node: exp.Expr) -> Typed:
        return self._connection(node, self.condition(node.this), self.condition(node.expression))

    def _connection(self, node: exp.Expr, left: Typed, right: Typed) -> Typed:
        word = "AND" if isinstance(node, exp.And) else "OR"
        return Typed(f"({left.text} {word} {right.text})", pa.bool_(), left.uses | right.uses)

    def _not(self, node: exp.Expr) -> Typed:
        found = self.condition(node.this)
        return Typed(f"(NOT {found.text})", pa.bool_(), found.uses)

    def operand(self, node: exp.Expr) -> Typed:
        """Writes an operand of a comparison, or of a function of texts."""
        if isinstance(node, (*_PREDICATES, exp.Not, exp.And, exp.Or)):
            raise NotLocalError(f"it has {_shown(node)} without parentheses in another comparison")
        return self.typed(node)

    def _compared(self, node: exp.Expr) -> Typed:
        left, right = self.operand(node.this), self.operand(node.expression)
        one, other = _of_one_type(left, right)
        return Typed(f"({one} {_COMPARISONS[type(node)]} {other})", pa.bool_(), left.uses | right.uses)

    def _is(self, node: exp.Expr) -> Typed:
        if not isinstance(node.expression, exp.Null):
            raise NotLocalError(f"it has {_shown(node)}")
        found = self.operand(node.this)
        return Typed(f"({found.text} IS NULL)", pa.bool_(), found.uses)

    def _between(self, node: exp.Expr) -> Typed:
        only(node, "this", "low", "high")
        parts = [self.operand(part) for part in (node.this, node.args["low"], node.args["high"])]
        low, high = _of_one_type(parts[0], parts[1]), _of_one_type(parts[0], parts[2])
        text = f"(({low[0]} >= {low[1]}) AND ({high[0]} <= {high[1]}))"
        return Typed(text, pa.bool_(), Typed.used_by(parts))

    def _in(self, node: exp.Expr) -> Typed:
        if node.args.get("query") is not None:
            raise NotLocalError("it has IN with a subquery elsewhere than in WHERE or the condition of a join")
        only(node, "this", "expressions")
        own = self.operand(node.this)
        listed = [self.typed(one) for one in node.expressions]
        kind = same_type([own.kind, *(one.kind for one in listed)])
        text = f"({own.cast(kind)} IN ({', '.join(one.cast(kind) for one in listed)}))"
        return Typed(text, pa.bool_(), Typed.used_by([own, *listed]))

    def _in_query(self, node: exp.Expr) -> Typed:
        only(node, "this", "query")
        own, query = self.operand(node.this), node.args["query"]
        if isinstance(query, exp.Subquery) and isinstance(query.this, exp.Subquery):
            raise NotLocalError("it has IN with a subquery in two parentheses, which is one value")
        text, columns = self.query(query)
        [column, *others] = columns
        if others or own.kind != column.kind or duckdb_type(own.kind) is None:
            raise NotLocalError("it has IN with values of other types")
        return Typed(f"({own.text} IN ({text}))", pa.bool_(), own.uses | column.uses)

    def _exists(self, node: exp.Expr) -> Typed:
        only(node, "this")
        text, columns = self.query(node.this)
        return Typed(f"(EXISTS ({text}))", pa.bool_(), Typed.used_by(columns))

    # ------------------------------------------------------------------------------------------ functions

    def _case(self, node: exp.Expr) -> Typed:
        only(node, "this", "ifs", "default")
        subject, ifs = node.args.get("this"), node.args["ifs"]
        if subject is None:
            conditions = [self.condition(one.this) for one in ifs]
        else:
            conditions = [self._compared(exp.EQ(this=subject.copy(), expression=one.this.copy())) for one in ifs]
        results = [self.typed(one.args["true"]) for one in ifs]
        default = node.args.get("default")
        rest = Typed("NULL", pa.null()) if default is None else self.typed(default)
        return _chosen(conditions, results, rest)

    def _if(self, node: exp.Expr) -> Typed:
        only(node, "this", "true", "false")
        if (no := node.args.get("false")) is None:
            raise NotLocalError(f"it has {_shown(node)}")
        return _chosen([self.condition(node.this)], [self.typed(node.args["true"])], self.typed(no))

    def _first(self, node: exp.Expr) -> Typed:
        """Writes COALESCE, GREATEST and LEAST, of which the latter leave out nulls in both."""
        only(node, "this", "expressions", "ignore_nulls")
        parts = [self.typed(one) for one in (node.this, *node.expressions)]
        kind = same_type(part.kind for part in parts)
        name = node.key
        if name != "coalesce" and (len(parts) < 2 or not is_exact(kind)):
            raise NotLocalError(f"it has {_shown(node)}")
        text = f"{name}({', '.join(part.cast(kind) for part in parts)})"
        return Typed(text, kind, Typed.used_by(parts))

    def _nullif(self, node: exp.Expr) -> Typed:
        left, right = self.typed(node.this), self.typed(node.expression)
        one, other = _of_one_type(left, right)
        text = f"(CASE WHEN {one} = {other} THEN NULL ELSE {left.text} END)"
        return Typed(text, left.kind, left.uses | right.uses)

    # ------------------------------------------------------------------------------------------ many rows

    def _aggregate(self, node: exp.Expr, over: str = "") -> Typed:
        """Writes an aggregate.

        Args:
            node: It.
            over: What follows it: FILTER, or OVER.
        """
        if isinstance(node, exp.Filter):
            only(node, "this", "expression")
            if over or not isinstance(node.expression, exp.Where) or isinstance(node.this, exp.Filter):
                raise NotLocalError(f"it has {_shown(node)}")
            condition = self.condition(node.expression.this)
            found = self._aggregate(node.this, f" FILTER (WHERE {condition.text})")
            return Typed(found.text, found.kind, found.uses | condition.uses)
        only(node, "this", "big_int")
        if isinstance(node, exp.Count):
            return self._count(node.this, over)
        if isinstance(node, exp.CountIf):
            condition = self.condition(node.this)
            return Typed(f"count(CASE WHEN {condition.text} THEN 1 END){over}", pa.int64(), condition.uses)
        found = self.typed(node.this)
        if isinstance(node, exp.Min | exp.Max):
            required_type(found.kind)
            return Typed(f"{node.key}({found.text}){over}", found.kind, found.uses)
        kind = sum_type(found.kind)
        if isinstance(node, exp.Sum):
            return Typed(f"CAST(sum({found.text}){over} AS {required_type(kind)})", kind, found.uses)
        if is_decimal(found.kind) or found.kind == pa.float32():
            raise NotLocalError(f"it has {_shown(node)} of values of type {found.kind}")
        return Typed(f"avg({found.cast(pa.float64())}){over}", pa.float64(), found.uses)

    def _count(self, what: exp.Expr | None, over: str) -> Typed:
        if what is None:
            raise NotLocalError("it counts nothing")
        if isinstance(what, exp.Star):
            only(what)
            return Typed(f"count(*){over}", pa.int64())
        word = ""
        if isinstance(what, exp.Distinct):
            only(what, "expressions")
            [what, *others] = what.expressions
            word = "DISTINCT "
            if others:
                raise NotLocalError("it counts distinct values of several columns")
        found = self.typed(what)
        required_type(found.kind)
        if word and not is_exact(found.kind):
            raise NotLocalError(f"it counts distinct values of type {found.kind}")
        return Typed(f"count({word}{found.text}){over}", pa.int64(), found.uses)

    def _window(self, node: exp.Expr) -> Typed:
        only(node, "this", "partition_by", "order", "over")
        parts = [self.exact(one) for one in node.args.get("partition_by") or []]
        order = node.args.get("order")
        if order is not None:
            only(order, "expressions")
        ordered = [] if order is None else [self._ordered(one) for one in order.expressions]
        is_rank = type(node.this) in _RANKS
        if not parts or (is_rank and not ordered):
            raise NotLocalError(f"it has {_shown(node)}")
        by = f"PARTITION BY {', '.join(one.text for one in parts)}"
        if ordered:
            by += f" ORDER BY {', '.join(one.text for one in ordered)}"
            by += "" if is_rank else " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
        if is_rank:
            only(node.this)
            found = Typed(f"CAST({_RANKS[type(node.this)]}() OVER ({by}) AS INTEGER)", pa.int32())
        elif isinstance(node.this, _AGGREGATES) and node.this.find(exp.Distinct) is None:
            found = self._aggregate(node.this, f" OVER ({by})")
        else:
            raise NotLocalError(f"it has {_shown(node)}")
        return Typed(found.text, found.kind, Typed.used_by([found, *parts, *ordered]))

    def _ordered(self, node: exp.Expr) -> Typed:
        only(node, "this", "desc", "nulls_first")
        found = self.exact(node.this)
        direction = "DESC" if node.args.get("desc") else "ASC"
        nulls = "FIRST" if node.args.get("nulls_first") else "LAST"
        return Typed(f"{found.text} {direction} NULLS {nulls}", found.kind, found.uses)

    def exact(self, node: exp.Expr) -> Typed:
        """Writes an expression by whose values rows are grouped, so that equal ones have to be the same."""
        found = self.typed(node)
        if not is_exact(found.kind):
            raise NotLocalError(f"it has {_shown(node)} as a group, whose values are not exact")
        return found

    # ------------------------------------------------------------------------------------------ names

    def _column(self, node: exp.Expr) -> Typed:
        assert isinstance(node, exp.Column)
        return self.column(node)

    def _value_of_query(self, node: exp.Expr) -> Typed:
        only(node, "this")
        text, columns = self.query(node)
        [column, *others] = columns
        if others:
            raise NotLocalError("it has a subquery of several columns as a value")
        return Typed(f"({text})", column.kind, column.uses)


_WRITERS: Mapping[type[exp.Expr], Callable[[Expressions, exp.Expr], Typed]] = {
    exp.Paren: Expressions._paren,
    exp.Literal: Expressions._literal,
    exp.Boolean: Expressions._boolean,
    exp.Null: Expressions._null,
    exp.Neg: Expressions._negated,
    exp.Cast: Expressions._cast,
    exp.TryCast: Expressions._cast,
    exp.Div: Expressions._divided,
    exp.IntDiv: Expressions._of_integers,
    exp.Mod: Expressions._of_integers,
    exp.Abs: Expressions._absolute,
    exp.And: Expressions._connected,
    exp.Or: Expressions._connected,
    exp.Not: Expressions._not,
    exp.Is: Expressions._is,
    exp.Between: Expressions._between,
    exp.In: Expressions._in,
    exp.Exists: Expressions._exists,
    exp.Case: Expressions._case,
    exp.If: Expressions._if,
    exp.Coalesce: Expressions._first,
    exp.Greatest: Expressions._first,
    exp.Least: Expressions._first,
    exp.Nullif: Expressions._nullif,
    exp.Window: Expressions._window,
    exp.Column: Expressions._column,
    exp.Subquery: Expressions._value_of_query,
}


def _shown(node: exp.Expr) -> str:
    return node.sql("spark", comments=False)


def _of_one_type(left: Typed, right: Typed) -> tuple[str, str]:
    kind = comparable_type(left.kind, right.kind)
    required_type(kind)
    return left.cast(kind), right.cast(kind)


def _chosen(conditions: list[Typed], results: list[Typed], rest: Typed) -> Typed:
    kind = same_type(one.kind for one in (*results, rest))
    pairs = zip(conditions, results, strict=True)
    whens = " ".join(f"WHEN {condition.text} THEN {result.cast(kind)}" for condition, result in pairs)
    return Typed(f"(CASE {whens} ELSE {rest.cast(kind)} END)", kind, Typed.used_by([*conditions, *results, rest]))


def _with_digits(node: exp.Expr, found: Typed) -> Typed:
    """Returns an integer as the DECIMAL with which Spark computes: one that is written out has as many digits."""
    written = node
    while isinstance(written, exp.Paren | exp.Neg | exp.Cast):
        written = written.this
        node = node.this if isinstance(node, exp.Paren) else node
    if isinstance(written, exp.Literal) and node is not written:  # as 5L, which is CAST(5 AS BIGINT) here
        raise NotLocalError("it computes with a DECIMAL and an integer that is written out with a sign or a type")
    kind = decimal_type(len(str(int(node.name))), 0) if isinstance(node, exp.Literal) else as_decimal(found.kind)
    return Typed(found.cast(kind), kind, found.uses)


def _decimal_result(node: type[exp.Expr], one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Returns the type of the result of two DECIMALs, as long as no digit has to be given up."""
    if node is exp.Mul:
        return decimal_type(one.precision + other.precision + 1, one.scale + other.scale)
    scale = max(one.scale, other.scale)
    return decimal_type(max(one.precision - one.scale, other.precision - other.scale) + scale + 1, scale)
