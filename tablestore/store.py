"""`connect` and `Store`: the door without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from catalog_service.client import Catalog, local_path
from catalog_service.client import connect as connect_catalog
from catalog_service.wire import CreateTable, TableInfo
from filestore.ambient import Ambient, system_ambient
from filestore.arguments import checked, checks_arguments
from filestore.errors import InvalidRequest, Unsupported
from filestore.metrics.meter import NO_METER, Meter
from filestore.model.schema import Schema
from filestore.model.table_columns import TableColumns
from filestore.storage import LocalStorage
from log.connectors.options import CONNECTOR
from tablestore.defaults import table_defaults
from tablestore.handle import TableHandle
from tablestore.table import Table

if TYPE_CHECKING:
    from filestore.metrics.registry import Metrics
    from tablestore.ingesting.ingestion import Ingestion
    from tablestore.kafka_table import KafkaTable

__all__ = ["Store", "connect"]


@checked()
def connect(
    target: str | PathLike[str],
    token: str | None = None,
    *,
    database: str | None = None,
    options: Mapping[str, str] | None = None,
    metrics: Metrics | None = None,
) -> Store:
    """Connects to a table store.

    Args:
        target: The URL of a catalog service (``http://127.0.0.1:8080``), or the path of a warehouse: then the
            catalog is a SQLite file in it and no service is needed. One that is not there is empty, and made by
            `Store.create_database`.
        token: Sent to a service that asks for one.
        database: For a warehouse: the URL of another catalog database than the SQLite file.
        options: Options of the tables that are made here and do not say otherwise, each as
            ``table-storage.<option>``, such as ``{"table-storage.log.system": "kafka"}``.
        metrics: Takes what is measured of the tables' writes, readers and logs (tablestore/METRICS.md).

    Raises:
        InvalidRequest: `target` is neither, or an option is none.
        Unavailable: the service or the warehouse does not answer.
    """
    target = fspath(target)
    if "://" not in target:
        target = local_path(target)  # Spark's planner is another process, perhaps in another folder
    defaults = table_defaults(options or {})
    catalog = connect_catalog(target, token=token, database=database)
    return Store(target, catalog, system_ambient(), token, defaults, metrics or NO_METER)


@checks_arguments()
class Store:
    """Databases and tables of one catalog. Close it, or use it in a ``with``."""

    def __init__(
        self,
        target: str,
        catalog: Catalog,
        ambient: Ambient,
        token: str | None = None,
        defaults: Mapping[str, str] | None = None,
        meter: Meter = NO_METER,
    ) -> None:
        self._meter = meter
        self._defaults = dict(defaults or {})
        self.target = target
        self.token = token
        self._catalog = catalog
        self._ambient = ambient

    def __repr__(self) -> str:
        return f"Store({self.target!r})"

    def create_database(self, name: str, if_not_exists: bool = False) -> None:
        """Makes a database. `AlreadyExists` unless `if_not_exists`; `InvalidRequest` for a bad name."""
        self._catalog.create_database(name, if_not_exists=if_not_exists)

    def drop_database(self, name: str, if_exists: bool = False, cascade: bool = False) -> None:
        """Drops a database; one with tables only with `cascade`, which drops them."""
        self._catalog.drop_database(name, if_exists=if_exists, cascade=cascade)

    def list_databases(self) -> list[str]:
        """Names of all databases, sorted."""
        return self._catalog.list_databases()

    def list_tables(self, database: str) -> list[str]:
        """Names of a database's tables, sorted. `NotFound` if there is no such database."""
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
        """Makes a table: catalog entry, Delta table at version 0, and log. With a connector: the entry alone.

        Args:
            name: ``database.table``.
            schema: Arrow, or a SQL column list such as ``"id BIGINT, name STRING"``, in which ``PRIMARY KEY (id) NOT
                ENFORCED`` may stand, too.
            primary_key: Key columns: writes become upserts. They are NOT NULL, whether or not the schema says so.
            partition_by: Partition columns; with a primary key they must be part of it.
            options: See the options reference. They come before those that `connect` was given. With ``connector`` =
                ``kafka`` or ``upsert-kafka`` the table is a Kafka topic (log/CONNECTORS.md).
            comment: Free text.
            if_not_exists: An existing table of that name is given instead of `AlreadyExists`.

        Raises:
            InvalidRequest: a bad name, type, key or option. Nothing was made.
        """
        database, table = _split(name)
        request = CreateTable.of(
            table,
            _schema(schema, primary_key),
            primary_key=primary_key,
            partition_by=partition_by,
            options=({} if CONNECTOR in (options or {}) else self._defaults) | dict(options or {}),
            comment=comment,
        )
        return self._open(self._catalog.create_table(database, request, if_not_exists=if_not_exists))

    def table(self, name: str) -> Table | KafkaTable:
        """Opens a table. `NotFound` if there is none."""
        return self._open(self._catalog.get_table(*_split(name)))

    def managed_table(self, name: str) -> Table:
        """Opens a table that has files and versions.

        Raises:
            NotFound: there is none.
            Unsupported: ``connector-table``: it is a Kafka topic.
        """
        table = self.table(name)
        if isinstance(table, Table):
            return table
        raise Unsupported(
            f"table {name} has connector = {table.declaration.connector}: it is the topic "
            f"{table.declaration.topic!r}, without files and versions, and this is for managed tables. Read it with "
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
        """Makes a table of a topic that Debezium writes, or goes on where it stopped (log/CONNECTORS.md section 7).

        Columns come from the schema in the messages, and the primary key from their keys. Columns that come later are
        added. What was taken is committed together with the topic's offsets, so a managed table has each change once.

            with tablestore.connect("warehouse") as store:
                ingestion = store.ingest("cdc.shop.orders", "shop.orders", servers="localhost:9092")
                ingestion.copy()                          # what is there
                for taken in ingestion.follow(): ...      # what comes

        Args:
            topic: Its messages are Debezium's, as JSON, with or without a schema in them.
            into: ``database.table``: a managed table with a primary key, or an upsert-kafka table. It is made if it is
                not there.
            servers: The topic's brokers.
            columns: The table's columns, where the messages have no schema, or to have only these: then none are added
                later. Give them each time.
            primary_key: Where the messages' keys do not say it.
            options: Of the table, if it is made. With ``{"connector": "upsert-kafka", "topic": …}`` it is a compacted
                topic, as JSON and with as many partitions as the source unless they say otherwise.
            source_options: ``properties.*`` and ``scan.*`` of the topic (log/CONNECTORS.md).

        Raises:
            NotFound: ``topic-not-found``, or there is no such database.
            InvalidRequest: ``no-schema``, ``no-primary-key``, ``empty-topic``, ``other-table``, or as `create_table`.
            Unavailable: the brokers do not answer.
        """
        from tablestore.ingesting.beginning import Asked, begin  # brings the formats of messages

        key, own, read = tuple(primary_key), options or {}, source_options or {}
        return begin(self, Asked(topic, into, servers, columns, key, own, read), self._ambient)

    def table_id(self, name: str) -> str:
        """A table's id by the catalog alone: nothing is opened. `NotFound` if there is no such table."""
        return self._catalog.get_table(*_split(name)).table_id

    def drop_table(self, name: str, if_exists: bool = False) -> None:
        """Drops a table with its files and its log. A topic that was there before stays, as does one of a connector."""
        self._catalog.drop_table(*_split(name), if_exists=if_exists)

    def close(self) -> None:
        """Lets go of connections."""
        self._catalog.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, info: TableInfo) -> Table | KafkaTable:
        declaration = info.declaration()
        if declaration is not None:
            from tablestore.kafka_table import KafkaTable  # likewise

            return KafkaTable(info.database, info.name, info.table_id, declaration, self._ambient)
        assert info.location is not None, "a managed table without files"
        where = info.database, info.name, info.table_id, info.location
        return Table(TableHandle(*where, LocalStorage(), self._ambient, self._meter))


def _split(name: str) -> tuple[str, str]:
    database, dot, table = name.partition(".")
    if not dot or not database or not table or "." in table:
        raise InvalidRequest(f"{name!r} is not a table name: write database.table", code="bad-name")
    return database, table


def _schema(schema: pa.Schema | Schema | str, primary_key: Sequence[str]) -> Schema | TableColumns | str:
    if isinstance(schema, str):
        return schema
    parsed = TableColumns.from_arrow(schema) if isinstance(schema, pa.Schema) else schema
    return parsed.required(primary_key)
