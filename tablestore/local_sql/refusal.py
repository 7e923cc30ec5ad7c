"""`NotLocalError`: a query is one for Spark, as far as this process knows."""

from __future__ import annotations

from sqlglot import exp

__all__ = ["NotLocalError", "UnknownColumnError", "only"]


class NotLocalError(Exception):
    """A query has something that is not known to have the same result in this process as in Spark; the text says what.

    It is a clause that begins with a subject: ``its GROUP BY has ROLLUP``.
    """


class UnknownColumnError(NotLocalError):
    """A name is no column of the tables of the query."""


def only(node: exp.Expr, *known: str) -> None:
    """Refuses a node that says something else than what the caller reads of it."""
    for name, value in node.args.items():
        if name not in known and value not in (None, False, []):
            raise NotLocalError(f"it has {name.strip('_').replace('_', ' ').upper()} in {node.key.upper()}")
