"""The protocol of a catalog, and what opens one. Its two implementations raise the same errors with the same codes."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING, Protocol

from catalog_service.model.paths import is_service
from filestore.arguments import checked
from filestore.contexts import Closing
from filestore.errors import InvalidRequest

if TYPE_CHECKING:
    from catalog_service.wire.claims import ClaimRequest, NewestClaim, PublishRequest
    from catalog_service.wire.leases import LeaseInfo, LeaseRequest
    from catalog_service.wire.registrations import Registration
    from catalog_service.wire.tables import AlterTable, CreateTable, SnapshotInfo, TableInfo
    from catalog_service.wire.views import CreateView, ViewInfo

__all__ = ["Catalog", "connect"]


class Catalog(Closing, Protocol):
    """Lists, creates, changes and drops databases and tables. Every method may raise `Unavailable`."""

    def create_database(self, name: str, *, if_not_exists: bool = False, comment: str | None = None) -> None:
        """Creates a database.

        Raises:
            InvalidRequest: ``bad-name``.
            AlreadyExists: ``database-exists``, unless `if_not_exists`.
        """

    def drop_database(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Drops a database.

        Raises:
            NotFound: ``database-not-found``, unless `if_exists`.
            Conflict: ``database-not-empty``, unless `cascade`: then its tables go with it.
        """

    def list_databases(self) -> list[str]:
        """Returns the names of all databases in alphabetical order."""

    def create_table(
        self, database: str, table: CreateTable, *, if_not_exists: bool = False, staged: bool = False
    ) -> TableInfo:
        """Creates a table: version 0 and its log. With `if_not_exists` returns the existing one.

        A `staged` table has a hidden name, which the answer contains, and nobody sees it until `rename_table` publishes
        it.

        Raises:
            InvalidRequest: ``bad-name``, and the codes of `TableDefinition.of`.
            NotFound: ``database-not-found``.
            AlreadyExists: ``table-exists``, unless `if_not_exists`; ``location-not-empty``; ``log-exists``.
        """

    def get_table(self, database: str, name: str, *, with_snapshot: bool = False) -> TableInfo:
        """Returns a table. `with_snapshot` also reads `current_snapshot` from storage.

        Raises:
            NotFound: ``database-not-found``, ``table-not-found``.
            Corrupt: ``table-files-missing``, ``table-replaced`` (only with `with_snapshot`).
        """

    def alter_table(self, database: str, name: str, changes: AlterTable) -> SnapshotInfo:
        """Changes a table's columns, comments and options in one commit, as far as only metadata changes.

        Raises:
            InvalidRequest: ``bad-change``, and the codes of `filestore.operations.alter.alter`. Nothing was changed.
            NotFound: ``database-not-found``, ``table-not-found``, ``unknown-column``.
            Unsupported: ``rewrite-needed``, ``pending-runs``: files would have to be rewritten or pending runs folded,
                which only `tablestore.Table.alter` does.
            Conflict: other changes of the table were faster in every attempt.
        """

    def list_tables(self, database: str) -> list[str]:
        """Returns the names of a database's tables in order; raises `NotFound` (``database-not-found``)."""

    def rename_table(self, database: str, name: str, new_name: str, *, replace: bool = False) -> TableInfo:
        """Gives a table another name in its database; a staged table is published by it. Its folder stays.

        With `replace` a table that has the new name is dropped in the same moment.

        Raises:
            InvalidRequest: ``bad-name``.
            NotFound: ``database-not-found``, ``table-not-found``.
            AlreadyExists: ``table-exists``, unless `replace`.
        """

    def create_view(
        self, database: str, view: CreateView, *, if_not_exists: bool = False, or_replace: bool = False
    ) -> ViewInfo:
        """Creates a view, or with `or_replace` replaces one. With `if_not_exists` returns the existing one.

        Raises:
            InvalidRequest: ``bad-name``, ``empty-query``, ``too-long``, ``bad-text``.
            NotFound: ``database-not-found``.
            AlreadyExists: ``table-exists``: a table has the name, or a view has it and neither of the two is set.
        """

    def get_view(self, database: str, name: str) -> ViewInfo:
        """Returns a view; raises `NotFound` (``database-not-found``, ``view-not-found``)."""

    def list_views(self, database: str) -> list[str]:
        """Returns the names of a database's views in order; raises `NotFound` (``database-not-found``)."""

    def rename_view(self, database: str, name: str, new_name: str) -> ViewInfo:
        """Gives a view another name in its database.

        Raises:
            NotFound: ``database-not-found``, ``view-not-found``.
            AlreadyExists: ``table-exists``: a table or a view has the new name.
        """

    def drop_view(self, database: str, name: str, *, if_exists: bool = False) -> None:
        """Drops a view. `NotFound` (``database-not-found``, ``view-not-found``), unless `if_exists`."""

    def drop_table(self, database: str, name: str, *, if_exists: bool = False) -> None:
        """Drops a table with its files and its log. After `Unavailable` a retry continues.

        Raises:
            NotFound: ``database-not-found``, ``table-not-found``, unless `if_exists`.
        """

    def register(self, place: str | None = None, name: str | None = None) -> list[Registration]:
        """Enters tables in the catalog whose files are in the warehouse already; those that it has stay as they are.

        Args:
            place: The folder of a table, of a database, or the warehouse, which None is, too.
            name: Another name for the table of one folder.

        Returns:
            One for each folder with a table. An error of one folder is in it, and stops no other.

        Raises:
            InvalidRequest: ``outside-warehouse``, ``bad-name``.
            NotFound: ``no-table``.
            Unsupported: ``not-with-a-service``.
        """

    def acquire_lease(self, database: str, name: str, request: LeaseRequest) -> LeaseInfo:
        """Takes a table's lease, so that no two processes do the same work on it. Its owner may take it again.

        Raises:
            NotFound: ``database-not-found``, ``table-not-found``.
            Conflict: ``lease-held``: another owner has it, and it has not expired.
        """

    def renew_lease(self, database: str, name: str, request: LeaseRequest) -> LeaseInfo:
        """Extends a lease.

        Raises:
            NotFound: ``database-not-found``, ``table-not-found``.
            Conflict: ``lease-lost``: it expired and another owner took it, or it was released.
        """

    def release_lease(self, database: str, name: str, owner: str) -> None:
        """Ends a lease, unless it is another owner's. `NotFound` (``database-not-found``, ``table-not-found``)."""

    def newest_claim(self, database: str, name: str, table_id: str) -> NewestClaim:
        """Returns the newest claim of a table's versions (`filestore.commit.claims.Claims`).

        Raises:
            NotFound: ``table-not-found``: the table was dropped.
        """

    def claim_version(self, database: str, name: str, request: ClaimRequest) -> NewestClaim:
        """Claims a version of a table; returns the newest claim, which is another writer's if that was faster."""

    def publish_claim(self, database: str, name: str, request: PublishRequest) -> NewestClaim:
        """Notes that a claimed version is in the Delta log; returns the newest claim."""

    def close(self) -> None:
        """Closes the connections."""


@checked()
def connect(
    target: str | PathLike[str],
    token: str | None = None,
    database: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    brokers: str | None = None,
    commits: str | None = None,
) -> Catalog:
    """Opens a catalog.

    Args:
        target: The URL of a service, or a warehouse: a path on a local disk, or a URL such as ``s3://bucket/folder``.
            A folder that does not exist is an empty warehouse, and `create_database` creates it.
        token: The token of the service, if it requires one. `$TABLESTORE_CA_FILE` names the file (PEM) with the
            certificates of a private authority.
        database: The URL of an embedded catalog's database; ``<warehouse>/catalog.db`` if None. A warehouse that is
            not on a local disk needs one.
        storage_options: How to reach a warehouse in S3: `filestore.storage.s3_settings.S3Settings.of`. A service
            knows that for its own warehouse.
        brokers: Kafka's brokers for the logs of tables that are created in a warehouse and name none. A service has
            its own.
        commits: For a warehouse: what keeps concurrent commits apart, ``store`` or ``catalog`` (decision 93). It is
            decided when the first database is created; None takes what was decided.

    Raises:
        InvalidRequest: ``bad-url``, ``bad-token``, ``ca-file``, ``bad-path``, ``bad-database-url``,
            ``not-with-a-service``, ``database-needed``, ``bad-storage-option``, ``bad-commits``, ``commits-fixed``.
        Unsupported: ``storage-package``, ``database-driver``, ``catalog-newer``.
        Unavailable: the catalog's database does not answer. A service gets its first request with the first call.
    """
    target = fspath(target)
    if is_service(target):
        for name, value in (("database", database), ("commits", commits)):
            if value is not None:
                raise InvalidRequest(
                    f"a catalog service has its own database: leave `{name}` out, or give a warehouse",
                    code="not-with-a-service",
                )
        if brokers is not None:
            raise InvalidRequest(
                "a catalog service has its own brokers: leave `brokers` out, or start the service with --brokers",
                code="not-with-a-service",
            )
        from catalog_service.client.remote import HttpCatalog  # each loads only what it needs

        return HttpCatalog(target, token)
    from catalog_service.client.embedded import EmbeddedCatalog  # this one SQLAlchemy and Arrow

    return EmbeddedCatalog(target, database, storage_options, brokers, commits)
