"""`StoreTables`: creates, opens, renames and drops the tables of a store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from catalog_service.wire.tables import CreateTable
from filestore.arguments import checks_arguments
from filestore.errors import AlreadyExists, InvalidRequest, NotFound, Unsupported
from filestore.model.schema import Schema
from filestore.model.table_columns import TableColumns
from log.connector.options import CONNECTOR
from managed_table.opened import OpenedTable
from tablestore.defaults import with_defaults
from tablestore.incoming.columns import Like, columns_like
from tablestore.open_tables import OpenTables
from tablestore.table import Table
from tablestore.table_names import in_one_database, split

if TYPE_CHECKING:
    from catalog_service.client import Catalog
    from log.connector.declaration import KafkaDeclaration
    from tablestore.kafka_table import KafkaTable

__all__ = ["StoreTables"]


@checks_arguments("like")
class StoreTables:
    """The tables of a store: managed ones, with files and versions, and Kafka topics with a name in the catalog."""

    _catalog: Catalog
    _tables: OpenTables
    _defaults: Mapping[str, str]

    def list_tables(self, database: str) -> list[str]:
        """Lists the names of a database's tables, sorted. `NotFound` if there is no such database."""
        return self._catalog.list_tables(database)

    def table(self, name: str) -> Table:
        """Opens a managed table, which has files and versions.

        Raises:
            NotFound: there is none.
            Unsupported: ``connector-table``: it is a Kafka topic.
        """
        return Table(self.unread_table(name))

    def kafka_table(self, name: str) -> KafkaTable:
        """Opens a table that is a Kafka topic.

        Raises:
            NotFound: there is none.
            Unsupported: ``managed-table``: it is not a Kafka topic.
        """
        return _topic(name, self.any_table(name))

    def any_table(self, name: str) -> Table | KafkaTable:
        """Opens a table of either kind. `NotFound` if there is none."""
        return self._tables.open(self._catalog.get_table(*split(name)))

    def unread_table(self, name: str) -> OpenedTable:
        """Returns what a catalog says of a managed table, of which nothing need be readable. Errors: `table`'s.

        Its attributes read it, and raise what is wrong then. Nearly all want `table`.
        """
        info = self._catalog.get_table(*split(name))
        declaration = info.declaration()
        if declaration is None:
            return self._tables.unread(info)
        raise _no_files(name, declaration)

    def create_table(  # noqa: PLR0913  # what a table has is its arguments
        self,
        name: str,
        schema: pa.Schema | Schema | str | None = None,
        *,
        like: Like | None = None,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
        if_not_exists: bool = False,
    ) -> Table:
        """Creates a managed table: catalog entry, Delta table at version 0, and log.

        Args:
            name: ``database.table``.
            schema: An Arrow schema, or a SQL column list such as ``"id BIGINT, name STRING"``, which may contain
                ``PRIMARY KEY (id) NOT ENFORCED``.
            like: Instead of it rows as `Table.write` takes them, which are not written, or an Arrow schema: the table
                has their columns. Types that Delta lacks become the next wider one, as BIGINT for UInt32.
            primary_key: Key columns: writes become upserts. They are NOT NULL, whether or not the schema says so.
            partition_by: Partition columns; with a primary key they must be part of it.
            options: See the options reference. They take precedence over those of `connect`.
            comment: Free text.
            if_not_exists: Returns an existing table of that name instead of raising `AlreadyExists`.

        Raises:
            InvalidRequest: a bad name, type, key or option. Nothing was created.
            Unsupported: ``connector-table``: a Kafka topic, which `create_kafka_table` declares; or, with
                `if_not_exists`, the table is one.
        """
        self._require_managed(name, options)
        found = self.create_any_table(
            name,
            _one_of(schema, like),
            primary_key=primary_key,
            partition_by=partition_by,
            options=options,
            comment=comment,
            if_not_exists=if_not_exists,
        )
        return _managed(name, found)

    def create_kafka_table(
        self,
        name: str,
        schema: pa.Schema | Schema | str,
        *,
        primary_key: Sequence[str] = (),
        options: Mapping[str, str],
        comment: str | None = None,
        if_not_exists: bool = False,
    ) -> KafkaTable:
        """Declares a table that is a Kafka topic: it has an entry in the catalog, and no files.

        Args:
            name: ``database.table``.
            schema: As in `create_table`; a SQL column list may have ``METADATA`` columns.
            primary_key: Key columns, which ``upsert-kafka`` needs.
            options: ``connector`` = ``kafka`` or ``upsert-kafka`` and its options (log/connector/CONNECTORS.md).
            comment: Free text.
            if_not_exists: Returns an existing table of that name instead of raising `AlreadyExists`.

        Raises:
            InvalidRequest: a bad name, type, key or option. Nothing was created.
            Unsupported: ``managed-table``: there is no ``connector``; or, with `if_not_exists`, the table is managed.
        """
        if CONNECTOR not in options:
            raise _no_topic(name)
        found = self.create_any_table(
            name, schema, primary_key=primary_key, options=options, comment=comment, if_not_exists=if_not_exists
        )
        return _topic(name, found)

    def create_any_table(
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
        """Creates a table of the kind that its options say, for callers that pass on what others ask for."""
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
    ) -> Iterator[Table]:
        """Creates a managed table that others see when the block ends, with all that was written in it.

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
        self._require_managed(name, options)
        if not replace:
            self._require_free(name)
        table = _managed(name, self.stage_table(name, schema, primary_key, partition_by, options, comment))
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

    def publish_table(self, staged: str, name: str, *, replace: bool = False) -> None:
        """Gives a staged table its name; `AlreadyExists` (``table-exists``) if that is taken, unless `replace`."""
        self._catalog.rename_table(*in_one_database(staged, name), replace=replace)

    def rename_table(self, name: str, new_name: str) -> None:
        """Gives a table another name in its database. Its files and its log stay where they are.

        Whoever has opened the table goes on with it, and the name in his messages is the old one.

        Raises:
            InvalidRequest: ``bad-name``; ``other-database``: the new name is in another database.
            NotFound: there is no such table.
            AlreadyExists: ``table-exists``: a table or a view has the new name.
        """
        self._catalog.rename_table(*in_one_database(name, new_name))

    def drop_table(self, name: str, if_exists: bool = False) -> None:
        """Drops a table with its files and its log. A topic that existed before stays, as does a connector's topic."""
        self._catalog.drop_table(*split(name), if_exists=if_exists)

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

    def _require_managed(self, name: str, options: Mapping[str, str] | None) -> None:
        if CONNECTOR in (options or {}):
            raise Unsupported(
                f"{name} has the option {CONNECTOR}, so it is a Kafka topic: declare it with create_kafka_table",
                code="connector-table",
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


def _one_of(schema: pa.Schema | Schema | str | None, like: Like | None) -> pa.Schema | Schema | str:
    if schema is not None and like is None:
        return schema
    if schema is None and like is not None:
        return columns_like(like)
    raise InvalidRequest("a table has the columns of schema or of like: pass one of them", code="no-columns")


def _managed(name: str, table: Table | KafkaTable) -> Table:
    if isinstance(table, Table):
        return table
    raise _no_files(name, table.declaration)


def _topic(name: str, table: Table | KafkaTable) -> KafkaTable:
    if isinstance(table, Table):
        raise _no_topic(name)
    return table


def _no_files(name: str, declaration: KafkaDeclaration) -> Unsupported:
    return Unsupported(
        f"table {name} has connector = {declaration.connector}: it is the topic {declaration.topic!r}, without files "
        "and versions, and this is for managed tables. Open it with kafka_table, of Store or SparkStore, which reads "
        "and writes it",
        code="connector-table",
    )


def _no_topic(name: str) -> Unsupported:
    return Unsupported(
        f"table {name} has no connector: it is a managed table, which Store.table opens, and for which SparkStore has "
        "read, read_stream, write and write_stream",
        code="managed-table",
    )
