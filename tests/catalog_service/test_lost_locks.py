"""A PostgreSQL session with locks ends in the middle of the work that they guard, and another service takes over."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from catalog_service.database.engine import locks_of, open_engine
from catalog_service.database.locks import AdvisoryLocks
from catalog_service.use_cases.service import CatalogService
from catalog_service.wire.databases import CreateDatabase
from catalog_service.wire.tables import CreateTable
from filestore.ambient import system_ambient
from filestore.errors import NotFound, TableStoreError, Unavailable
from tests.catalog_service.faults import Fault, act, check, orders, running_service
from tests.depth import sampled
from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.slow

AMBIENT = system_ambient()

# "catalog-unavailable": a request that loses its session needs another lock
ALLOWED = ("lock-lost", "catalog-unavailable", "table-exists", "database-not-found", "table-not-found")
CREATE = ("check_new", "add_table", "create_log", "create_files", "set_state")
DROP = ("set_state", "drop_log", "delete_files", "remove_table")
DROP_DATABASE = ("mark_database_dropping", "drop_with_database", "drop_log", "delete_files", "remove_table")
TAKERS = ("the-same", "another", "drop", "drop-and-create", "drop-database", "a-new-database")
CASES = [
    (action, log, method, after, taker)
    for action, methods in (("create", CREATE), ("drop", DROP), ("drop-database", DROP_DATABASE))
    for method in methods
    for log in ("embedded", "kafka")
    for after in (False, True)
    for taker in TAKERS
]


def end_sessions_with_locks(server: PostgresServer) -> int:
    ended = server.ask("SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory'")
    return len(ended)


@pytest.mark.few(3)
@pytest.mark.parametrize(("action", "log", "method", "after", "taker"), sampled(CASES, 100, 9, names=5))
def test_a_lock_is_lost_at_a_step_and_another_service_takes_over(
    server: PostgresServer, database: str, warehouse: str, action: str, log: str, method: str, after: bool, taker: str
) -> None:
    """What the other service created stays as it is, and of the first request nothing is left that has no row."""
    Path(warehouse).mkdir()
    other = running_service(warehouse, database=database)
    other.create_database(CreateDatabase(name="shop"))
    if action != "create":
        other.create_table("shop", orders(log))
    service = running_service(warehouse, Fault(method, after=after), database=database)
    created: list[str] = []

    def lose_and_take() -> None:
        service.striker.struck = True
        assert end_sessions_with_locks(server) >= 1
        created.extend(take(other, taker, log))

    service.striker.strike = lose_and_take
    outcome: object = None
    try:
        if action == "create":
            outcome = service.create_table("shop", orders(log))[0].table_id
        else:
            act(service, action, log)
    except TableStoreError as error:
        outcome = error
    assert service.striker.struck
    assert not isinstance(outcome, TableStoreError) or outcome.code in ALLOWED, outcome
    assert [line for line in other._lifecycle.recover() if line.startswith("could not")] == []
    seen = check(warehouse, database)
    ids = [] if not seen else [other.get_table("shop", "orders").table_id]
    if (action, method, after) == ("drop-database", "mark_database_dropping", False):
        assert ids in ([], created), "what was created before the drop began may go with the database"
    elif created:
        assert ids == created
    elif isinstance(outcome, str) and taker in ("the-same", "another"):
        assert ids == [outcome]
    # and the service goes on
    service.create_database(CreateDatabase(name="shop"), if_not_exists=True)
    service.create_table("shop", CreateTable.of("next", "id BIGINT", options={"log.system": "none"}))
    assert check(warehouse, database) == sorted({*seen, "shop.next"})


@pytest.mark.few(2)
@pytest.mark.parametrize("log", ["none", "embedded", "kafka"])
def test_regression_a_staged_table_whose_lock_was_lost_leaves_nothing(
    server: PostgresServer, database: str, warehouse: str, log: str
) -> None:
    """Its files were written after another process had undone it, and stayed in the folder of the name."""
    Path(warehouse).mkdir()
    other = running_service(warehouse, database=database)
    other.create_database(CreateDatabase(name="shop"))
    service = running_service(warehouse, Fault("create_files"), database=database)

    def lose_and_recover() -> None:
        service.striker.struck = True
        assert end_sessions_with_locks(server) >= 1
        assert len(other._lifecycle.recover()) == 1

    service.striker.strike = lose_and_recover
    with pytest.raises(Unavailable) as caught:
        service.create_table("shop", orders(log), staged=True)
    assert caught.value.code == "lock-lost"
    assert check(warehouse, database) == []
    assert other.create_table("shop", orders(log))[1]
    assert check(warehouse, database) == ["shop.orders"]


def take(other: CatalogService, taker: str, log: str) -> list[str]:
    """What another service does with the name, if it can; returns the UUID of a table that it has created."""
    different = orders(log, sql_schema="id BIGINT, total BIGINT")
    with suppress(NotFound):  # the first request may have dropped the database, or not begun to create the table
        if taker in ("the-same", "another"):
            table = orders(log) if taker == "the-same" else different
            info, created = other.create_table("shop", table, if_not_exists=True)
            return [info.table_id] if created else []
        if taker in ("drop-database", "a-new-database"):
            other.drop_database("shop", cascade=True)
        else:
            other.drop_table("shop", "orders", if_exists=True)
    if taker == "a-new-database":
        other.create_database(CreateDatabase(name="shop"))
    if taker in ("a-new-database", "drop-and-create"):
        with suppress(NotFound):
            return [other.create_table("shop", different)[0].table_id]
    return []


def test_a_holder_sees_that_its_lock_is_lost(server: PostgresServer, database: str) -> None:
    one, other = (locks_of(open_engine(database), AMBIENT) for _ in range(2))
    with one.hold("shop.a"), one.hold("shop.b"):
        one.check("shop.a")
        end_sessions_with_locks(server)
        with pytest.raises(Unavailable) as caught:
            one.check("shop.a")
        assert caught.value.code == "lock-lost"
        with other.hold("shop.a"), one.hold("shop.c"):  # a new session does not have the locks of the old one
            one.check("shop.c")
            for name in ("shop.a", "shop.b"):
                with pytest.raises(Unavailable) as caught:
                    one.check(name)
                assert caught.value.code == "lock-lost"
            with one.try_hold("shop.b") as held:
                assert not held, "the thread that had it is still at work"
    with one.hold("shop.a"), one.hold("shop.b"):
        one.check("shop.a")
        one.check("shop.b")
        assert isinstance(one, AdvisoryLocks)
        # as if a proxy had handed the session to another client
        one._session.exec_driver_sql("SELECT pg_advisory_unlock_all()")
        with pytest.raises(Unavailable, match="has it no more"):
            one.check("shop.a")
    one.close()
    other.close()
