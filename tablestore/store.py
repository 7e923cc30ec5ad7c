"""`connect` and `Store`: the entry point without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from catalog_service.client import is_service, warehouse_location
from catalog_service.wire.registrations import Registration
from catalog_service.wire.views import CreateView, ViewInfo
from filestore.ambient import Ambient, system_ambient
from filestore.arguments import checked, checks_arguments
from filestore.beside import finish
from filestore.contexts import Closing
from filestore.metrics.meter import NO_METER, Meter
from filestore.model.schema import Schema
from filestore.progress import Observe
from filestore.storage.locations import Storages
from tablestore.address import Address
from tablestore.defaults import table_defaults
from tablestore.incoming.files.row_file import RowFile, csv_style
from tablestore.loading import NewTable, files_of, plan_load
from tablestore.lookup.request import Kind
from tablestore.open_tables import OpenTables
from tablestore.store_tables import StoreTables
from tablestore.table_names import in_one_database, split

if TYPE_CHECKING:
    from filestore.checks.report import Report
    from filestore.metrics.registry import Metrics
    from tablestore.doctor import Examined
    from tablestore.ingesting.ingestion import Ingestion
    from tablestore.table import Table
    from tablestore.views.view import Refreshed, View

__all__ = ["Store", "connect"]


@checked()
def connect(  # noqa: PLR0913  # it says where everything is
    target: str | PathLike[str],
    token: str | None = None,
    *,
    database: str | None = None,
    options: Mapping[str, str] | None = None,
    metrics: Metrics | None = None,
    storage_options: Mapping[str, str] | None = None,
    brokers: str | None = None,
    commits: str | None = None,
) -> Store:
    """Connects to a table store.

    Args:
        target: The URL of a catalog service (``http://127.0.0.1:8080``), or a warehouse, for which no service is
            needed: a path, with the catalog as a SQLite file in it, or a URL such as ``s3://bucket/folder``, with the
            catalog in `database`. A warehouse that does not exist is empty, and `Store.create_database` creates it.
        token: Is sent to a service that needs one.
        database: For a warehouse: the URL of another catalog database than the SQLite file.
        options: Defaults of options for tables that are created with this store, each as
            ``table-storage.<option>``, such as ``{"table-storage.log.system": "kafka"}``.
        metrics: Takes what is measured of the tables' writes, readers and logs (tablestore/METRICS.md).
        storage_options: How to reach S3: ``endpoint``, ``region``, ``path-style``, ``profile``, ``anonymous``. What is
            missing is taken from the catalog, the environment and the profile. Credentials are never options.
        brokers: For a warehouse: Kafka's brokers (``host:port,…``) for the logs of tables that are created and name
            none. In a store of objects a table has a log by default if brokers are known: there its log is in Kafka.
        commits: For a new warehouse: ``catalog`` if its store has no conditional writes, so that the catalog's database
            keeps concurrent commits apart; else ``store``. Later None takes what was decided then.

    Raises:
        InvalidRequest: `target` is neither of them, an option does not exist, or a warehouse that is not on a local
            disk has no `database` (``database-needed``); ``commits-fixed``.
        Unavailable: the service or the warehouse does not answer.
    """
    target = fspath(target)
    if not is_service(target):
        target = warehouse_location(target)  # Spark's planner is another process, perhaps in another folder
    own, stored = (None if given is None else dict(given) for given in (options, storage_options))
    address = Address(target, token, database, own, stored, brokers, commits)
    return Store(address, system_ambient(), metrics or NO_METER)


@checks_arguments()
class Store(StoreTables, Closing):
    """Databases, tables and views of one catalog. Close it, or use it in a ``with``."""

    def __init__(self, address: Address, ambient: Ambient, meter: Meter = NO_METER) -> None:
        self._address = address
        self._defaults, storages = table_defaults(address.options or {}), Storages(address.storage_options)
        self._catalog = address.open_catalog()
        self._ambient = ambient
        self._tables = OpenTables(self._catalog, storages, ambient, meter)

    def __repr__(self) -> str:
        return f"Store({self.target!r})"

    def __reduce__(self) -> tuple[type[Store], tuple[Address, Ambient]]:
        """Pickles the arguments of `connect`, but for `metrics`: another process connects for itself."""
        return type(self), (self._address, self._ambient)

    @property
    def target(self) -> str:
        """The URL of the catalog service, or the warehouse."""
        return self._address.target

    @property
    def token(self) -> str | None:
        """The token that is sent to the service."""
        return self._address.token

    def create_database(self, name: str, if_not_exists: bool = False) -> None:
        """Creates a database. `AlreadyExists` unless `if_not_exists`; `InvalidRequest` for a bad name."""
        self._catalog.create_database(name, if_not_exists=if_not_exists)

    def drop_database(self, name: str, if_exists: bool = False, cascade: bool = False) -> None:
        """Drops a database. If it has tables, `cascade` is needed, and drops them."""
        self._catalog.drop_database(name, if_exists=if_exists, cascade=cascade)

    def list_databases(self) -> list[str]:
        """Lists the names of all databases, sorted."""
        return self._catalog.list_databases()

    def load(  # noqa: PLR0913  # what files can be is its arguments
        self,
        files: str | PathLike[str] | Sequence[str | PathLike[str]],
        name: str,
        *,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        columns: str | None = None,
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
        delimiter: str | None = None,
        null: str | None = None,
        encoding: str | None = None,
        timestamp_format: str | Sequence[str] = (),
        observe: Observe | None = None,
    ) -> Table:
        """Writes files into a table as one commit, and creates table and database if there is none (docs/tables.md).

        Args:
            files: Paths of files of CSV, JSON or Parquet on this machine, or patterns such as ``"sales/*.csv"``.
            name: ``database.table``. If it exists its columns hold, and the rows are upserts if it has a primary key.
            primary_key: Of a new table, as are the next ones.
            partition_by: Partition columns.
            columns: A SQL list of columns that shall have another type than what the files' values say.
            options: The table's options.
            comment: Free text.
            delimiter: Of CSV, as are the next ones. Default: by its first lines.
            null: How nulls are written; default: as nothing.
            encoding: Such as ``"latin-1"``; default: UTF-8, or by its first bytes.
            timestamp_format: How days and times are written besides ISO 8601, such as ``"%d.%m.%Y"``.
            observe: Takes how far the load is: as for `Table.write`, and before that the rows read for a new table.

        Raises:
            InvalidRequest: ``bad-file``, ``files-differ``, or as `create_table` and `Table.write`. Nothing was written.
            AlreadyExists: ``table-exists``: with another key, other partition columns, or others than `columns`.
        """
        new = NewTable(primary_key, partition_by, options or {}, comment, columns)
        times = [timestamp_format] if isinstance(timestamp_format, str) else timestamp_format
        style = csv_style(delimiter, null, encoding, times)
        found = [RowFile.of(path, style) for path in files_of(files)]
        return plan_load(self, name, found, new, observe).run(observe)[0]

    def list_views(self, database: str) -> list[str]:
        """Lists the names of a database's views, sorted. `NotFound` if there is no such database."""
        return self._catalog.list_views(database)

    def view(self, name: str) -> ViewInfo:
        """Returns a view's query and what belongs to it. `NotFound` (``view-not-found``) if there is none."""
        return self._catalog.get_view(*split(name))

    def create_view(
        self,
        name: str,
        query: str,
        *,
        columns: str,
        context: Mapping[str, Any] | None = None,
        properties: Mapping[str, str] | None = None,
        comment: str | None = None,
        or_replace: bool = False,
    ) -> ViewInfo:
        """Creates a view as an engine describes it; users write ``CREATE VIEW`` in SQL, which finds out its columns.

        Args:
            name: ``database.view``.
            query: The text of its query.
            columns: Its columns as the engine writes them; Spark writes a ``StructType`` as JSON.
            context: What the engine needs to understand the text as it was meant.
            properties: Its properties.
            comment: Free text.
            or_replace: Replaces an existing view of that name.

        Raises:
            InvalidRequest: ``bad-name``, ``empty-query``, ``too-long``, ``bad-text``.
            NotFound: ``database-not-found``.
            AlreadyExists: ``table-exists``.
        """
        database, short = split(name)
        request = CreateView(
            name=short,
            query=query,
            columns=columns,
            context=dict(context or {}),
            properties=dict(properties or {}),
            comment=comment,
        )
        return self._catalog.create_view(database, request, or_replace=or_replace)

    def rename_view(self, name: str, new_name: str) -> ViewInfo:
        """Gives a view another name in its database; raises as `rename_table`."""
        return self._catalog.rename_view(*in_one_database(name, new_name))

    def drop_view(self, name: str, if_exists: bool = False) -> None:
        """Drops a view. What it reads stays."""
        self._catalog.drop_view(*split(name), if_exists=if_exists)

    def ingest(
        self,
        topic: str,
        into: str,
        *,
        servers: str,
        columns: pa.Schema | Schema | str | None = None,
        primary_key: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        source_options: Mapping[str, str] | None = None,
    ) -> Ingestion:
        """Ingests a topic that Debezium writes into a table, or continues where it stopped (CONNECTORS.md section 7).

        Columns are taken from the schema in the messages, and the primary key from their keys. Later columns are added.
        Changes are committed together with the topic's offsets, so a managed table has each change once.

            with tablestore.connect("warehouse") as store:
                ingestion = store.ingest("cdc.shop.orders", "shop.orders", servers="localhost:9092")
                ingestion.copy()                          # what is there
                for taken in ingestion.follow(): ...      # what comes

        Args:
            topic: Its messages are Debezium's, as JSON, with or without a schema in them.
            into: ``database.table``: a managed table with a primary key, or an upsert-kafka table. It is created if it
                does not exist.
            servers: The topic's brokers.
            columns: The table's columns, if the messages have no schema, or if the table shall have only these: then
                none are added later. Pass them each time.
            primary_key: The key's columns, if the messages' keys do not contain them.
            options: Options of the table, if it is created. With ``{"connector": "upsert-kafka", "topic": …}`` it is a
                compacted topic, by default in JSON and with as many partitions as the source.
            source_options: Options ``properties.*`` and ``scan.*`` of the topic (log/connector/CONNECTORS.md).

        Raises:
            NotFound: ``topic-not-found``, or there is no such database.
            InvalidRequest: ``no-schema``, ``no-primary-key``, ``empty-topic``, ``other-table``, or as `create_table`.
            Unavailable: the brokers do not answer.
        """
        from tablestore.ingesting.beginning import IngestOptions, begin  # it imports the formats of messages

        key, own, read = tuple(primary_key), options or {}, source_options or {}
        return begin(self, IngestOptions(topic, into, servers, columns, key, own, read), self._ambient)

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
        """Creates the join of two tables as a table, which refreshes keep up to date, or opens it (docs/views.md).

            view = store.maintain_join("shop.orders_of_planets", left="shop.orders", right="shop.planets",
                                       on="planet_id", kind="left", select=["l.id", "l.amount", "r.name AS planet"])
            view.refresh()

        Args:
            into: The name of the view's table; its primary key is that of the left table.
            left: A managed table with a primary key; or a table of events without one: then rows are only added to the
                result, for the events that were inserted since the last refresh.
            right: Another one, or the same. With ``kind="inner"`` the table of events may be here.
            on: The columns of the left table that equal the primary key of the right table, in the order of that key;
                of a table of events always those of the events.
            kind: ``inner``, or ``left``: rows of the left table without a row of the right one are in the result, too.
            select: The columns of the result, as in a SELECT, where ``l`` and ``r`` are the tables. None: all columns
                of the left table, and those of the right one but for its key.
            at: A column of the events with a time: each is joined with the version that the other table had then. None:
                with the version that is the newest one at the refresh.
            options: Options of the view's table.

        Returns:
            The view. Nothing was written to it yet if it is new.

        Raises:
            InvalidRequest: ``bad-join``: columns or types that do not fit. Nothing was created.
            NotFound: there is no such table or column.
            AlreadyExists: ``table-exists``: another table or view has the name.
        """
        from tablestore.views.creation import AskedJoin, begin_join  # loads sqlglot, for which others need not wait

        return begin_join(self, AskedJoin(into, left, right, on, kind, select, options or {}, at))

    def create_materialized_view(
        self,
        name: str,
        query: str,
        *,
        primary_key: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
    ) -> View:
        """Creates a table that refreshes keep equal to a query (docs/views.md).

            view = store.create_materialized_view(
                "shop.sums",
                "SELECT planet, sum(amount) AS amount FROM shop.orders WHERE planet IS NOT NULL GROUP BY planet",
            )
            view.refresh()

        Its rows are computed in this process. Queries of which it is not known to have the same result here as in Spark
        are for `tablestore.spark.SparkStore.create_materialized_view`.

        Args:
            name: ``database.table``.
            query: A query in Spark's SQL over tables of this store. A name without a database is in that of the view.
            primary_key: The columns of its key. Of a view that is refreshed incrementally it follows from the query;
                given, it says that a group has no nulls. None: a view that is computed as a whole has no key.
            options: Options of the view's table. With ``{"view.incremental": "required"}`` a query is refused that can
                only be computed as a whole.
            comment: Free text.

        Returns:
            The view. Nothing was written to it yet.

        Raises:
            Unsupported: ``needs-spark``; ``view-query``: its result does not follow from the rows;
                ``view-not-incremental``.
            InvalidRequest: ``view-query``: the text is no query; ``view-key``: another key follows from it;
                ``view-cycle``.
            NotFound: there is no such table.
            AlreadyExists: ``table-exists``: a table or a view has the name.
        """
        from tablestore.views.creation import created_here

        return created_here(self, name, query, primary_key, options or {}, comment)

    def maintained_view(self, name: str) -> View:
        """Opens a view; `InvalidRequest` (``no-view``) if the table is none."""
        from tablestore.views.opening import open_view

        return open_view(self, name)

    def refresh(self, *names: str, rebuild: bool = False) -> list[tuple[View, Refreshed]]:
        """Refreshes views, and before them all views that they read, each behind those that it reads itself.

        Args:
            names: The views, each as ``database.table``.
            rebuild: Whether all rows of these views are computed again.

        Returns:
            The views that had something new, with the results of their refreshes, in their order.

        Raises:
            InvalidRequest: ``no-view``: a table that is written to; ``view-cycle``. Or as a view's `refresh`: the views
                that were refreshed before stay so.
            Unsupported: ``needs-spark``.
        """
        from tablestore.views.refreshing import refresh_views

        return refresh_views(self, names, None, rebuild=rebuild)

    def examine(self, name: str, *, observe: Observe | None = None) -> Report:
        """Checks a table, its log, and of a maintained view also that its rows are the result of the query.

        It finds what is damaged even if the table cannot be opened for that. Errors are those of `table`, and
        `Unavailable` if the table's storage does not answer. `observe` takes how many files were read.
        """
        from tablestore.doctor import examine_named  # here, since it loads views

        return examine_named(self, name, observe=observe)

    def examine_all(self, database: str | None = None) -> Iterator[Examined]:
        """Checks each managed table of the catalog, or of one database, as `examine` does.

        It goes on behind a table that cannot be examined: its result has the error. Raises `NotFound` for a database
        that does not exist.
        """
        from tablestore.doctor import examine_all  # likewise

        return examine_all(self, database)

    def table_id(self, name: str) -> str:
        """Reads a table's id from the catalog without opening the table. `NotFound` if there is no such table."""
        return self._catalog.get_table(*split(name)).table_id

    def register(self, place: str | PathLike[str] | None = None, name: str | None = None) -> list[Registration]:
        """Enters tables whose files are in the warehouse, such as after the loss of its database (docs/restoring.md).

        Args and errors are those of `catalog_service.client.Catalog.register`. It can be repeated.
        """
        return self._catalog.register(None if place is None else fspath(place), name)

    def close(self) -> None:
        """Closes connections; before, it waits some seconds for checkpoints that are being written beside commits."""
        finish()
        self._catalog.close()
