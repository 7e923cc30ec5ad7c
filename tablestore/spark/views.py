"""`StoreViews`: the methods of `tablestore.spark.SparkStore` about maintained views (docs/views.md)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from filestore.arguments import checks_arguments
from filestore.checks.report import Report
from tablestore.defaults import with_defaults
from tablestore.doctor import examine_named
from tablestore.lookup.request import Kind
from tablestore.spark.batch.view_engine import SparkViews
from tablestore.spark.batch.view_rows import TableReader
from tablestore.spark.batch.view_session import view_settings
from tablestore.store import Store
from tablestore.table import Table
from tablestore.table_names import split
from tablestore.views.creation import PlannedView, planned_view
from tablestore.views.opening import open_view
from tablestore.views.refreshing import refresh_views
from tablestore.views.sql.place import Place
from tablestore.views.sql.view_query import VIEW_QUERY
from tablestore.views.view import Refreshed, View
from tablestore.views.view_creation import MaterializedView

__all__ = ["StoreViews"]


@checks_arguments()
class StoreViews(ABC):
    """Creates, opens and refreshes views.

    Attributes:
        spark: The session.
        store: The store.
    """

    spark: SparkSession
    store: Store

    @abstractmethod
    def _defaults(self) -> dict[str, str]:
        """Returns the options that tables have by default."""

    @abstractmethod
    def _reader(self, session: SparkSession, open_table: Callable[[str], Table]) -> TableReader:
        """Returns what reads tables in another session, which `open_table` opens."""

    def maintain_join(  # noqa: PLR0913  # what a join can choose are its arguments
        self,
        into: str,
        *,
        left: str,
        right: str,
        on: str | Sequence[str],
        kind: Kind = "inner",
        select: str | Sequence[str] | None = None,
        at: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> View:
        """Creates a maintained join, or opens it, as `tablestore.Store.maintain_join`; its refreshes are Spark jobs."""
        given = self._with_defaults(options or {})
        view = self.store.maintain_join(
            into, left=left, right=right, on=on, kind=kind, select=select, at=at, options=given
        )
        return view.executed_by(self.query_engine)

    def create_materialized_view(
        self,
        name: str,
        query: str,
        *,
        primary_key: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
    ) -> View:
        """Creates a table that refreshes keep equal to a query (docs/views.md), as ``CREATE MATERIALIZED VIEW``.

        Rows are computed in this process where that is known to give the same, and by Spark else.

            view = lake.create_materialized_view(
                "shop.sums",
                "SELECT planet, sum(amount) AS amount FROM shop.orders WHERE planet IS NOT NULL GROUP BY planet",
            )
            view.refresh()

        Args:
            name: ``database.table``.
            query: A query of Spark over tables of this store. A name without a database is in that of the view.
            primary_key: The columns of its key. Of a view that is refreshed incrementally it follows from the query;
                given, it says that a group has no nulls. None: a view that is computed as a whole has no key.
            options: Options of the view's table. With ``{"view.incremental": "required"}`` a query is refused that can
                only be computed as a whole.
            comment: Free text.

        Returns:
            The view. Nothing was written to it yet.

        Raises:
            InvalidRequest: ``view-query``: Spark refuses the query; ``view-key``: another key follows from it;
                ``view-cycle``.
            Unsupported: ``view-query``: its result does not follow from the rows; ``view-not-incremental``.
            NotFound: there is no such table.
            AlreadyExists: ``table-exists``: a table or a view has the name.
        """
        place = Place("", split(name)[0])
        return self.create_asked_view(MaterializedView(name, query, place, options or {}, comment, tuple(primary_key)))

    def create_asked_view(self, asked: MaterializedView) -> View:
        """Creates a view from the parts of the statement; see `create_materialized_view`."""
        return self._planned(asked).create()

    def explain_view(self, asked: MaterializedView | None, name: str) -> tuple[str, ...]:
        """Returns how a view is refreshed, a line each: one that exists, or one that a statement would create."""
        return self.maintained_view(name).explain() if asked is None else self._planned(asked).made.explained

    def _planned(self, asked: MaterializedView) -> PlannedView:
        settings = {f"view.setting.{key}": value for key, value in view_settings(self.spark).items()}
        given = replace(asked, options=self._with_defaults(asked.options))
        return planned_view(self.store, given, self.query_engine, settings)

    def maintained_view(self, name: str) -> View:
        """Opens a view; `InvalidRequest` (``no-view``) if the table is none."""
        return open_view(self.store, name, self.query_engine)

    def refresh(self, *names: str, rebuild: bool = False) -> list[tuple[View, Refreshed]]:
        """Refreshes views, and before them all views that they read, each behind those that it reads itself.

        Args:
            names: The views, each as ``database.table``.
            rebuild: Whether all rows of these views are computed again (`View.rebuild`).

        Returns:
            The views that had something new, with the results of their refreshes, in their order.

        Raises:
            InvalidRequest: ``no-view``: a table that is written to; ``view-cycle``. Or as `View.refresh`:
                the views that were refreshed before stay so.
        """
        return refresh_views(self.store, names, self.query_engine, rebuild=rebuild)

    def examine(self, name: str) -> Report:
        """Checks a table as `tablestore.Store.examine`, and compares the rows of any view with its query."""
        return examine_named(self.store, name, self.query_engine)

    def _with_defaults(self, options: Mapping[str, str]) -> dict[str, str]:
        found = with_defaults(self._defaults(), {VIEW_QUERY: "", **options}, keyed=True)
        return {name: value for name, value in found.items() if name != VIEW_QUERY or name in options}

    @property
    def query_engine(self) -> SparkViews:
        """Computes in Spark the rows of views that a process does not compute itself."""
        return SparkViews(self.spark, self._reader)
