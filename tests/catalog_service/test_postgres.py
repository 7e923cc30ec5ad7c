"""The catalog in a real PostgreSQL database."""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

import pytest

from catalog_service.client import AlterTable, Catalog, CreateTable, LeaseRequest, connect
from catalog_service.database.engine import locks_of, open_engine
from catalog_service.database.locks import AdvisoryLocks
from catalog_service.server import serving
from catalog_service.tables.steps import ManagedTables
from catalog_service.use_cases.opening import Parts, open_service
from catalog_service.use_cases.service import CatalogService
from catalog_service.wire.databases import CreateDatabase
from filestore.ambient import system_ambient
from filestore.errors import AlreadyExists, Conflict, NotFound, TableStoreError, Unavailable, Unsupported
from filestore.storage.local import LocalStorage
from tests.catalog_service.faults import check, orders
from tests.depth import Depth, sampled
from tests.servers.pooling_proxy import PoolingProxy
from tests.servers.postgres import PostgresServer
from tests.waiting import until

pytestmark = pytest.mark.slow

AMBIENT = system_ambient()
RESTARTS = [signal.SIGINT, signal.SIGQUIT]  # fast, and immediate


@pytest.fixture
def catalog(database: str, warehouse: str) -> Iterator[Catalog]:
    with connect(warehouse, database=database) as catalog:
        catalog.create_database("shop")
        yield catalog


@contextmanager
def most_connections(server: PostgresServer) -> Iterator[list[int]]:
    """Yields a list that gets the greatest number of connections that were seen during the block."""
    ended, seen, found = threading.Event(), [0], []

    def look() -> None:
        while not ended.wait(0.01):
            count = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
            seen.append(server.ask(count)[0][0] - 1)

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        try:
            yield found
        finally:
            ended.set()
        looking.result()
    found.append(max(seen))


@pytest.mark.deep
@pytest.mark.parametrize("over", sampled(["http", "embedded"], 2, test=2))
def test_64_tables_at_once(server: PostgresServer, database: str, warehouse: str, over: str) -> None:
    """They wait for one another for milliseconds only: 2 s on two free cores, where nothing may take 30 s."""
    names = [f"t{i:02}" for i in range(64)]
    with serving(warehouse, database=database) as one, serving(warehouse, database=database) as two:
        urls = [one, two] if over == "http" else [warehouse, warehouse]
        with connect(urls[0], **_of(over, database)) as catalog, connect(urls[1], **_of(over, database)) as other:
            catalog.create_database("shop")
            clients = [catalog, other] * 32
            with ThreadPoolExecutor(64) as pool, most_connections(server) as most:
                began = time.monotonic()
                made = list(pool.map(lambda at: clients[at].create_table("shop", orders(name=names[at])), range(64)))
                took = time.monotonic() - began
            assert [info.name for info in made] == names
            assert catalog.list_tables("shop") == other.list_tables("shop") == names
            assert most[0] <= 2 * (24 + 1) + 2, "two processes with 24 connections and a session, and two that are idle"
            assert took < 30, "as long as a request waits for a lock or a connection"

            # of two services that drop at once, each table goes once
            def drops(client: Catalog) -> int:
                gone = 0
                for name in names:
                    try:
                        client.drop_table("shop", name)
                    except NotFound:
                        continue
                    gone += 1
                return gone

            with ThreadPoolExecutor(8) as pool:
                assert sum(pool.map(drops, clients[:8])) == 64
            assert catalog.list_tables("shop") == []


def _of(over: str, database: str) -> dict[str, str]:
    return {} if over == "http" else {"database": database}


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


# ---------------------------------------------------------------------------------------------- races


@pytest.mark.deep
@pytest.mark.parametrize("if_not_exists", sampled([False, True], 2, test=2))
def test_of_eight_clients_of_two_services_one_creates_and_one_drops(
    database: str, warehouse: str, if_not_exists: bool, depth: Depth
) -> None:
    rounds = depth.times(12, deep=200)
    table = CreateTable.of("orders", "id BIGINT", options={"log.system": "none"})

    def creates(client: Catalog) -> str | None:
        try:
            return client.create_table("shop", table, if_not_exists=if_not_exists).table_id
        except AlreadyExists:
            return None

    def drops(client: Catalog) -> bool:
        try:
            client.drop_table("shop", "orders")
        except NotFound:
            return False
        return True

    with (
        serving(warehouse, database=database) as one,
        serving(warehouse, database=database) as two,
        ThreadPoolExecutor(8) as pool,
    ):
        clients = [connect(url) for url in (one, two) * 4]
        clients[0].create_database("shop")
        for _ in range(rounds):
            made = list(pool.map(creates, clients))
            winners = {table_id for table_id in made if table_id is not None}
            assert len(winners) == 1
            assert made.count(None) == (0 if if_not_exists else 7)
            assert {client.get_table("shop", "orders").table_id for client in clients[:2]} == winners
            assert sum(pool.map(drops, clients)) == 1
        for client in clients:
            client.close()
    assert check(warehouse, database) == []


# ---------------------------------------------------------------------------------------------- restarts


class Load:
    """Clients that create and drop tables in loops, and what the catalog said to each request."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.acknowledged: set[str] = set()
        self.unsure: dict[str, bool] = {}  # of requests that failed, whether they create
        self.slowest_s = 0.0

    def loop(self, number: int, client: Catalog) -> None:
        """Each client has names of its own."""
        dice, mine, step = random.Random(number), [], 0
        while not self.ended.is_set():
            step += 1
            creates = not mine or dice.random() < 0.7
            name = f"t{number}_{step}" if creates else mine.pop()
            began = time.monotonic()
            try:
                self.ask(client, name, creates)
            except Unavailable:
                self.unsure[name] = creates
                self.acknowledged.discard(name)
            else:
                if creates:
                    mine.append(name)
                    self.acknowledged.add(name)
                else:
                    self.acknowledged.discard(name)
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)

    def ask(self, client: Catalog, name: str, creates: bool, again: bool = False) -> None:
        if creates:
            client.create_table("shop", orders(name=name), if_not_exists=again)
        else:
            client.drop_table("shop", name, if_exists=again)

    def restart(self, server: PostgresServer, how: signal.Signals) -> None:
        """Stops the server between two requests that succeed, for as long as it takes until requests have failed."""
        tables, failed = len(self.acknowledged), len(self.unsure)
        until(lambda: len(self.acknowledged) > tables + 8, what="creates")
        server.stop(how)
        until(lambda: len(self.unsure) >= failed + 8, what="failures")
        server.start()


@pytest.mark.deep
@pytest.mark.parametrize(("over", "how"), sampled(product(["http", "embedded"], RESTARTS), 4, test=4, names=2))
def test_a_restart_of_the_server_under_load(
    server: PostgresServer, database: str, warehouse: str, how: signal.Signals, over: str, depth: Depth
) -> None:
    """A request succeeds or raises `Unavailable` soon; afterwards the service works as before, without a restart."""
    load = Load()
    with serving(warehouse, database=database) as one, serving(warehouse, database=database) as two:
        urls = [one, two] if over == "http" else [warehouse, warehouse]
        clients = [connect(url, **_of(over, database)) for url in urls]
        clients[0].create_database("shop")
        with ThreadPoolExecutor(8) as pool:
            loops = [pool.submit(load.loop, number, clients[number % 2]) for number in range(8)]
            try:
                for _ in range(depth.times(2, deep=8)):
                    load.restart(server, how)
            finally:
                load.ended.set()
            for each in loops:
                each.result()
        assert load.slowest_s < 30
        listed = set(clients[0].list_tables("shop"))
        assert load.acknowledged <= listed <= load.acknowledged | set(load.unsure)
        # a client that repeats a request that failed gets what it asked for
        for name, creates in load.unsure.items():
            load.ask(clients[1], name, creates, again=True)
        expected = sorted(load.acknowledged | {name for name, creates in load.unsure.items() if creates})
        assert clients[1].list_tables("shop") == expected
        for client in clients:
            client.close()
    assert check(warehouse, database) == [f"shop.{name}" for name in expected]


# ---------------------------------------------------------------------------------------------- what is in between


def test_a_pool_by_transaction_is_refused(server: PostgresServer, database: str, warehouse: str) -> None:
    """Session locks through it would have no owner; what needs no lock still works."""
    connect(warehouse, database=database).close()
    with PoolingProxy(database, by="transaction") as proxy:
        with pytest.raises(Unsupported, match="pool_mode = session") as caught, serving(warehouse, database=proxy.url):
            pass
        assert caught.value.code == "database-pooling"
        with connect(warehouse, database=proxy.url) as catalog:
            assert catalog.list_databases() == []
            with pytest.raises(Unsupported) as caught:
                catalog.create_database("shop")
            assert caught.value.code == "database-pooling"
            assert catalog.list_databases() == []


def test_a_pool_by_session_is_as_good_as_none(database: str, warehouse: str) -> None:
    with (
        PoolingProxy(database, by="session") as proxy,
        serving(warehouse, database=proxy.url) as url,
        connect(url) as catalog,
    ):
        catalog.create_database("shop")
        assert catalog.create_table("shop", orders()).name == "orders"


def test_without_the_driver_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(Unsupported, match=r"pip install 'lakehouse-tablestore\[postgres\]'") as caught:
        open_engine("postgresql://me:secret@host/catalog")
    assert caught.value.code == "database-driver"
    assert "secret" not in str(caught.value)


@pytest.mark.few(1)
@pytest.mark.parametrize("skew_s", [-7200, 7200])
def test_leases_expire_by_the_databases_clock_however_wrong_a_hosts_is(
    database: str, warehouse: str, skew_s: int
) -> None:
    """Two hosts, one of which is two hours late or early."""
    wrong = replace(AMBIENT, now_ms=lambda: AMBIENT.now_ms() + 1000 * skew_s)
    services = [
        open_service(warehouse, database, Parts(ambient, ManagedTables(LocalStorage(), ambient)))
        for ambient in (AMBIENT, wrong)
    ]
    right, skewed = services
    right.create_database(CreateDatabase(name="shop"))
    right.create_table("shop", orders())
    for first, second in ((right, skewed), (skewed, right)):
        granted = first.acquire_lease("shop", "orders", LeaseRequest(owner="a", seconds=1.5))
        assert abs(granted.expires_at.timestamp() * 1000 - 1500 - AMBIENT.now_ms()) < 60_000
        with pytest.raises(Conflict) as caught:
            second.acquire_lease("shop", "orders", LeaseRequest(owner="b", seconds=60))
        assert caught.value.code == "lease-held"

        def taken(second: CatalogService = second) -> bool:
            try:
                second.acquire_lease("shop", "orders", LeaseRequest(owner="b", seconds=60))
            except Conflict:
                return False
            return True

        until(taken, what="the expiry")
        assert AMBIENT.now_ms() >= granted.expires_at.timestamp() * 1000 - 1
        with pytest.raises(Conflict) as caught:
            first.renew_lease("shop", "orders", LeaseRequest(owner="a", seconds=60))
        assert caught.value.code == "lease-lost"
        second.release_lease("shop", "orders", "b")
    for service in services:
        service.close()
