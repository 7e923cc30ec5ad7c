"""The clauses of a SELECT: of which ones rules are known, and the expressions in them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from tablestore.views.plan.scope import NotPlainError

__all__ = [
    "CLAUSES",
    "CLAUSES_OF_SUBQUERIES",
    "check_clauses",
    "check_groups",
    "conditions_of_joins",
    "expressions_of",
    "name_of_clause",
]

CLAUSES = ("expressions", "from_", "joins", "where", "group", "having", "distinct", "qualify")
CLAUSES_OF_SUBQUERIES = ("expressions", "from_", "joins", "where", "group", "having", "distinct")
_NAMES_OF_CLAUSES = {
    "with_": "WITH",
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "laterals": "LATERAL VIEW",
    "windows": "WINDOW",
}


def name_of_clause(name: str) -> str:
    """Returns a clause as SQL has it, by its name in the tree."""
    return _NAMES_OF_CLAUSES.get(name, name.upper())


def check_clauses(tree: exp.Select, known: Sequence[str]) -> None:
    """Raises `NotPlainError` if a SELECT has other clauses than the known ones."""
    for name, value in tree.args.items():
        if value and name not in known:
            raise NotPlainError(f"it has {name_of_clause(name)}")
    if (distinct := tree.args.get("distinct")) is not None and any(distinct.args.values()):
        raise NotPlainError("it has DISTINCT ON")


def check_groups(tree: exp.Select) -> None:
    """Raises `NotPlainError` if a SELECT has groups that are not made of plain expressions.

    With grouping sets there are nulls in the result that no row has.
    """
    group = tree.args.get("group")
    if group is None:
        return
    sets = any(isinstance(part, exp.Rollup | exp.Cube | exp.GroupingSets) for part in group.expressions)
    if sets or any(value for name, value in group.args.items() if name != "expressions") or not group.expressions:
        raise NotPlainError("its GROUP BY has ALL, ROLLUP, CUBE or GROUPING SETS")


def expressions_of(tree: exp.Select) -> list[exp.Expr]:
    """Returns the expressions of a SELECT, without those of its joins."""
    clauses = (tree.args.get(name) for name in ("where", "group", "having", "qualify"))
    return [*tree.expressions, *(clause for clause in clauses if clause is not None)]


def conditions_of_joins(tree: exp.Select) -> list[exp.Expr]:
    """Returns what the joins of a SELECT have behind ON."""
    return [on for join in tree.args.get("joins") or [] if (on := join.args.get("on")) is not None]
