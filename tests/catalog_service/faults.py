"""Faults as wrappers, a log that outlives its table's folder, and a check of a warehouse with its catalog."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import event, select

from catalog_service.database.claims import ClaimRows
from catalog_service.database.engine import default_database_url, locks_of, migrate, open_engine
from catalog_service.database.held_commits import HeldCommits
from catalog_service.database.locks import FileLocks, NameLocks
from catalog_service.database.repository import Repository
from catalog_service.database.schema import DATABASES, LOG_DEBTS, TABLES, State
from catalog_service.tables.lifecycle import Lifecycle
from catalog_service.tables.steps import ManagedTables
from catalog_service.use_cases.service import CatalogService
from catalog_service.wire.databases import CreateDatabase
from catalog_service.wire.tables import CreateTable
from filestore.ambient import system_ambient
from filestore.errors import AlreadyExists, InvalidRequest, NotFound, Unavailable
from filestore.model.definition import TableDefinition
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from log.table.systems import open_log
from managed_table.identity import TableIdentity
from tests.processes import PROCESSES

AMBIENT = system_ambient()
CRASHED = 86
OPEN: list[CatalogService] = []  # closed after each test
TOPICS = "_topics"  # beside the databases' folders; no database may be called so


@dataclass(frozen=True)
class Fault:
    """Makes one call of one method fail, before or after it was done.

    Attributes:
        method: The name of a method of `Repository` or `TableSteps`.
        after: Whether it fails after the method has done its work, rather than before.
        call: The number of the call that fails, from 1.
        crash: Whether the process dies, instead of raising an error.
        sticky: Whether every later call fails, too, as if the server or the disk were gone.
    """

    method: str
    after: bool = False
    call: int = 1
    crash: bool = False
    sticky: bool = False


class Striker:
    """Counts calls, and makes one of them fail."""

    def __init__(self, fault: Fault | None) -> None:
        self.fault = fault
        self.calls: list[str] = []
        self.struck = False
        self.strike_first: Callable[[], object] = lambda: None

    def wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            fault = self.fault
            if fault is not None and self.struck and fault.sticky:
                raise Unavailable("injected: still gone", code="injected")
            due = fault is not None and name == fault.method and self.calls.count(name) == fault.call
            if due and not fault.after:
                self.strike()
            result = call(*args, **kwargs)
            if due and fault.after:
                self.strike()
            return result

        return wrapped

    def strike(self) -> None:
        self.struck = True
        self.strike_first()
        if self.fault.crash:
            os._exit(CRASHED)
        raise Unavailable(f"injected: {self.fault}", code="injected")


class Faulty:
    """Any object whose calls can fail."""

    def __init__(self, target: object, striker: Striker) -> None:
        self._target = target
        self._striker = striker

    def __getattr__(self, name: str) -> Any:
        return self._striker.wrap(name, getattr(self._target, name))


class TopicLog:
    """Stands for a log in Kafka: it is outside of the warehouse, on a server that may be down."""

    def __init__(self, folder: Path, topic: str) -> None:
        self._folder = folder
        self._topic = folder / topic

    def _broker_policy(self) -> None:
        if (down := self._folder / "down").exists():
            if down.read_text():
                raise InvalidRequest(down.read_text(), code="log-not-authorized")
            raise Unavailable("the broker does not answer", code="log-unavailable")

    def create(self) -> None:
        self._broker_policy()
        self._folder.mkdir(exist_ok=True)
        self._topic.touch()

    def drop(self) -> None:
        self._broker_policy()
        self._topic.unlink(missing_ok=True)

    def check_adoptable(self) -> None:
        raise AlreadyExists("a topic of somebody else's", code="log-exists")

    def exists(self) -> bool:
        self._broker_policy()
        return self._topic.exists()

    def identity(self) -> dict[str, str]:
        self._broker_policy()
        if not self._topic.exists():
            raise NotFound("there is no such topic", code="log-not-found")
        return {"system": "kafka", "topic": self._topic.name, "topic_id": "t", "cluster_id": "c"}


class TestTables(ManagedTables):
    """Takes the real steps; only Kafka is a folder."""

    __test__ = False

    def __init__(self, warehouse: str) -> None:
        super().__init__(LocalStorage(), AMBIENT)
        self.topics = Path(warehouse) / TOPICS

    @contextmanager
    def _log(self, table: TableIdentity, definition: TableDefinition) -> Iterator[Any]:
        if definition.options["log.system"] != "kafka":
            with super()._log(table, definition) as log:
                yield log
        else:
            topic = definition.options["log.kafka.topic"]
            yield TopicLog(self.topics, topic or f"{table.database}.{table.folder}.{table.table_id}")


def running_service(
    warehouse: str, fault: Fault | None = None, wait_s: float = 30.0, database: str | None = None
) -> CatalogService:
    """A service that has been running for a while: it does not recover at its start. By default it uses SQLite."""
    engine = open_engine(database or default_database_url(warehouse))
    locks: NameLocks
    if database is None:
        event.listen(engine, "connect", _without_fsync)
        locks = FileLocks(Path(f"{engine.url.database}-locks"), AMBIENT, wait_s)
    else:
        locks = locks_of(engine, AMBIENT)
    migrate(engine, locks)
    striker = Striker(fault)
    repository, steps = Faulty(Repository(engine), striker), Faulty(TestTables(warehouse), striker)
    commits = HeldCommits(ClaimRows(engine))
    service = CatalogService(Lifecycle(warehouse, repository, steps, locks, AMBIENT, commits), engine)
    service.striker = striker
    OPEN.append(service)
    return service


def _without_fsync(connection: Any, _: object) -> None:
    """Turns fsync off, which takes long: the kernel has what a killed process wrote, so only a power cut needs it."""
    connection.execute("PRAGMA synchronous = OFF")


def restarted(warehouse: str) -> tuple[CatalogService, list[str]]:
    """Returns a service that has just started, and what it recovered."""
    service = running_service(warehouse)
    return service, service._lifecycle.recover()


# ------------------------------------------------------------------------------------------ requests

KAFKA = {"log.system": "kafka", "log.kafka.bootstrap.servers": "broker:9092"}
OPTIONS = {"embedded": {"bucket": "2"}, "kafka": {"bucket": "2", **KAFKA}, "none": {"log.system": "none"}}


REPLACED = "id BIGINT, other STRING"


def orders(log: str = "embedded", **changes: Any) -> CreateTable:
    arguments = {
        "name": "orders",
        "sql_schema": "id BIGINT, name STRING",
        "primary_key": ("id",),
        "options": OPTIONS[log],
    } | changes
    return CreateTable(**arguments)


def with_database(warehouse: str, *tables: CreateTable) -> None:
    """Creates the database ``shop`` with tables."""
    service = running_service(warehouse)
    service.create_database(CreateDatabase(name="shop"), if_not_exists=True)
    for table in tables:
        service.create_table("shop", table)
    service.close()


def act(service: CatalogService, action: str, log: str) -> None:
    """Makes one request, by name, so that another process can be asked to make it."""
    if action == "create":
        service.create_table("shop", orders(log))
    elif action == "drop":
        service.drop_table("shop", "orders")
    elif action == "stage":
        service.create_table("shop", orders(log), staged=True)
    elif action == "rename":
        service.rename_table("shop", "orders", "sales")
    elif action == "replace":
        staged, _ = service.create_table("shop", orders(log, sql_schema=REPLACED, name="sales"), staged=True)
        service.rename_table("shop", staged.name, "orders", replace=True)
    elif action == "drop-database":
        service.drop_database("shop", cascade=True)
    else:
        raise AssertionError(action)


# ------------------------------------------------------------------------------------------ processes


def run_and_die(warehouse: str, action: str, log: str, fault: Fault) -> None:
    """Makes a request in a process that the fault kills."""
    process = PROCESSES.Process(target=_run, args=(warehouse, action, log, fault))
    process.start()
    process.join(300)
    assert process.exitcode == CRASHED, f"exit code {process.exitcode}: the fault did not strike"


def _run(warehouse: str, action: str, log: str, fault: Fault) -> None:
    act(running_service(warehouse, fault), action, log)


# ------------------------------------------------------------------------------------------ the doctor


def check(warehouse: str, database: str | None = None) -> list[str]:
    """Asserts that every table is whole and that there is nothing else; returns tables and views as ``db.table``."""
    engine = open_engine(database or default_database_url(warehouse))
    repository = Repository(engine)
    with engine.connect() as connection:
        databases = connection.execute(select(DATABASES)).all()
        tables = connection.execute(select(TABLES)).all()
        debts = connection.execute(select(LOG_DEBTS)).all()
    assert all(row.state == State.ACTIVE for row in [*databases, *tables]), (databases, tables)
    assert debts == []
    topics = set()
    for row in tables:
        if row.folder is not None:
            topics |= _check_table(warehouse, repository.leftover(row.database, row.name))
    engine.dispose()
    folders = {(row.database, row.folder) for row in tables if row.folder is not None}
    _check_folders(Path(warehouse), {row.name for row in databases}, folders)
    assert _names(Path(warehouse) / TOPICS) == topics
    return sorted(f"{row.database}.{row.name}" for row in tables)


def _check_table(warehouse: str, row: Any) -> set[str]:
    location = f"{warehouse}/{row.database}/{row.folder}"
    state = FileStore.open(LocalStorage(), location, AMBIENT).state()
    assert state.table_id == row.table_id
    assert state.definition == row.definition
    system = row.definition.options["log.system"]
    assert state.log.identity.get("system", "none") == system
    if system == "kafka":
        return {row.definition.options["log.kafka.topic"] or f"{row.database}.{row.folder}.{row.table_id}"}
    config = TableIdentity(row.database, row.name, row.table_id, location).log_config(row.definition)
    if config is not None:
        with open_log(config, AMBIENT) as log:
            assert log.exists()
            assert log.identity() == state.log.identity
    return set()


def _check_folders(warehouse: Path, databases: set[str], tables: set[tuple[str, str]]) -> None:
    folders = {p.name for p in warehouse.iterdir() if p.is_dir()} - {TOPICS, "catalog.db-locks"}
    assert folders <= databases, f"orphan folders: {folders - databases}"
    found = {(d, name) for d in folders for name in _names(warehouse / d)}
    assert found == tables, f"orphans {found - tables}, missing {tables - found}"
    _check_locks(warehouse / "catalog.db-locks")


def _check_locks(folder: Path) -> None:
    """A killed process leaves the file of its lock, but not the lock."""
    locks = FileLocks(folder, AMBIENT)
    for name in _names(folder):
        with locks.try_hold(name.removesuffix(".lock")) as held:
            assert held, f"{name} is still held"
    assert _names(folder) == set()


def _names(folder: Path) -> set[str]:
    return set(os.listdir(folder)) if folder.exists() else set()
