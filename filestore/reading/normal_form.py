"""Makes conditions of many terms flat, since polars' costs grow with the square of a condition's depth. Pure.

``a = 1 OR a = 2 OR b > 3``, which SQL parses as ``((a = 1 OR a = 2) OR b > 3)``, becomes ``a IN (1, 2) OR b > 3``;
``a <> 1 AND a <> 2`` becomes ``NOT a IN (1, 2)``. Many other operands are joined as a balanced tree. The result is
true, false or null for the same rows. So an equality becomes an element of a list only where the literal is a value of
the column's type: others would be rounded, or compared as another type. A null never is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TypeAlias

from filestore.lazily import pl
from filestore.reading.expressions import Join, compares_exactly, operands, operator

__all__ = ["flat"]

_DEEPEST = 64
"""The number of times that AND and OR may alternate in what is made flat: this recursion is Python's."""

Equality: TypeAlias = "tuple[str, pl.Expr]"
"""A column and the literal that it is compared with."""


def flat(condition: pl.Expr, types: pl.Schema) -> pl.Expr:
    """Returns a condition with the same truth for each row of a table, not deeper than is needed.

    It takes any expression; what it does not know stays as it is.

    Args:
        condition: The condition.
        types: The types of the table's columns.
    """
    return _flat(condition, types, _DEEPEST)


def _flat(condition: pl.Expr, types: pl.Schema, depth: int) -> pl.Expr:
    if depth == 0:
        return condition
    for join in (pl.Expr.__or__, pl.Expr.__and__):
        if len(parts := operands(condition, join)) > 1:
            flattened = [_flat(part, types, depth - 1) for part in parts]
            return _balanced(_with_lists(flattened, types, negated=join is pl.Expr.__and__), join)
    match condition.meta.pop():
        case [inner] if condition.meta.eq(~inner):
            return ~_flat(inner, types, depth - 1)
        case [inner] if condition.meta.eq(inner.cast(pl.Boolean)):  # SQL has this between NOT and a parenthesis
            return _flat(inner, types, depth - 1).cast(pl.Boolean)
    return condition


def _balanced(parts: Sequence[pl.Expr], join: Join) -> pl.Expr:
    """Joins expressions as a tree of the least depth, in their order."""
    while len(parts) > 1:
        pairs = zip_longest(parts[::2], parts[1::2])
        parts = [left if right is None else join(left, right) for left, right in pairs]
    return parts[0]


def _with_lists(parts: Sequence[pl.Expr], types: pl.Schema, *, negated: bool) -> list[pl.Expr]:
    """Replaces equalities of one column by one IN; with `negated` inequalities by one NOT IN."""
    found: dict[tuple[str, pl.DataType], list[tuple[int, pl.Series]]] = {}
    compared = {n: equality for n, part in enumerate(parts) if (equality := _equality(part, types, negated=negated))}
    if len(compared) < 2:
        return list(parts)
    literals = pl.select(literal.alias(str(n)) for n, (_, literal) in compared.items())
    for n, value in zip(compared, literals.iter_columns(), strict=True):
        found.setdefault((compared[n][0], value.dtype), []).append((n, value))
    lists, replaced = list[pl.Expr](), set[int]()
    for (name, kind), listed in found.items():
        values, fits = _of_column(pl.concat(value.alias("") for _, value in listed), types[name], kind)
        if fits.sum() > 1:
            replaced |= {n for (n, _), fit in zip(listed, fits, strict=True) if fit}
            one_of = pl.col(name).is_in(values.filter(fits).unique(maintain_order=True).implode())
            lists.append(~one_of if negated else one_of)
    return [*lists, *(part for n, part in enumerate(parts) if n not in replaced)]


def _equality(part: pl.Expr, types: pl.Schema, *, negated: bool) -> Equality | None:
    """The column and the literal of an equality; with `negated`, of an inequality."""
    equal = _negated(part) if negated else part
    match (part if equal is None else equal).meta.pop():
        case [right, left] if right.meta.is_column() and left.meta.is_literal():
            left, right = right, left
        case [right, left] if left.meta.is_column() and right.meta.is_literal():
            pass
        case _:
            return None
    if (name := left.meta.output_name()) not in types or not right.meta.is_scalar():
        return None
    if equal is None:
        same = part.meta.eq(left != right) or part.meta.eq(right != left)
    else:
        same = "=" in (operator(equal, left, right), operator(equal, right, left))
    return (name, right) if same else None


def _of_column(literals: pl.Series, column: pl.DataType, kind: pl.DataType) -> tuple[pl.Series, pl.Series]:
    """The literals in a column's type, and which of them are the same values there. A null is never among them."""
    if not compares_exactly(kind, column):
        return literals, pl.repeat(False, len(literals), eager=True)
    try:
        values = literals.cast(column, strict=False)
        return values, (values.cast(kind, strict=False) == literals).fill_null(False)
    except pl.exceptions.PolarsError:
        return literals, pl.repeat(False, len(literals), eager=True)


def _negated(condition: pl.Expr) -> pl.Expr | None:
    match condition.meta.pop():
        case [inner] if condition.meta.eq(~inner):
            return inner
    return None
