"""The command ``refresh``: updates maintained views, once or until Ctrl-C."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from filestore.errors import InvalidRequest, Unavailable
from tablestore.cli.arguments import DEFAULT_WAREHOUSE, Catalog, Token
from tablestore.cli.follow import interruptible
from tablestore.cli.opening import open_store, spark_settings
from tablestore.cli.output import note

if TYPE_CHECKING:
    from tablestore.store import Store
    from tablestore.views.view import View

__all__ = ["refresh"]


def refresh(
    name: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="The view's name: database.table.", show_default=False)
    ] = None,
    every_view: Annotated[bool, typer.Option("--all", help="Refresh all views of the catalog.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Continue with new changes; Ctrl-C stops it.")] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.01, help="With --follow: the pause between refreshes.")
    ] = 1.0,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Compute all rows of this view again.")] = False,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Add to a maintained view what has changed in the tables that it reads, and before to the views that it reads.

    Spark is started for views that are more than a join of two tables.

    [dim]tablestore refresh shop.named_orders --follow[/dim]
    """
    if (name is None) is not every_view:
        raise InvalidRequest("name a view, or give --all", code="bad-arguments")
    if rebuild and (every_view or follow):
        raise InvalidRequest("--rebuild takes one view, once: leave --all and --follow out", code="bad-arguments")
    with open_store(catalog, token) as store, _opened(store, name, catalog, token) as views:
        if not follow:
            for view in views:
                is_named = view.table.identifier == name
                _refresh(view, quiet=name is not None and not is_named, rebuild=rebuild and is_named)
            return
        with interruptible() as stopped:
            note(f"refreshing {name or 'all views'}; Ctrl-C stops it")
            last = False
            while not last:
                last = stopped.wait(every)  # what was committed before is still added
                for view in views:
                    for done in view.follow(lambda: True):
                        _report(view, done)


@contextmanager
def _opened(store: Store, name: str | None, catalog: str, token: str | None) -> Iterator[Sequence[View[Any]]]:
    """Opens views, each behind those that it reads; with Spark, if one of them needs it."""
    from tablestore.views.creation import all_views, inputs_of, open_view  # loads sqlglot
    from tablestore.views.maintained import MaintainedJoin
    from tablestore.views.refresh_order import refresh_order

    named = [open_view(store, name).table.identifier] if name is not None else all_views(store)
    views = [open_view(store, one) for one in refresh_order(named, partial(inputs_of, store))]
    if all(isinstance(view, MaintainedJoin) for view in views):
        yield views
        return
    if find_spec("pyspark") is None:
        raise Unavailable(
            "a view of these is computed by Spark, which is not installed: pip install 'lakehouse-tablestore[spark]'",
            code="spark-missing",
        )
    from tablestore.spark import SparkStore, spark_session

    storage = spark_settings(catalog, token)["storage_options"]
    spark = spark_session("tablestore refresh", storage_options=storage)
    try:
        lake = SparkStore(spark, store)
        yield [lake.maintained_view(view.table.identifier) for view in views]
    finally:
        spark.stop()


def _refresh(view: View[Any], *, quiet: bool, rebuild: bool) -> None:
    done = view.rebuild() if rebuild else view.refresh()
    if done is not None:
        _report(view, done)
    elif not quiet:
        note(f"{view.table.identifier} is up to date")


def _report(view: View[Any], done: Any) -> None:
    versions = ", ".join(f"{table} at version {version}" for table, version in view.read_by(done))
    how = ", all rows computed again" if done.whole else ""
    note(f"{view.table.identifier} version {done.version}: {versions}{how}")
