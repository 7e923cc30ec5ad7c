"""The command ``refresh``: updates maintained views, once or until Ctrl-C."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from filestore.ambient import system_ambient
from filestore.errors import InvalidRequest, Unavailable
from tablestore.cli.arguments import DEFAULT_WAREHOUSE, Catalog, Format, OutputFormat, Token
from tablestore.cli.opening import open_store, spark_settings
from tablestore.cli.output import complain, done, note, timed
from tablestore.cli.progress import doing
from tablestore.cli.signals import ending

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from filestore.files.writer import TableFiles
    from filestore.model.definition import TableDefinition
    from filestore.model.files import ChangeFile
    from filestore.model.schema import Schema
    from filestore.reading.difference import SlotDifference
    from tablestore.spark import SparkStore
    from tablestore.store import Store
    from tablestore.views.engines.query_work import QueryWork, RowCounts
    from tablestore.views.tasks import Tasks
    from tablestore.views.upkeep import RefreshOutcome, Upkeep
    from tablestore.views.view import Refreshed, View
    from tablestore.writing.write_job import WriteRunner

__all__ = ["refresh"]


def refresh(  # noqa: PLR0913  # a command's options are its arguments
    name: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="The view's name: database.table.", show_default=False)
    ] = None,
    every_view: Annotated[bool, typer.Option("--all", help="Refresh all views of the catalog.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Continue with new changes; Ctrl-C stops it.")] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.01, help="With --follow: the pause between refreshes.")
    ] = 1.0,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Compute all rows of this view again.")] = False,
    output: OutputFormat = Format.TABLE,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Add to a maintained view what has changed in the tables that it reads, and before to the views that it reads.

    Spark is started for a view whose rows this process cannot compute, or that reads more than it has room for. With
    [bold]--all[/bold] a view that fails holds up no other one: it is reported, and with [bold]--follow[/bold] tried
    again later; without it the exit code is 1.

    [dim]tablestore refresh shop.named_orders --follow[/dim]
    """
    if (name is None) is not every_view:
        raise InvalidRequest("name a view, or give --all", code="bad-arguments")
    if rebuild and (every_view or follow):
        raise InvalidRequest("--rebuild takes one view, once: leave --all and --follow out", code="bad-arguments")
    stopped = threading.Event()
    with open_store(catalog, token) as store, ExitStack() as stack:
        opened = _Views(store, stack, catalog, token, output)
        if follow:
            stack.enter_context(ending(stopped, (signal.SIGTERM, signal.SIGINT)))
            stack.enter_context(timed(system_ambient().now_ms))
            note(f"refreshing {name or 'all views'}; Ctrl-C stops it")
        if name is not None:
            _refresh_one(opened, name, rebuild, stopped if follow else None, every)
        elif not follow:
            _refresh_all_once(opened)
        else:
            _refresh_all(opened, stopped, every)


class _SparkWhenNeeded:
    """Spark, which is started when a view first needs it (`tablestore.views.engines.either.Engine`).

    Args:
        views: Starts it.
    """

    def __init__(self, views: _Views) -> None:
        self._views = views

    @property
    def tasks(self) -> Tasks:
        from tablestore.views.tasks import Tasks

        return Tasks(changes=self._changes)

    def schema(self, work: QueryWork) -> Schema:
        return self._views.started().query_engine.schema(work)

    def rows(self, work: QueryWork, definition: TableDefinition) -> pa.Table:
        return self._views.started().query_engine.rows(work, definition)

    def runner(self, work: QueryWork, definition: TableDefinition) -> WriteRunner:
        return self._views.started().query_engine.runner(work, definition)

    def compare(self, work: QueryWork) -> RowCounts:
        return self._views.started().query_engine.compare(work)

    def _changes(self, table: TableFiles, differences: Sequence[SlotDifference]) -> Sequence[tuple[ChangeFile, ...]]:
        from filestore.operations.replaced_rows import changes_in_threads

        run = changes_in_threads if self._views.lake is None else self._views.lake.query_engine.tasks.changes
        return run(table, differences)


class _Views:
    """Opens views; the first one that needs Spark starts it, and the end of the command stops it."""

    def __init__(self, store: Store, stack: ExitStack, catalog: str, token: str | None, output: Format) -> None:
        self.output = output
        self._store, self._stack, self._catalog, self._token = store, stack, catalog, token
        self.lake: SparkStore | None = None

    def named(self, name: str | None) -> list[str]:
        """Returns the names of a view and of those that it reads, or of all views, each behind those that it reads."""
        from tablestore.views.opening import all_views, inputs_of, open_view  # loads sqlglot
        from tablestore.views.refresh_order import refresh_order

        if name is None:
            return all_views(self._store)
        return refresh_order([open_view(self._store, name).table.identifier], partial(inputs_of, self._store))

    def open(self, name: str) -> View:
        """Opens a view."""
        from tablestore.views.opening import open_view

        return open_view(self._store, name, _SparkWhenNeeded(self))

    def started(self) -> SparkStore:
        """Returns the store in Spark."""
        if self.lake is None:
            if find_spec("pyspark") is None:
                raise Unavailable(
                    "a view is computed by Spark, which is not installed: pip install 'lakehouse-tablestore[spark]'",
                    code="spark-missing",
                )
            from tablestore.spark import SparkStore, spark_session

            storage = spark_settings(self._catalog, self._token)["storage_options"]
            interrupted = signal.getsignal(signal.SIGINT)
            spark = spark_session("tablestore refresh", storage_options=storage)
            if interrupted is not signal.default_int_handler:  # PySpark's handler would break a refresh off
                signal.signal(signal.SIGINT, interrupted)
            self._stack.callback(spark.stop)
            self.lake = SparkStore(spark, self._store)
        return self.lake


def _refresh_one(opened: _Views, name: str, rebuild: bool, stopped: threading.Event | None, every: float) -> None:
    """Refreshes a view and those that it reads, once or until the command is stopped; an error ends the command."""
    from tablestore.views.shared_versions import SharedVersions

    views = [opened.open(one) for one in opened.named(name)]
    if stopped is None:
        versions = SharedVersions()
        for view in views:
            doing(f"view {view.table.identifier}")
            is_named = view is views[-1]  # the last one, which reads the others
            found = view.rebuild(versions) if rebuild and is_named else view.refresh(versions)
            if found is not None:
                _report(opened.output, view, found)
            elif is_named:
                done(opened.output, f"{name} is up to date", view=name, version=None)
        return
    last = False
    while not last:
        last = stopped.wait(every)  # what was committed before is still added
        versions = SharedVersions()
        for view in views:
            if (found := view.caught_up(versions)) is not None:
                _report(opened.output, view, found)


def _refresh_all_once(opened: _Views) -> None:
    failed = False
    for number, outcome in enumerate(_upkeep(opened).round(), 1):
        doing(f"{number} {'view' if number == 1 else 'views'} refreshed")
        _report_outcome(opened.output, outcome)
        failed |= outcome.error is not None
        if outcome.error is None and outcome.result is None:
            done(opened.output, f"{outcome.name} is up to date", view=outcome.name, version=None)
    if failed:
        raise typer.Exit(1)


def _refresh_all(opened: _Views, stopped: threading.Event, every: float) -> None:
    upkeep, last = _upkeep(opened), False
    while not last:
        last = stopped.wait(every)
        for outcome in upkeep.round():
            if outcome.error is not None and outcome.error.code == "spark-stopped":
                raise outcome.error  # its session does not come back in this process, so whoever restarts it helps
            _report_outcome(opened.output, outcome)


def _upkeep(opened: _Views) -> Upkeep:
    from tablestore.views.upkeep import Upkeep

    return Upkeep(partial(opened.named, None), opened.open, system_ambient().monotonic_s)


def _report_outcome(output: Format, outcome: RefreshOutcome) -> None:
    if outcome.error is not None:
        complain(outcome.error, outcome.name or "")
    elif outcome.view is not None and outcome.result is not None:
        _report(output, outcome.view, outcome.result)


def _report(output: Format, view: View, found: Refreshed) -> None:
    name, read = view.table.identifier, dict(found.inputs)
    versions = ", ".join(f"{table} at version {version}" for table, version in read.items())
    why = f", since {found.wrong} of the rows that were checked were wrong" if found.wrong else ""
    how = f", all rows computed again{why}" if found.whole else ""
    text = f"{name} version {found.version}: {versions}{how}"
    done(output, text, view=name, version=found.version, read=read, whole=found.whole, wrong=found.wrong)
