"""Parts of a parsed query of Spark. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

__all__ = ["conditions_of_where", "conjuncts", "is_plain_star", "other_clauses", "system_time"]


def other_clauses(tree: exp.Select) -> list[str]:
    """Returns the clauses that a query has beside its columns, its tables and their join."""
    return [name for name, value in tree.args.items() if value and name not in ("expressions", "from_", "joins")]


def is_plain_star(part: exp.Expr) -> bool:
    """Returns whether it is ``*`` without EXCEPT and the like."""
    return isinstance(part, exp.Star) and not any(part.args.values())


def conjuncts(condition: exp.Expr | None) -> Iterator[exp.Expr]:
    """Yields the conditions that AND connects."""
    if isinstance(condition, exp.And | exp.Paren):
        parts = [condition.this] if isinstance(condition, exp.Paren) else [condition.left, condition.right]
        for part in parts:
            yield from conjuncts(part)
    elif condition is not None:
        yield condition


def conditions_of_where(tree: exp.Select) -> Iterator[exp.Expr]:
    """Yields the conditions of WHERE that AND connects; none without WHERE."""
    where = tree.args.get("where")
    return conjuncts(None if where is None else where.this)


def system_time(table: exp.Expr) -> exp.Expr | None:
    """Returns the time that ``[FOR] SYSTEM_TIME AS OF`` behind a table names; None without it."""
    version = table.args.get("version")
    return version.expression if isinstance(version, exp.Version) and version.name == "TIMESTAMP" else None
