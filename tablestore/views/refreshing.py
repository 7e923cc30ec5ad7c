"""Refreshes views, and before each the views that it reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tablestore.views.refresh_order import refresh_order
from tablestore.views.view import View

__all__ = ["refresh_views"]

V = TypeVar("V", bound=View[Any])


def refresh_views(
    names: Sequence[str],
    inputs_of: Callable[[str], Sequence[str] | None],
    open_view: Callable[[str], V],
    *,
    rebuild: bool,
) -> list[tuple[V, Any]]:
    """Implements `tablestore.Store.refresh`.

    Args:
        names: The views.
        inputs_of: Returns the tables that a view reads; None for a table that is no view.
        open_view: Opens a view, with what computes its rows.
        rebuild: Whether all rows of these views are computed again.
    """
    asked = [open_view(name).table.identifier for name in names]  # raises what is wrong before anything is done
    found: list[tuple[V, Any]] = []
    for name in refresh_order(asked, inputs_of):
        view = open_view(name)
        if (done := view.rebuild() if rebuild and name in asked else view.refresh()) is not None:
            found.append((view, done))
    return found
