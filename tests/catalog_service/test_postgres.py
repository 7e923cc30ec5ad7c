"""The catalog in a real PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from catalog_service.client import AlterTable, Catalog, CreateTable, LeaseRequest, connect
from catalog_service.engine import locks_of, open_engine
from catalog_service.locks import AdvisoryLocks
from catalog_service.server import serving
from filestore.ambient import system_ambient
from filestore.errors import AlreadyExists, Conflict, NotFound, TableStoreError, Unavailable
from tests.catalog_service.faults import orders
from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.slow

AMBIENT = system_ambient()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def database(server: PostgresServer) -> str:
    """Empty."""
    server.empty()
    return server.url


@pytest.fixture
def catalog(database: str, warehouse: str) -> Iterator[Catalog]:
    with connect(warehouse, database=database) as catalog:
        catalog.create_database("shop")
        yield catalog


def test_64_tables_at_once(catalog: Catalog, database: str, warehouse: str) -> None:
    names = [f"t{i:02}" for i in range(64)]
    with ThreadPoolExecutor(64) as pool, connect(warehouse, database=database) as other:
        made = list(pool.map(lambda name: catalog.create_table("shop", orders(name=name)), names))
        assert [info.name for info in made] == names
        assert catalog.list_tables("shop") == names
        # of two services that drop at once, each table goes once
        clients = [catalog, other] * 8

        def drops(client: Catalog) -> int:
            gone = 0
            for name in names:
                try:
                    client.drop_table("shop", name)
                except NotFound:
                    continue
                gone += 1
            return gone

        assert sum(pool.map(drops, clients)) == 64
    assert catalog.list_tables("shop") == []


def test_64_creates_of_one_table_make_one(catalog: Catalog, database: str, warehouse: str) -> None:
    def creates(client: Catalog) -> TableStoreError | str:
        try:
            return client.create_table("shop", orders()).table_id
        except AlreadyExists as error:
            return error

    with ThreadPoolExecutor(64) as pool, connect(warehouse, database=database) as other:
        results = list(pool.map(creates, [catalog, other] * 32))
    assert sum(isinstance(result, str) for result in results) == 1


def test_everything_over_http(database: str, warehouse: str) -> None:
    with serving(warehouse, database=database) as url, connect(url) as catalog:
        catalog.create_database("shop", comment="ä")
        with pytest.raises(AlreadyExists):
            catalog.create_database("shop")
        for name in ("a", "b", "c"):
            catalog.create_table("shop", CreateTable.of(name, "id BIGINT", primary_key=["id"]))
        assert catalog.list_tables("shop") == ["a", "b", "c"]
        catalog.alter_table("shop", "a", AlterTable(changes=("ADD COLUMN note STRING",)))
        assert [c.name for c in catalog.get_table("shop", "a", with_snapshot=True).columns] == ["id", "note"]
        lease = LeaseRequest(owner="me", seconds=60)
        catalog.acquire_lease("shop", "a", lease)
        with pytest.raises(Conflict):
            catalog.acquire_lease("shop", "a", LeaseRequest(owner="you", seconds=60))
        catalog.renew_lease("shop", "a", lease)
        catalog.release_lease("shop", "a", "me")
        with pytest.raises(Conflict):
            catalog.drop_database("shop")
        catalog.drop_table("shop", "b")
        catalog.drop_database("shop", cascade=True)
        assert catalog.list_databases() == []


def test_locks_end_with_their_session_and_come_back(server: PostgresServer, database: str) -> None:
    one, other = (locks_of(open_engine(database), AMBIENT) for _ in range(2))
    assert isinstance(one, AdvisoryLocks)
    with one.hold("shop.a"), one.hold("shop.b"):
        for locks in (one, other):
            with locks.try_hold("shop.a") as held:
                assert not held
        assert server.ask("SELECT count(DISTINCT pid) FROM pg_locks WHERE locktype = 'advisory'") == [(1,)]
    with other.try_hold("shop.a") as held:
        assert held
    assert server.ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [(0,)]
    others = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = %(kind)s"
    end = f"SELECT pg_terminate_backend(pid) {others}"
    server.ask(end, kind="client backend")
    with one.hold("shop.a"):  # an idle session that is gone is replaced
        server.ask(end, kind="client backend")
        with pytest.raises(Unavailable), one.hold("shop.b"):
            pass
    with one.hold("shop.a"), one.hold("shop.b"):
        pass
    one.close()
    other.close()
