"""Finds what a query reads beside the tables that it was given.

A query can read a table that its text does not name: behind a function of SQL, behind a view of Spark's, and by
``IDENTIFIER('…')``. Who knows a query by the tables in its text would not see them change.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

__all__ = ["other_relation"]

_OF_THE_TEXT = {"LocalRelation", "OneRowRelation", "Range", "CTERelationRef", "UnionLoopRef"}
"""Spark's leaves that a text names or holds: ``VALUES``, ``range(9)``, a name of WITH, also of WITH RECURSIVE."""


def other_relation(query: DataFrame, own: str) -> str | None:
    """Returns what a query reads that is no DataFrame with a name of ours, in Spark's words; None if there is nothing.

    Args:
        query: A query over DataFrames that were given names in the session.
        own: The beginning of these names.
    """
    left = [query._jdf.queryExecution().analyzed()]
    while left:
        plan = left.pop()
        kind, children = plan.getClass().getSimpleName(), _sequence(plan.children())
        if kind == "View":
            if not (name := plan.desc().identifier().unquotedString()).startswith(own):
                return f"the view {name}"
            continue
        if not children and kind not in _OF_THE_TEXT:
            return str(plan.simpleString(9))
        left += children + _sequence(plan.subqueries())
    return None


def _sequence(found: Any) -> list[Any]:
    return [found.apply(place) for place in range(found.size())]
