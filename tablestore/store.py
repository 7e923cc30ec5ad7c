"""`connect` and `Store`: the entry point without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from catalog_service.client import is_service, warehouse_location
from catalog_service.wire.registrations import Registration
from catalog_service.wire.tables import CreateTable
from catalog_service.wire.views import CreateView, ViewInfo
from filestore.ambient import Ambient, system_ambient
from filestore.arguments import checked, checks_arguments
from filestore.contexts import Closing
from filestore.errors import AlreadyExists, NotFound, Unsupported
from filestore.metrics.meter import NO_METER, Meter
from filestore.model.schema import Schema
from filestore.model.table_columns import TableColumns
from filestore.storage.locations import Storages
from managed_table.opened import OpenedTable
from tablestore.address import Address
from tablestore.defaults import table_defaults, with_defaults
from tablestore.open_tables import OpenTables
from tablestore.table import Table
from tablestore.table_names import in_one_database, split

if TYPE_CHECKING:
    from filestore.checks.report import Report
    from filestore.metrics.registry import Metrics
    from tablestore.doctor import Examined
    from tablestore.ingesting.ingestion import Ingestion
    from tablestore.kafka_table import KafkaTable
    from tablestore.views.maintained import MaintainedJoin

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
class Store(Closing):
    """Databases and tables of one catalog. Close it, or use it in a ``with``."""

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

    def list_tables(self, database: str) -> list[str]:
        """Lists the names of a database's tables, sorted. `NotFound` if there is no such database."""
        return self._catalog.list_tables(database)

    def create_table(
        self,
        name: str,
        schema: pa.Schema | Schema | str,
        *,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
        if_not_exists: bool = False,
    ) -> Table | KafkaTable:
        """Creates a table: catalog entry, Delta table at version 0, and log. With a connector it has only the entry.

        Args:
            name: ``database.table``.
            schema: An Arrow schema, or a SQL column list such as ``"id BIGINT, name STRING"``, which may contain
                ``PRIMARY KEY (id) NOT ENFORCED``.
            primary_key: Key columns: writes become upserts. They are NOT NULL, whether or not the schema says so.
            partition_by: Partition columns; with a primary key they must be part of it.
            options: See the options reference. They take precedence over those of `connect`. With ``connector`` =
                ``kafka`` or ``upsert-kafka`` the table is a Kafka topic (log/connector/CONNECTORS.md).
            comment: Free text.
            if_not_exists: Returns an existing table of that name instead of raising `AlreadyExists`.

        Raises:
            InvalidRequest: a bad name, type, key or option. Nothing was created.
        """
        request = self._request(name, schema, primary_key, partition_by, options, comment)
        return self._tables.open(self._catalog.create_table(split(name)[0], request, if_not_exists=if_not_exists))

    @contextmanager
    def staged_table(
        self,
        name: str,
        schema: pa.Schema | Schema | str,
        *,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
        replace: bool = False,
    ) -> Iterator[Table | KafkaTable]:
        """Creates a table that others see when the block ends, with all that was written in it.

        If the block raises an error nothing is left, and a table of that name stays as it is.

            with store.staged_table("shop.totals", "id BIGINT, total DOUBLE", replace=True) as table:
                table.write(rows)

        Args:
            name: ``database.table``.
            schema: As in `create_table`, as are the other arguments.
            primary_key: Key columns.
            partition_by: Partition columns.
            options: The table's options.
            comment: Free text.
            replace: Whether a table of that name is dropped in the moment in which this one appears. Its followers end
                with `NotFound`.

        Raises:
            AlreadyExists: ``table-exists``: a view has the name, or a table has it and `replace` is not set.
            InvalidRequest, NotFound, Unavailable: as `create_table`.
        """
        if not replace:
            self._require_free(name)
        table = self.stage_table(name, schema, primary_key, partition_by, options, comment)
        staged = table.identifier
        try:
            yield table
            self.publish_table(staged, name, replace=replace)
        except BaseException:
            self.drop_table(staged, if_exists=True)
            raise

    def stage_table(
        self,
        name: str,
        schema: pa.Schema | Schema | str,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
    ) -> Table | KafkaTable:
        """Creates a table with a hidden name, which `publish_table` or `drop_table` takes.

        Prefer `staged_table`: a table that is neither published nor dropped stays for a day.
        """
        request = self._request(name, schema, primary_key, partition_by, options, comment)
        return self._tables.open(self._catalog.create_table(split(name)[0], request, staged=True))

    def publish_table(self, staged: str, name: str, *, replace: bool = False) -> Table | KafkaTable:
        """Gives a staged table its name; `AlreadyExists` (``table-exists``) if that is taken, unless `replace`."""
        return self._tables.open(self._catalog.rename_table(*in_one_database(staged, name), replace=replace))

    def rename_table(self, name: str, new_name: str) -> Table | KafkaTable:
        """Gives a table another name in its database, and opens it. Its files and its log stay where they are.

        Whoever has opened the table goes on with it, and the name in his messages is the old one.

        Raises:
            InvalidRequest: ``bad-name``; ``other-database``: the new name is in another database.
            NotFound: there is no such table.
            AlreadyExists: ``table-exists``: a table or a view has the new name.
        """
        return self._tables.open(self._catalog.rename_table(*in_one_database(name, new_name)))

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

    def table(self, name: str) -> Table | KafkaTable:
        """Opens a table. `NotFound` if there is none."""
        return self._tables.open(self._catalog.get_table(*split(name)))

    def managed_table(self, name: str) -> Table:
        """Opens a table that has files and versions.

        Raises:
            NotFound: there is none.
            Unsupported: ``connector-table``: it is a Kafka topic.
        """
        return Table(self.unread_table(name))

    def unread_table(self, name: str) -> OpenedTable:
        """Returns what a catalog says of a managed table, of which nothing need be readable. Errors: `managed_table`'s.

        Its attributes read it, and raise what is wrong then. Nearly all want `managed_table`.
        """
        info = self._catalog.get_table(*split(name))
        declaration = info.declaration()
        if declaration is None:
            return self._tables.unread(info)
        raise Unsupported(
            f"table {name} has connector = {declaration.connector}: it is the topic "
            f"{declaration.topic!r}, without files and versions, and this is for managed tables. Read it with "
            "scan or follow, and write it; in Spark with what SparkStore.table gives",
            code="connector-table",
        )

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
        kind: str = "inner",
        select: str | Sequence[str] | None = None,
        at: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> MaintainedJoin:
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

    def maintained_join(self, name: str) -> MaintainedJoin:
        """Opens a view that `maintain_join` created; `InvalidRequest` (``no-view``) if the table is none."""
        from tablestore.views.creation import open_join

        return open_join(self, name)

    def examine(self, name: str) -> Report:
        """Checks a table, its log, and of a maintained view also that its rows are the result of the query.

        It finds what is damaged even if the table cannot be opened for that. Errors are those of `managed_table`, and
        `Unavailable` if the table's storage does not answer.
        """
        from tablestore.doctor import examine_named  # here, since it loads views

        return examine_named(self, name)

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

    def drop_table(self, name: str, if_exists: bool = False) -> None:
        """Drops a table with its files and its log. A topic that existed before stays, as does a connector's topic."""
        self._catalog.drop_table(*split(name), if_exists=if_exists)

    def close(self) -> None:
        """Closes connections."""
        self._catalog.close()

    def _request(
        self,
        name: str,
        schema: pa.Schema | Schema | str,
        primary_key: Sequence[str],
        partition_by: Sequence[str],
        options: Mapping[str, str] | None,
        comment: str | None,
    ) -> CreateTable:
        return CreateTable.of(
            split(name)[1],
            _schema(schema, primary_key),
            primary_key=primary_key,
            partition_by=partition_by,
            options=with_defaults(self._defaults, options or {}, keyed=bool(primary_key)),
            comment=comment,
        )

    def _require_free(self, name: str) -> None:
        """Refuses a taken name before anything is written."""
        try:
            self._catalog.get_table(*split(name))
        except NotFound as error:
            if error.code == "table-not-found":
                return
            if error.code != "is-view":
                raise
        raise AlreadyExists(
            f"there is a table or a view {name} already: choose another name, or pass replace=True", code="table-exists"
        )


def _schema(schema: pa.Schema | Schema | str, primary_key: Sequence[str]) -> Schema | TableColumns | str:
    if isinstance(schema, str):
        return schema
    parsed = TableColumns.from_arrow(schema) if isinstance(schema, pa.Schema) else schema
    return parsed.required(primary_key)
