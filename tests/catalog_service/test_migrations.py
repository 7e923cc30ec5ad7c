"""The schema: from nothing, from an older version, by several processes at once, and never from a newer one."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import alembic.command
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, insert, inspect, text

from catalog_service import downgrade as downgraded
from catalog_service.database.engine import (
    MIGRATIONS,
    default_database_url,
    downgrade,
    locks_of,
    migrate,
    open_engine,
    writing,
)
from catalog_service.database.schema import LOG_DEBTS, METADATA
from catalog_service.use_cases.opening import open_service
from catalog_service.wire.databases import CreateDatabase
from catalog_service.wire.leases import LeaseRequest
from catalog_service.wire.tables import CreateTable
from catalog_service.wire.views import CreateView
from filestore.errors import Corrupt, InvalidRequest, Unsupported
from tests.catalog_service.faults import AMBIENT
from tests.processes import PROCESSES
from tests.servers.postgres import PostgresServer


def config() -> Config:
    made = Config()
    made.set_main_option("script_location", str(MIGRATIONS))
    return made


def test_from_nothing_and_again(warehouse: str) -> None:
    engine = open_engine(default_database_url(warehouse))
    for _ in range(2):
        migrate(engine, locks_of(engine, AMBIENT))
        with engine.connect() as connection:
            context = MigrationContext.configure(connection)
            assert context.get_current_revision() == ScriptDirectory.from_config(config()).get_current_head()
            assert compare_metadata(context, METADATA) == []
    engine.dispose()


@pytest.mark.slow
def test_from_each_older_version(warehouse: str) -> None:
    for script in ScriptDirectory.from_config(config()).walk_revisions():
        url = default_database_url(f"{warehouse}/{script.revision}")
        engine = open_engine(url)
        with writing(engine) as connection:
            older = config()
            older.attributes["connection"] = connection
            alembic.command.upgrade(older, script.revision)
        engine.dispose()
        service = open_service(warehouse, url)
        assert service.create_database(CreateDatabase(name="shop"))[1]
        service.close()


def test_from_an_empty_file(warehouse: str) -> None:
    Path(warehouse).mkdir()
    Path(warehouse, "catalog.db").touch()
    service = open_service(warehouse, default_database_url(warehouse))
    assert service.list_databases().databases == []
    service.close()


def test_a_migration_that_fails_changes_nothing(warehouse: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_engine(default_database_url(warehouse))

    def upgrade_and_fail(*args: object) -> None:
        upgrade(*args)
        raise RuntimeError("the power is gone")

    upgrade = alembic.command.upgrade
    monkeypatch.setattr(alembic.command, "upgrade", upgrade_and_fail)
    with pytest.raises(RuntimeError):
        migrate(engine, locks_of(engine, AMBIENT))
    monkeypatch.undo()
    with sqlite3.connect(engine.url.database) as raw:
        assert raw.execute("SELECT name FROM sqlite_master").fetchall() == []
    raw.close()
    migrate(engine, locks_of(engine, AMBIENT))
    engine.dispose()


def test_a_newer_catalog_is_refused(warehouse: str) -> None:
    url = default_database_url(warehouse)
    open_service(warehouse, url).close()
    with sqlite3.connect(f"{warehouse}/catalog.db") as raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")
    raw.close()
    with pytest.raises(Unsupported, match="9999") as caught:
        open_service(warehouse, url)
    assert caught.value.code == "catalog-newer"


def test_a_file_that_is_no_database(warehouse: str) -> None:
    Path(warehouse).mkdir()
    Path(warehouse, "catalog.db").write_text("id;name\n" * 1000)
    with pytest.raises(Corrupt) as caught:
        open_service(warehouse, default_database_url(warehouse))
    assert caught.value.code == "catalog-corrupt"


@pytest.mark.parametrize(
    ("url", "kind", "code"),
    [
        ("catalog.db", InvalidRequest, "bad-database-url"),
        ("sqlite://", InvalidRequest, "bad-database-url"),
        ("sqlite:///:memory:", InvalidRequest, "bad-database-url"),
        ("mysql+pymysql://root@localhost/x", Unsupported, "database-driver"),
        ("nonsense://x", Unsupported, "database-driver"),
    ],
)
def test_database_urls(url: str, kind: type[Exception], code: str) -> None:
    with pytest.raises(kind) as caught:
        open_engine(url)
    assert caught.value.code == code


@pytest.mark.slow
def test_processes_that_start_at_once_all_succeed(warehouse: str) -> None:
    count = 6
    barrier = PROCESSES.Barrier(count)
    results = PROCESSES.Queue()
    processes = [PROCESSES.Process(target=start, args=(warehouse, i, barrier, results)) for i in range(count)]
    for process in processes:
        process.start()
    answers = [results.get(timeout=300) for _ in processes]
    for process in processes:
        process.join(300)
    assert sorted(answers) == [f"db{i}" for i in range(count)]
    service = open_service(warehouse, default_database_url(warehouse))
    assert [d.name for d in service.list_databases().databases] == sorted(answers)
    service.close()


def start(warehouse: str, number: int, barrier: object, results: object) -> None:
    barrier.wait(300)
    try:
        service = open_service(warehouse, default_database_url(warehouse))
        results.put(service.create_database(CreateDatabase(name=f"db{number}"))[0].name)
        service.close()
    except Exception as error:
        results.put(repr(error))
        raise


# ---------------------------------------------------------------------------------------------- both databases


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database(request: pytest.FixtureRequest, warehouse: str) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return default_database_url(warehouse)
    server: PostgresServer = request.getfixturevalue("server")
    server.empty()
    return server.url


@pytest.mark.slow
@pytest.mark.few(1)
def test_every_revision_goes_down_and_up_again_and_keeps_the_rows(database: str, warehouse: str) -> None:
    service = open_service(warehouse, database, commits="catalog")
    service.create_database(CreateDatabase(name="shop", comment="ä"))
    for name in ("orders", "items"):
        service.create_table("shop", CreateTable.of(name, "id BIGINT", options={"log.system": "none"}))
        service.acquire_lease("shop", name, LeaseRequest(owner="me", seconds=60))
    service.close()
    engine = open_engine(database)
    locks = locks_of(engine, AMBIENT)
    with writing(engine) as connection:
        debt = {"definition": "{}", "created_at_ms": 1, "retry_at_ms": 2, "folder": "gone"}
        connection.execute(insert(LOG_DEBTS).values(table_id="gone", database="shop", name="gone", **debt))
    head = rows_of(engine)
    assert {name: len(rows) for name, rows in head.items()} == {
        "alembic_version": 1,
        "commits": 2,
        "databases": 1,
        "leases": 2,
        "log_debts": 1,
        "settings": 1,
        "tables": 2,
    }
    revisions = [script.revision for script in ScriptDirectory.from_config(config()).walk_revisions()]
    assert revisions[-1] == "0001"
    for revision in revisions:  # one step down after another
        downgrade(engine, locks, revision)
        older = rows_of(engine)
        assert older.pop("alembic_version") == [{"version_num": revision}]
        for name, rows in older.items():  # what the older schema has a place for is as it was
            assert rows == [{key: row[key] for key in rows[0]} for row in head[name]], (revision, name)
    assert set(older) == {"databases", "log_debts", "tables"}
    for revision in [*reversed(revisions), "head"]:
        with writing(engine) as connection:
            newer = config()
            newer.attributes["connection"] = connection
            alembic.command.upgrade(newer, revision)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    assert rows_of(engine) == head | {"commits": [], "leases": [], "settings": []}
    for revision in revisions:  # from the newest revision to each older one and back, in one step
        downgrade(engine, locks, revision)
        migrate(engine, locks)
        assert rows_of(engine) == head | {"commits": [], "leases": [], "settings": []}
    with writing(engine) as connection:  # whole away, and from nothing
        nothing = config()
        nothing.attributes["connection"] = connection
        alembic.command.downgrade(nothing, "base")
    assert rows_of(engine) == {"alembic_version": []}
    migrate(engine, locks)
    assert {name for name, rows in rows_of(engine).items() if rows} == {"alembic_version"}
    locks.close()
    engine.dispose()


@pytest.mark.few(1)
def test_a_downgrade_removes_only_what_an_older_version_cannot_read(
    database: str, warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLESTORE_DATABASE", database)
    service = open_service(warehouse, database)
    service.create_database(CreateDatabase(name="shop"))
    service.create_table("shop", CreateTable.of("orders", "id BIGINT", options={"log.system": "none"}))
    topic = {"connector": "kafka", "topic": "t", "topic.check": "false", "value.format": "json"}
    topic["properties.bootstrap.servers"] = "broker:9092"
    service.create_table("shop", CreateTable.of("clicks", "id BIGINT", options=topic))
    service.close()
    downgraded.main(["0003"])
    assert sorted(row["name"] for row in rows_at(database, "tables")) == ["clicks", "orders"]
    downgraded.main(["0002"])
    assert [row["name"] for row in rows_at(database, "tables")] == ["orders"]
    service = open_service(warehouse, database)
    assert [table.name for table in service.list_tables("shop").tables] == ["orders"]
    service.close()


def test_a_downgrade_loses_no_table_that_was_renamed(
    database: str, warehouse: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TABLESTORE_DATABASE", database)
    service = open_service(warehouse, database)
    service.create_database(CreateDatabase(name="shop"))
    service.create_table("shop", CreateTable.of("orders", "id BIGINT", options={"log.system": "none"}))
    service.views.create("shop", CreateView(name="large", query="SELECT 1", columns="{}"))
    service.rename_table("shop", "orders", "sales")
    before = rows_at(database, "tables")
    with pytest.raises(SystemExit, match=r"shop\.sales \(in orders\)"):
        downgraded.main(["0005"])
    assert rows_at(database, "tables") == before
    service.rename_table("shop", "sales", "orders")
    service.close()
    downgraded.main(["0005"])
    assert [row["name"] for row in rows_at(database, "tables")] == ["orders"]


def test_a_downgrade_to_a_revision_that_is_not_there(
    database: str, warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TABLESTORE_DATABASE", database)
    open_service(warehouse, database).close()
    downgraded.main(["0002"])
    for revision in ("0003", "9", "base"):
        with pytest.raises(SystemExit, match=r"choose one of \['0001', '0002'\]"):
            downgraded.main([revision])


def test_a_downgrade_needs_to_know_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TABLESTORE_DATABASE", raising=False)
    with pytest.raises(SystemExit, match="TABLESTORE_DATABASE_FILE"):
        downgraded.main(["0002"])


def rows_at(database: str, table: str) -> list[dict[str, Any]]:
    engine = open_engine(database)
    rows = rows_of(engine)[table]
    engine.dispose()
    return rows


def rows_of(engine: Engine) -> dict[str, list[dict[str, Any]]]:
    """All rows of all tables, in the order of their first columns."""
    with engine.connect() as connection:
        found = {}
        for name in inspect(connection).get_table_names():
            order = "database, name" if name == "tables" else "1"
            rows = connection.execute(text(f"SELECT * FROM {name} ORDER BY {order}"))
            found[name] = [dict(row) for row in rows.mappings()]
        return found
