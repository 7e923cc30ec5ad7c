"""The schema: from nothing, from an older version, by several processes at once, and never from a newer one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import alembic.command
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from catalog_service.engine import MIGRATIONS, default_database_url, locks_of, migrate, open_engine, writing
from catalog_service.schema import METADATA
from catalog_service.service import open_service
from catalog_service.wire import CreateDatabase
from filestore.errors import Corrupt, InvalidRequest, Unsupported
from tests.catalog_service.faults import AMBIENT
from tests.processes import PROCESSES


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
