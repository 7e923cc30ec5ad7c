"""Chooses between the ways in which a view is refreshed whose query only Spark computes. Pure.

A step of Spark takes 0.3 to 0.4 s, whatever it reads. To find what changes reach takes several steps; all rows of small
tables take one, and to compare them in this process takes less than another one (decision 155).
"""

from __future__ import annotations

from tablestore.views.plan.view_plan import ViewPlan

__all__ = ["compares_here", "described"]


def compares_here(plan: ViewPlan, size: int, most: int) -> bool:
    """Returns whether Spark computes all rows of a view, and this process compares them with the stored ones.

    Args:
        plan: The plan of the view.
        size: The bytes of the files of its tables and of its own.
        most: The most bytes for which that is faster (``view.whole-size``); 0: it never is.
    """
    return bool(plan.key) and bool(most) and size <= most


def described(size: int, most: int) -> str:
    """Returns what EXPLAIN says of a view for which both ways are possible; for arguments see `compares_here`."""
    return (
        f"as long as the files of its tables and its own have at most {most / (1 << 20):.3g} MB (view.whole-size; "
        f"{size / (1 << 20):.3g} MB now), Spark computes all rows in one step, and this process compares them"
    )
