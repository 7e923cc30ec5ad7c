"""The columns of a SELECT's inputs that have to equal others, or expressions: of joins, WHERE, subqueries. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from filestore.model.types import is_wider
from tablestore.views.plan.nodes import Input, Name, Term
from tablestore.views.plan.nulls import may_be_null
from tablestore.views.plan.scope import NotPlainError, Scope, column_type, walked
from tablestore.views.plan.values import value_of
from tablestore.views.sql.clauses import conditions_of_where, conjuncts

__all__ = ["correlated", "joined", "searched", "with_equal_columns"]


Equal = tuple[str, Name | Term]
"""A column of an input, and what it has to equal."""


def joined(join: exp.Join, earlier: tuple[Input, ...], added: Input) -> tuple[Input, ...]:
    """Returns the inputs with another one that is joined to them; raises `NotPlainError` if there is no rule for it."""
    kind = " ".join(filter(None, [join.method, join.side, join.kind])).upper().removesuffix(" OUTER")
    both = (*earlier, added)
    last = len(earlier)
    pairs = tuple(_pairs(join, both, last))
    match kind:
        case "" | "INNER" | "CROSS":
            # one row of the added table may also make a value that a column of an earlier one has to equal
            found = (*earlier, replace(added, equal=pairs))
            return _among_members(
                conjuncts(join.args.get("on")),
                found,
                lambda name, value: isinstance(value, Term) and name.source < last,
            )
        case "LEFT":
            _require(pairs, join, both, last)
            return (*earlier, replace(added, member=False, equal=pairs))
        case "LEFT SEMI" | "LEFT ANTI" | "SEMI" | "ANTI":
            _require(pairs, join, both, last)
            return (*earlier, replace(added, member=False, visible=False, equal=pairs))
        case "RIGHT" if len(earlier) == 1 and not join.args.get("using"):  # of which the right column counts
            turned = tuple(_pairs(join, both, 0))
            _require(turned, join, both, 0)
            return replace(earlier[0], member=False, equal=turned), added
    raise NotPlainError(f"it has a {kind} JOIN")


def _require(pairs: Sequence[object], join: exp.Join, inputs: tuple[Input, ...], dependent: int) -> None:
    if pairs:
        return
    source = inputs[dependent]
    for own, name in _pairs(join, inputs, dependent, of_any_type=True):
        kinds = column_type(source.node, own), _type(inputs, name)
        if None in kinds:
            continue
        what = "a column" if isinstance(name, Name) else "a value"
        raise NotPlainError(f"{source.alias} is joined by {own}, which is {kinds[0]}, with {what} that is {kinds[1]}")
    raise NotPlainError(f"{source.alias} is joined without a column that has to equal one of another table")


def _pairs(join: exp.Join, inputs: tuple[Input, ...], own: int, *, of_any_type: bool = False) -> Iterator[Equal]:
    """Yields columns of one of the inputs, each with the value of others that the join says it has to equal."""
    last, scope = len(inputs) - 1, Scope(inputs)
    for identifier in join.args.get("using") or []:
        column = exp.column(identifier.name)
        mine, other = Scope(inputs[last:]).whole(column), Scope(inputs[:last]).whole(column)
        if mine is None or other is None:
            continue
        if of_any_type or _comparable(inputs, Name(last, mine.column), other):
            yield mine.column, other
    for one, value in _equalities(conjuncts(join.args.get("on")), scope):
        if one.source == own and (of_any_type or _comparable(inputs, one, value)):
            yield one.column, value


def _equalities(conditions: Iterable[exp.Expr], scope: Scope) -> Iterator[tuple[Name, Name | Term]]:
    """Yields columns with the values of other inputs that they have to equal, two columns in both directions."""
    for condition in conditions:
        if not isinstance(condition, exp.EQ):
            continue
        for side, other in ((condition.left, condition.right), (condition.right, condition.left)):
            name, value = scope.whole(side), value_of(other, scope)
            if name is not None and value is not None and name.source not in value.sources:
                yield name, value


def _type(inputs: Sequence[Input], value: Name | Term) -> pa.DataType | None:
    return value.kind if isinstance(value, Term) else column_type(inputs[value.source].node, value.column)


def _comparable(inputs: Sequence[Input], *values: Name | Term) -> bool:
    """Returns whether two values are equal where their bits are, so that one can be searched by the other."""
    own, other = (_type(inputs, value) for value in values)
    if own is None or other is None:
        return False
    numbers = all(map(pa.types.is_integer, (own, other))) or all(map(pa.types.is_decimal, (own, other)))
    return own == other or (numbers and (is_wider(own, other) or is_wider(other, own)))  # which has all values of both


def with_equal_columns(tree: exp.Select, inputs: tuple[Input, ...]) -> tuple[Input, ...]:
    """Adds the equalities of WHERE between members, as in ``FROM a, b WHERE a.x = b.k``."""

    def once(name: Name, value: Name | Term) -> bool:  # that of two columns holds in both directions
        return isinstance(value, Term) or value.source < name.source

    return _among_members(conditions_of_where(tree), inputs, once)


def _among_members(
    conditions: Iterable[exp.Expr], inputs: tuple[Input, ...], wanted: Callable[[Name, Name | Term], bool]
) -> tuple[Input, ...]:
    """Adds those of the equalities between members that are wanted."""
    found = list(inputs)
    for name, value in _equalities(conditions, Scope(inputs)):
        members = all(inputs[number].member for number in (name.source, *value.sources))
        if members and wanted(name, value) and _comparable(inputs, name, value):
            source = found[name.source]
            found[name.source] = replace(source, equal=(*source.equal, (name.column, value)))
    return tuple(found)


def correlated(inner: exp.Select, own: Scope, scope: Scope) -> Iterator[tuple[Name, Name | Term]]:
    """Yields the columns of a subquery's tables that have to equal a value of the query around it."""
    for condition in conditions_of_where(inner):
        if not isinstance(condition, exp.EQ):
            continue
        for one, other in ((condition.left, condition.right), (condition.right, condition.left)):
            name = own.whole(one)
            if name is None or any(own.root(column) is not None for column in walked(other, exp.Column)):
                continue
            if (outer := value_of(other, scope)) is not None and _of_two(own, name, scope, outer):
                yield name, outer


def searched(
    found: exp.In, inner: exp.Select, own: Scope, tree: exp.Select, scope: Scope
) -> Iterator[tuple[Name, Name | Term]]:
    """Yields what ``x IN (SELECT y …)`` compares; raises `NotPlainError` where a null of x or y would change all rows.

    Where it has to be true, a null makes it as false as another value does. Elsewhere, as in NOT IN, a null of y makes
    all rows null, and for a null of x it counts whether there is any y.
    """
    [*columns] = inner.expressions
    [one, *more] = (column.unalias() for column in columns)
    nulls = bool(more) or may_be_null(found.this, tree, scope) or may_be_null(one, inner, own)
    if nulls and not _has_to_be_true(found):
        raise NotPlainError(
            "it has NOT IN, or IN as a value, with a subquery, and one of the compared values may be null, which "
            "changes all rows"
        )
    name, outer = None if more else own.whole(one), value_of(found.this, scope)
    if name is not None and outer is not None and _of_two(own, name, scope, outer):
        yield name, outer


def _has_to_be_true(condition: exp.Expr) -> bool:
    """Returns whether a condition decides of WHERE, HAVING or ON, perhaps with others, and never by being false."""
    while isinstance(condition.parent, exp.And | exp.Or | exp.Paren):
        condition = condition.parent
    return isinstance(condition.parent, exp.Where | exp.Having | exp.Join)


def _of_two(own: Scope, name: Name, scope: Scope, outer: Name | Term) -> bool:
    """Returns whether a column of a subquery is comparable with a value of the query around it."""
    if isinstance(outer, Name):
        outer = replace(outer, source=outer.source + len(own.inputs))
    return _comparable((*own.inputs, *scope.inputs), name, outer)
