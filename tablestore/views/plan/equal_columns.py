"""The columns of a SELECT's inputs that have to be equal: those of joins, of WHERE, and of subqueries. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from filestore.model.types import is_wider
from tablestore.views.plan.nodes import Input, Name
from tablestore.views.plan.scope import NotPlainError, Scope, column_type
from tablestore.views.sql.clauses import conjuncts

__all__ = ["correlated", "joined", "searched", "with_equal_columns"]


def joined(join: exp.Join, earlier: tuple[Input, ...], added: Input) -> tuple[Input, ...]:
    """Returns the inputs with another one that is joined to them; raises `NotPlainError` if there is no rule for it."""
    kind = " ".join(filter(None, [join.method, join.side, join.kind])).upper().removesuffix(" OUTER")
    both = (*earlier, added)
    pairs = tuple(_pairs(join, both))
    match kind:
        case "" | "INNER" | "CROSS":
            return (*earlier, replace(added, equal=pairs))
        case "LEFT":
            _require(pairs, added, join, both)
            return (*earlier, replace(added, member=False, equal=pairs))
        case "LEFT SEMI" | "LEFT ANTI" | "SEMI" | "ANTI":
            _require(pairs, added, join, both)
            return (*earlier, replace(added, member=False, visible=False, equal=pairs))
        case "RIGHT" if len(earlier) == 1 and not join.args.get("using"):  # of which the right column counts
            turned = tuple((name.column, Name(1, own)) for own, name in pairs)
            _require(turned, earlier[0], join, both)
            return replace(earlier[0], member=False, equal=turned), added
    raise NotPlainError(f"it has a {kind} JOIN")


def _require(pairs: Sequence[object], dependent: Input, join: exp.Join, inputs: tuple[Input, ...]) -> None:
    if pairs:
        return
    for own, name in _pairs(join, inputs, of_any_type=True):
        kinds = column_type(inputs[-1].node, own), column_type(inputs[name.source].node, name.column)
        if None in kinds:
            continue
        raise NotPlainError(
            f"{dependent.alias} is joined by {own}, which is {kinds[0]}, with a column that is {kinds[1]}"
        )
    raise NotPlainError(f"{dependent.alias} is joined without a column that has to equal one of another table")


def _pairs(join: exp.Join, inputs: tuple[Input, ...], *, of_any_type: bool = False) -> Iterator[tuple[str, Name]]:
    """Yields columns of the last input, each with a column of an earlier one that it has to equal."""
    last, scope = len(inputs) - 1, Scope(inputs)
    for identifier in join.args.get("using") or []:
        column = exp.column(identifier.name)
        own, other = Scope(inputs[last:]).whole(column), Scope(inputs[:last]).whole(column)
        if own is None or other is None:
            continue
        if of_any_type or _comparable(inputs, Name(last, own.column), other):
            yield own.column, other
    for condition in conjuncts(join.args.get("on")):
        if not isinstance(condition, exp.EQ):
            continue
        sides = [scope.whole(condition.left), scope.whole(condition.right)]
        for own, other in (sides, reversed(sides)):
            if own is None or other is None or own.source != last or other.source == last:
                continue
            if of_any_type or _comparable(inputs, own, other):
                yield own.column, other


def _comparable(inputs: Sequence[Input], *names: Name) -> bool:
    """Returns whether two columns are equal where their bits are, so that one can be searched by the other."""
    own, other = (column_type(inputs[name.source].node, name.column) for name in names)
    if own is None or other is None:
        return False
    numbers = all(map(pa.types.is_integer, (own, other))) or all(map(pa.types.is_decimal, (own, other)))
    return own == other or (numbers and (is_wider(own, other) or is_wider(other, own)))  # which has all values of both


def with_equal_columns(tree: exp.Select, inputs: tuple[Input, ...]) -> tuple[Input, ...]:
    """Adds the equalities of WHERE between members, as in ``FROM a, b WHERE a.x = b.k``."""
    where, scope, found = tree.args.get("where"), Scope(inputs), list(inputs)
    for condition in conjuncts(where.this if where is not None else None):
        if not isinstance(condition, exp.EQ):
            continue
        names = scope.whole(condition.left), scope.whole(condition.right)
        if None in names:
            continue
        first, last = sorted((name for name in names if name is not None), key=lambda name: name.source)
        if first.source == last.source or not (inputs[first.source].member and inputs[last.source].member):
            continue
        if _comparable(inputs, first, last):
            source = found[last.source]
            found[last.source] = replace(source, equal=(*source.equal, (last.column, first)))
    return tuple(found)


def correlated(inner: exp.Select, own: Scope, scope: Scope) -> Iterator[tuple[str, Name]]:
    """Yields the columns of a subquery's table that have to equal a column of the query around it."""
    where = inner.args.get("where")
    for condition in conjuncts(where.this if where is not None else None):
        if not isinstance(condition, exp.EQ):
            continue
        for one, other in ((condition.left, condition.right), (condition.right, condition.left)):
            name, outer = own.whole(one), None if own.root(other) is not None else scope.whole(other)
            if name is not None and outer is not None and _of_two(own, name, scope, outer):
                yield name.column, outer


def searched(found: exp.In, inner: exp.Select, own: Scope, scope: Scope) -> Iterator[tuple[str, Name]]:
    """Yields what ``x IN (SELECT y …)`` compares; raises `NotPlainError` where a null of y would change all rows."""
    node: exp.Expr = found
    while isinstance(node.parent, exp.And | exp.Or | exp.Paren):
        node = node.parent
    if not isinstance(node.parent, exp.Where | exp.Having | exp.Join):
        raise NotPlainError("it has NOT IN, or IN as a value, with a subquery: a null in that changes all rows")
    [*columns] = inner.expressions
    name, outer = own.whole(columns[0].unalias()) if len(columns) == 1 else None, scope.whole(found.this)
    if name is not None and outer is not None and _of_two(own, name, scope, outer):
        yield name.column, outer


def _of_two(own: Scope, name: Name, scope: Scope, outer: Name) -> bool:
    return _comparable((own.inputs[0], *scope.inputs), name, replace(outer, source=outer.source + 1))
