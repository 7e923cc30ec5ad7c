"""The use cases of the catalog: they check names and requests, and turn rows into answers. No HTTP here.

The HTTP routes use `CatalogService`, and the embedded catalog does in its own process.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

from sqlalchemy import Engine

from catalog_service.database.claims import ClaimRows
from catalog_service.database.name_errors import is_view, table_exists, table_not_found
from catalog_service.database.schema import State, TableEntry, TableRow
from catalog_service.model.names import fold_name, fold_table
from catalog_service.model.view_definition import ViewDefinition
from catalog_service.tables.lifecycle import Lifecycle
from catalog_service.use_cases import answers
from catalog_service.use_cases.broker_policy import BrokerPolicy, names_broker
from catalog_service.use_cases.definitions import definition_of, with_log
from catalog_service.use_cases.registering import Registering
from catalog_service.use_cases.views import Views
from catalog_service.wire import page_tokens
from catalog_service.wire.claims import ClaimRequest, NewestClaim, PublishRequest
from catalog_service.wire.databases import CreateDatabase, DatabaseInfo, DatabasePage, TablePage, TableSummary
from catalog_service.wire.leases import LeaseInfo, LeaseRequest
from catalog_service.wire.tables import AlterTable, CreateTable, SnapshotInfo, SnapshotPage, TableInfo
from filestore import layout
from filestore.delta.state import TableState
from filestore.errors import AlreadyExists, Conflict, Corrupt, InvalidRequest, NotFound
from filestore.model.bounds import check_comment
from filestore.model.change_text import parse_change
from filestore.model.changes import SetOption
from filestore.model.snapshot import Snapshot
from filestore.storage.schemes import is_local
from log.connector.declaration import KafkaDeclaration

__all__ = ["CatalogService"]


class CatalogService:
    """The use cases. Each method raises `Unavailable`, and changes nothing, if the catalog's database fails."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        engine: Engine,
        broker_policy: BrokerPolicy | None = None,
        storage_options: Mapping[str, str] | None = None,
        brokers: str | None = None,
    ) -> None:
        self._broker_policy = broker_policy
        self._brokers = brokers
        self._storage_options = dict(storage_options or {})
        self._lifecycle = lifecycle
        self._repository = lifecycle.repository
        self._claims = ClaimRows(engine)
        self._engine = engine
        # Whoever forgets a store does not close it. SQLite's connections want to be closed, which Python 3.13 says.
        weakref.finalize(self, engine.dispose).atexit = False  # a process that ends closes files by itself

    @property
    def views(self) -> Views:
        """The use cases of views."""
        return Views(self._lifecycle)

    @property
    def registering(self) -> Registering:
        """The use case of registering tables whose files are in the warehouse."""
        return Registering(self._lifecycle)

    @property
    def warehouse(self) -> str:
        """The folder or URL of the databases."""
        return self._lifecycle.warehouse

    @property
    def version(self) -> str:
        """The version of the installed package."""
        try:
            return version("lakehouse-tablestore")
        except PackageNotFoundError:  # the process runs from a checkout
            return "0+checkout"

    def close(self) -> None:
        """Closes the database's connections."""
        self._lifecycle.locks.close()
        self._engine.dispose()

    def check_locks(self) -> None:
        """Raises `Unsupported` (``database-pooling``) if a proxy before the database makes locks impossible."""
        self._lifecycle.locks.start()

    def check_ready(self) -> None:
        """Raises `Unavailable` if the database does not answer."""
        self._repository.ping()

    def asks_brokers(self, database: str, name: str | None = None) -> bool:
        """Returns whether changing or dropping a table, or a database with its tables, may have to wait for a broker.

        Raises:
            InvalidRequest: ``bad-name``.
        """
        folded = None if name is None else fold_table(name)
        return self._repository.asks_brokers(fold_name("database", database), folded)

    # ------------------------------------------------------------------------------------------ databases

    def create_database(self, request: CreateDatabase, *, if_not_exists: bool = False) -> tuple[DatabaseInfo, bool]:
        """Creates a database; returns it, and whether this call created it.

        Raises:
            InvalidRequest: ``bad-name``, ``too-long``, ``bad-path``.
            AlreadyExists: ``database-exists``, unless `if_not_exists`.
            Unsupported: ``not-exclusive``: the warehouse's store cannot keep concurrent commits apart.
        """
        name = fold_name("database", request.name)
        check_comment(f"database {name!r}", request.comment)
        row, created = self._lifecycle.create_database(name, request.comment)
        if not created and not if_not_exists:
            raise AlreadyExists(
                f"database {name!r} exists already: use it, or pass if_not_exists=true",
                code="database-exists",
            )
        return answers.database_info(row, self._database_location(name)), created

    def get_database(self, name: str) -> DatabaseInfo:
        """Returns a database; raises `NotFound` (``database-not-found``)."""
        name = fold_name("database", name)
        row = self._repository.database(name)
        if row is None or row.state is not State.ACTIVE:
            raise self._repository.no_database(name)
        return answers.database_info(row, self._database_location(name))

    def list_databases(self, page_size: int = page_tokens.PAGE_SIZE, page_token: str | None = None) -> DatabasePage:
        """Returns a page of databases by name; raises `InvalidRequest` (``bad-page-token``)."""
        after = page_tokens.decode_token("databases", page_token)
        rows = self._repository.databases(after, page_size + 1)
        page, token = page_tokens.cut(rows, page_size, "databases", lambda row: row.name)
        databases = [answers.database_info(row, self._database_location(row.name)) for row in page]
        return DatabasePage(databases=databases, next_page_token=token)

    def drop_database(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Drops a database.

        Raises:
            NotFound: ``database-not-found``, unless `if_exists`.
            Conflict: ``database-not-empty``, unless `cascade`: then its tables go with it.
        """
        name = fold_name("database", name)
        try:
            self._lifecycle.drop_database(name, cascade=cascade)
        except NotFound:
            if not if_exists:
                raise

    # ------------------------------------------------------------------------------------------ tables

    def create_table(
        self, database: str, request: CreateTable, *, if_not_exists: bool = False, staged: bool = False
    ) -> tuple[TableInfo, bool]:
        """Creates a table (version 0, and its log); returns it, and whether this call created it.

        Args:
            database: The name of its database.
            request: The table.
            if_not_exists: Whether a table of that name is returned as it is.
            staged: Whether nobody shall see it until `rename_table` publishes it. The answer has its hidden name.

        Raises:
            InvalidRequest: ``bad-name``, ``bad-path``, ``log-location``, and the codes of `definition_of`; with a
                connector ``topic-not-found``, ``topic-partitions``, ``log-settings``, ``log-not-authorized``.
            NotFound: ``database-not-found``.
            AlreadyExists: ``table-exists``, unless `if_not_exists`; ``location-not-empty``; ``log-exists``.
            Unavailable: the storage or the log's server does not answer; nothing is left.
        """
        database, name = fold_name("database", database), fold_name("table", request.name)
        definition = definition_of(self._with_log(request))
        if self._broker_policy is not None:
            self._broker_policy.check(definition)
        make = self._lifecycle.stage_table if staged else self._lifecycle.create_table
        creation = make(database, name, definition)
        if isinstance(creation.row.definition, ViewDefinition):
            raise table_exists(database, name)
        if not creation.created and not if_not_exists:
            raise AlreadyExists(
                f"table {name!r} exists already in database {database!r}: use it, or pass if_not_exists=true",
                code="table-exists",
            )
        return self._info(creation.row, creation.state, with_snapshot=True), creation.created

    def names_broker(self, request: CreateTable) -> bool:
        """Returns whether creating the table may have to wait for a broker."""
        return names_broker(self._with_log(request))

    def _with_log(self, request: CreateTable) -> CreateTable:
        local = is_local(self.warehouse)
        return with_log(
            request, local=local, brokers=self._brokers, leases=local or not self._lifecycle.commits.in_catalog
        )

    def get_table(self, database: str, name: str, *, with_snapshot: bool = True) -> TableInfo:
        """Returns a table in full.

        Args:
            database: The name of its database.
            name: Its name.
            with_snapshot: Whether to read the newest version from storage.

        Raises:
            NotFound: ``database-not-found``, ``table-not-found``.
            Corrupt: ``table-files-missing``, ``table-replaced``: the catalog has the table, but its files are missing.
        """
        return self._info(self._table(database, name), with_snapshot=with_snapshot)

    def alter_table(self, database: str, name: str, request: AlterTable) -> SnapshotInfo:
        """Changes a table's columns, comments and options in one commit.

        Raises:
            InvalidRequest: ``bad-change``, and the codes of `filestore.operations.alter.alter`. Nothing was changed.
            NotFound: ``database-not-found``, ``table-not-found``, ``unknown-column``.
            Unsupported: ``rewrite-needed``, ``pending-runs``: files would have to be rewritten or pending runs folded,
                which only a client does; ``connector-table``.
            Conflict: other changes of the table were faster in every attempt.
        """
        changes = [parse_change(text) for text in request.changes]
        row = self._table(database, name)
        self._state(row)  # raises an error of its own if the files are missing
        if self._broker_policy is not None:
            self._broker_policy.check_options({c.name: c.value for c in changes if isinstance(c, SetOption)})
        return answers.snapshot_info(self._lifecycle.steps.alter(self._lifecycle.identity(row), changes))

    def list_tables(
        self, database: str, page_size: int = page_tokens.PAGE_SIZE, page_token: str | None = None
    ) -> TablePage:
        """Returns a page of tables by name; raises `NotFound`, or `InvalidRequest` (``bad-page-token``)."""
        database = fold_name("database", database)
        scope = f"tables:{database}"
        rows = self._repository.tables(database, page_tokens.decode_token(scope, page_token), page_size + 1)
        page, token = page_tokens.cut(rows, page_size, scope, lambda row: row.name)
        return TablePage(tables=[self._summary(row) for row in page], next_page_token=token)

    def rename_table(self, database: str, name: str, new_name: str, *, replace: bool = False) -> TableInfo:
        """Gives a table another name in its database; a staged table is published by it. Its folder stays.

        Raises:
            InvalidRequest: ``bad-name``.
            NotFound: ``database-not-found``, ``table-not-found``.
            AlreadyExists: ``table-exists``: another one has the name; a table is dropped with `replace`.
        """
        new_name, row = fold_name("table", new_name), self._table(database, name)
        renamed = self._lifecycle.rename(row.database, row.name, new_name, replaces=replace)
        return self._info(renamed, with_snapshot=False)

    def drop_table(self, database: str, name: str, *, if_exists: bool = False) -> None:
        """Drops a table with its files and its log, or completes a drop. The topic of a table with a connector stays.

        Raises:
            NotFound: ``database-not-found``, ``table-not-found``, unless `if_exists`.
            Unavailable: ``log-left``: the table is gone, and its topic could not be removed; or the storage does not
                answer. A retry continues.
        """
        database, name = fold_name("database", database), fold_table(name)
        try:
            if not self._lifecycle.drop_table(database, name):
                raise self._repository.no_table(database, name)
        except NotFound:
            if not if_exists:
                raise

    def list_snapshots(
        self, database: str, name: str, page_size: int = page_tokens.PAGE_SIZE, page_token: str | None = None
    ) -> SnapshotPage:
        """Returns a page of a table's snapshots, newest first; raises as `get_table`, or ``connector-table``."""
        row = self._table(database, name)
        scope = f"snapshots:{row.table_id}"
        before = page_tokens.decode_token(scope, page_token)
        if before is not None and not before.isdigit():
            raise InvalidRequest("page_token has been changed: pass it as it was received", code="bad-page-token")
        found = self._snapshots(row, page_size + 1, None if before is None else int(before))
        page, token = page_tokens.cut(found, page_size, scope, lambda snapshot: str(snapshot.version))
        return SnapshotPage(snapshots=[answers.snapshot_info(s) for s in page], next_page_token=token)

    # ------------------------------------------------------------------------------------------ leases

    def acquire_lease(self, database: str, name: str, request: LeaseRequest) -> LeaseInfo:
        """Grants a table's lease to the first owner that asks; the same owner may ask again.

        Raises:
            NotFound: ``database-not-found``, ``table-not-found``.
            Conflict: ``lease-held``.
        """
        row = self._table(database, name)
        granted = self._repository.acquire_lease(row.table_id, request.owner, request.seconds)
        if granted is not None:
            return answers.lease_info(granted)
        holder = self._repository.lease(row.table_id)
        held = "somebody else" if holder is None else f"{holder.owner} until {answers.lease_info(holder).expires_at}"
        raise Conflict(
            f"the lease of {row.database}.{row.name} is held by {held}: ask again when it has expired",
            code="lease-held",
        )

    def renew_lease(self, database: str, name: str, request: LeaseRequest) -> LeaseInfo:
        """Extends a lease.

        Raises:
            NotFound: ``database-not-found``, ``table-not-found``.
            Conflict: ``lease-lost``: it expired and another owner took it, or it was released.
        """
        row = self._table(database, name)
        renewed = self._repository.renew_lease(row.table_id, request.owner, request.seconds)
        if renewed is None:
            raise Conflict(
                f"{request.owner} does not hold the lease of {row.database}.{row.name} any more: stop its work, and "
                "take a lease "
                "again",
                code="lease-lost",
            )
        return answers.lease_info(renewed)

    def release_lease(self, database: str, name: str, owner: str) -> None:
        """Ends a lease; one that the owner does not hold any more is left alone.

        Raises:
            NotFound: ``database-not-found``, ``table-not-found``.
        """
        self._repository.release_lease(self._table(database, name).table_id, owner)

    # ------------------------------------------------------------------------------------------ commits

    def newest_claim(self, database: str, name: str, table_id: str) -> NewestClaim:
        """Returns the newest claim of a table's versions (`filestore.commit.claims.Claims`).

        The id says which table it is: a writer that has opened a table goes on when the table is renamed.

        Raises:
            InvalidRequest: ``bad-name``.
            NotFound: ``table-not-found``: the table was dropped.
        """
        self._check_names(database, name)
        return NewestClaim.of(self._claims.newest_claim(table_id))

    def claim_version(self, database: str, name: str, request: ClaimRequest) -> NewestClaim:
        """Claims a version of a table for one of several writers; raises as `newest_claim`."""
        self._check_names(database, name)
        after = None if request.after is None else request.after.claim()
        return NewestClaim.of(self._claims.claim_version(request.table_id, request.claim(), after))

    def publish_claim(self, database: str, name: str, request: PublishRequest) -> NewestClaim:
        """Notes that a claimed version is in the Delta log; raises as `newest_claim`."""
        self._check_names(database, name)
        return NewestClaim.of(self._claims.publish_claim(request.table_id, request.claim()))

    # ------------------------------------------------------------------------------------------ helpers

    def _check_names(self, database: str, name: str) -> None:
        fold_name("database", database)
        fold_table(name)

    def _table(self, database: str, name: str) -> TableRow:
        database, name = fold_name("database", database), fold_table(name)
        row = self._repository.table(database, name)
        if row is None or row.state not in (State.ACTIVE, State.STAGED):
            raise self._repository.no_table(database, name)
        if isinstance(row.definition, ViewDefinition):
            raise is_view(database, name)
        return row

    def _location(self, row: TableRow) -> str:
        return self._lifecycle.identity(row).location

    def _summary(self, entry: TableEntry) -> TableSummary:
        managed = entry.connector is None
        folder = entry.folder or entry.name
        location = layout.table_location(self.warehouse, entry.database, folder) if managed else None
        return answers.table_summary(entry, location)

    def _database_location(self, name: str) -> str:
        return layout.join(self.warehouse, name)

    def _info(self, row: TableRow, state: TableState | None = None, *, with_snapshot: bool) -> TableInfo:
        if isinstance(row.definition, KafkaDeclaration):
            return answers.kafka_table_info(row, row.definition)
        if state is None and with_snapshot:
            state = self._state(row)
        commits = self._lifecycle.commits.decision
        return answers.table_info(row, self._location(row), state, self._storage_options, commits)

    def _state(self, row: TableRow) -> TableState:
        try:
            return self._lifecycle.steps.state(self._lifecycle.identity(row))
        except (NotFound, Corrupt) as error:
            raise self._missing(row, error) from error

    def _snapshots(self, row: TableRow, limit: int, before: int | None) -> Sequence[Snapshot]:
        try:
            return self._lifecycle.steps.snapshots(self._lifecycle.identity(row), limit, before)
        except (NotFound, Corrupt) as error:
            raise self._missing(row, error) from error

    def _missing(self, row: TableRow, error: NotFound | Corrupt) -> NotFound | Corrupt:
        """The error for an ACTIVE table whose files cannot be read."""
        now = self._repository.table(row.database, row.name)
        if now is None or now.table_id != row.table_id or now.state not in (State.ACTIVE, State.STAGED):
            return table_not_found(row.database, row.name)  # it was dropped during the read
        if isinstance(error, Corrupt):
            return error
        return Corrupt(
            f"the catalog has table {row.database}.{row.name}, but {self._location(row)} does not: is "
            f"{self.warehouse} the right warehouse? Restore the files, or drop the table",
            code="table-files-missing",
        )
