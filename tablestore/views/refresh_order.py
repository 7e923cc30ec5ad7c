"""The order in which views are refreshed that read other views. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter

from filestore.errors import InvalidRequest

__all__ = ["refresh_order"]


def refresh_order(views: Iterable[str], inputs_of: Callable[[str], Sequence[str] | None]) -> list[str]:
    """Returns views and all views that they read, each behind those that it reads.

    Args:
        views: The names of views.
        inputs_of: Returns the tables that a view reads; None for a table that is no view.

    Raises:
        InvalidRequest: ``view-cycle``: a view reads its own rows, perhaps by way of others.
    """
    graph: dict[str, list[str]] = {}
    waiting = list(views)
    while waiting:
        name = waiting.pop()
        if name in graph:
            continue
        if (inputs := inputs_of(name)) is not None:
            graph[name] = list(inputs)
            waiting += inputs
    of_views = {name: [one for one in inputs if one in graph] for name, inputs in graph.items()}
    try:
        return list(TopologicalSorter(of_views).static_order())
    except CycleError as error:
        chain = " reads ".join(reversed(error.args[1]))
        raise InvalidRequest(f"a view cannot read its own rows: {chain}", code="view-cycle") from error
