"""Refreshes views, and before each the views that it reads, all of them to one version of each table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from tablestore.views.engines.either import Engine
from tablestore.views.opening import inputs_of, open_view
from tablestore.views.refresh_order import refresh_order
from tablestore.views.shared_versions import SharedVersions
from tablestore.views.view import Refreshed, View

if TYPE_CHECKING:
    from tablestore.store import Store

__all__ = ["refresh_views"]


def refresh_views(
    store: Store, names: Sequence[str], spark: Engine | None, *, rebuild: bool
) -> list[tuple[View, Refreshed]]:
    """Implements `tablestore.Store.refresh`; `spark` is Spark, if this process has it."""
    asked = [open_view(store, name).table.identifier for name in names]  # raises what is wrong before anything is done
    found: list[tuple[View, Refreshed]] = []
    versions = SharedVersions()
    for name in refresh_order(asked, partial(inputs_of, store)):
        view = open_view(store, name, spark)
        if (done := view.rebuild(versions) if rebuild and name in asked else view.refresh(versions)) is not None:
            found.append((view, done))
    return found
