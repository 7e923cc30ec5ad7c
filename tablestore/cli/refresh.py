"""The command ``refresh``: updates a maintained join, once or until Ctrl-C."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from tablestore.cli.arguments import DEFAULT_WAREHOUSE, Catalog, TableName, Token
from tablestore.cli.follow import interruptible
from tablestore.cli.opening import open_store
from tablestore.cli.output import note

if TYPE_CHECKING:
    from tablestore.views.maintained import MaintainedJoin, Refreshed

__all__ = ["refresh"]


def refresh(
    name: TableName,
    follow: Annotated[bool, typer.Option("--follow", help="Continue with new changes; Ctrl-C stops it.")] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.01, help="With --follow: the pause between refreshes.")
    ] = 1.0,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Add to a maintained join what has changed in the tables that it joins. Only what changed is worked out.

    [dim]tablestore refresh shop.named_orders --follow[/dim]
    """
    with open_store(catalog, token) as store:
        view = store.maintained_join(name)
        if follow:
            with interruptible() as stopped:
                note(f"refreshing {name}; Ctrl-C stops it")
                for refreshed in view.follow(stopped, timedelta(seconds=every)):
                    _report(view, refreshed)
            return
        done = view.refresh()
        if done is None:
            note(f"{name} is up to date")
        else:
            _report(view, done)


def _report(view: MaintainedJoin, refreshed: Refreshed) -> None:
    how = ", all rows computed again" if refreshed.whole else ""
    query = view.query
    note(
        f"version {refreshed.version}: {query.left} at version {refreshed.left}, {query.right} at version "
        f"{refreshed.right}{how}"
    )
