"""Opens a catalog: where its database is, what its parts are, and what crashes left in it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from catalog_service.database.claims import ClaimRows
from catalog_service.database.engine import default_database_url, locks_of, migrate, open_engine
from catalog_service.database.held_commits import HeldCommits
from catalog_service.database.locks import NameLocks
from catalog_service.database.repository import Repository
from catalog_service.model.paths import warehouse_location
from catalog_service.tables.lifecycle import Lifecycle
from catalog_service.tables.steps import ManagedTables, TableSteps
from catalog_service.use_cases.broker_policy import BrokerPolicy
from catalog_service.use_cases.service import CatalogService
from filestore.ambient import Ambient, system_ambient
from filestore.errors import InvalidRequest
from filestore.storage.locations import storage_of
from filestore.storage.schemes import is_local

__all__ = ["Parts", "open_service", "warehouse_and_database"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Parts:
    """The replaceable parts of a service; tests replace single ones."""

    ambient: Ambient
    steps: TableSteps
    locks: NameLocks | None = None


def open_service(
    warehouse: str,
    database_url: str,
    parts: Parts | None = None,
    broker_policy: BrokerPolicy | None = None,
    storage_options: Mapping[str, str] | None = None,
    brokers: str | None = None,
    commits: str | None = None,
) -> CatalogService:
    """Opens a catalog: migrates its schema, then finishes what crashes left.

    Args:
        warehouse: The folder of the databases: an absolute path or a URL.
        database_url: The catalog's database, as SQLAlchemy writes it.
        parts: They replace the real clock, storage and logs.
        broker_policy: Which brokers tables may name; None: any, for a process that opens a warehouse by its path.
        storage_options: How to reach the warehouse: `filestore.storage.s3_settings.S3Settings.of`. Clients get them
            with each table.
        brokers: Kafka's brokers for tables whose log is in Kafka and that name none; in a store of objects tables have
            such a log by default, if this is given.
        commits: Who keeps commits apart: `HeldCommits`.

    Raises:
        InvalidRequest: ``bad-database-url``, ``bad-storage-option``, ``broker-not-allowed``, ``bad-commits``,
            ``commits-fixed``.
        Unsupported: ``database-driver``, ``catalog-newer``.
        Unavailable: the catalog's database is locked, read-only or away.
    """
    if brokers is not None and broker_policy is not None:
        broker_policy.check_options({"log.kafka.bootstrap.servers": brokers})
    storage, ambient = storage_of(warehouse, storage_options), system_ambient() if parts is None else parts.ambient
    with ExitStack() as opened:  # a catalog that cannot be opened leaves no connection
        engine = open_engine(database_url)
        opened.callback(engine.dispose)
        locks = locks_of(engine, ambient) if parts is None or parts.locks is None else parts.locks
        migrate(engine, locks)
        repository = Repository(engine)
        held = HeldCommits(ClaimRows(engine), commits)
        steps = ManagedTables(storage, ambient, held.claims) if parts is None else parts.steps
        lifecycle = Lifecycle(warehouse, repository, steps, locks, ambient, held)
        for line in lifecycle.recover():
            logger.warning("after a crash: %s", line)
        opened.pop_all()
    return CatalogService(lifecycle, engine, broker_policy, storage_options, brokers)


def warehouse_and_database(warehouse: str, database: str | None) -> tuple[str, str]:
    """The warehouse's location, and the URL of its catalog's database.

    Raises:
        InvalidRequest: ``bad-path``; ``database-needed``: SQLite cannot work in a store of objects.
    """
    location = warehouse_location(warehouse)
    if database is None and not is_local(location):
        raise InvalidRequest(
            f"the catalog of {location} needs a database, which cannot be in the warehouse itself, because that is no "
            "local disk: name one with --database, $TABLESTORE_DATABASE or connect(…, database=…), such as "
            "postgresql://user@host/name, or sqlite:////path/catalog.db for processes of one machine",
            code="database-needed",
        )
    return location, database or default_database_url(location)
