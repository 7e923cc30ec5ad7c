"""Leases of tables: one at a time, over HTTP and embedded alike, among threads and processes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import select

from catalog_service.client import Catalog, CreateTable, LeaseRequest, connect
from catalog_service.database.engine import default_database_url, now_ms, open_engine, reading
from filestore.ambient import system_ambient
from filestore.errors import Conflict, InvalidRequest, NotFound
from tests.processes import PROCESSES
from tests.waiting import until

ORDERS = CreateTable.of("orders", "id BIGINT", options={"log.system": "none"})


@pytest.fixture
def shop(catalog: Catalog) -> Iterator[Catalog]:
    catalog.create_database("shop")
    catalog.create_table("shop", ORDERS)
    yield catalog


def ask(owner: str, seconds: float = 60) -> LeaseRequest:
    return LeaseRequest(owner=owner, seconds=seconds)


def code_of(call: object) -> str | None:
    try:
        call()
    except Conflict as error:
        return error.code
    return None


def test_one_owner_at_a_time(shop: Catalog) -> None:
    granted = shop.acquire_lease("shop", "orders", ask("a"))
    assert granted.owner == "a"
    assert granted.table_id == shop.get_table("shop", "orders").table_id
    with pytest.raises(Conflict, match="held by a until") as caught:
        shop.acquire_lease("shop", "orders", ask("b"))
    assert caught.value.code == "lease-held"
    shop.release_lease("shop", "orders", "b")
    assert code_of(lambda: shop.acquire_lease("shop", "orders", ask("b"))) == "lease-held", "b released what is a's"
    shop.release_lease("shop", "orders", "a")
    assert shop.acquire_lease("shop", "orders", ask("b")).owner == "b"


def test_the_owner_may_ask_again_and_renew(shop: Catalog) -> None:
    first = shop.acquire_lease("shop", "orders", ask("a", 5))
    again = shop.acquire_lease("shop", "orders", ask("a", 50))
    renewed = shop.renew_lease("shop", "orders", ask("a", 500))
    assert first.expires_at < again.expires_at < renewed.expires_at


def test_expiry_counts_from_the_databases_clock(shop: Catalog) -> None:
    before = system_ambient().now_ms()
    granted = shop.acquire_lease("shop", "orders", ask("a", 60))
    assert before - 1000 < granted.expires_at.timestamp() * 1000 - 60_000 < system_ambient().now_ms() + 1000


@pytest.mark.slow
def test_a_lease_is_taken_over_only_after_it_ran_out(shop: Catalog) -> None:
    granted = shop.acquire_lease("shop", "orders", ask("a", 1.0))
    until(lambda: code_of(lambda: shop.acquire_lease("shop", "orders", ask("b", 60))) is None, what="the expiry")
    assert system_ambient().now_ms() >= granted.expires_at.timestamp() * 1000 - 1
    assert code_of(lambda: shop.renew_lease("shop", "orders", ask("a"))) == "lease-lost"
    shop.release_lease("shop", "orders", "a")
    assert shop.renew_lease("shop", "orders", ask("b")).owner == "b"


def test_what_ran_out_and_nobody_took_is_renewed(shop: Catalog) -> None:
    shop.acquire_lease("shop", "orders", ask("a", 0.001))
    assert shop.renew_lease("shop", "orders", ask("a", 60)).owner == "a"
    assert code_of(lambda: shop.acquire_lease("shop", "orders", ask("b"))) == "lease-held"


def test_a_released_lease_is_not_renewed(shop: Catalog) -> None:
    """Whoever took it meanwhile has done the work and let it go: who slept must notice."""
    shop.acquire_lease("shop", "orders", ask("a"))
    shop.release_lease("shop", "orders", "a")
    assert code_of(lambda: shop.renew_lease("shop", "orders", ask("a"))) == "lease-lost"


def test_a_lease_goes_with_its_table(shop: Catalog) -> None:
    shop.acquire_lease("shop", "orders", ask("a"))
    shop.drop_table("shop", "orders")
    for call in (
        lambda: shop.acquire_lease("shop", "orders", ask("b")),
        lambda: shop.renew_lease("shop", "orders", ask("a")),
        lambda: shop.release_lease("shop", "orders", "a"),
    ):
        with pytest.raises(NotFound) as caught:
            call()
        assert caught.value.code == "table-not-found"
    shop.create_table("shop", ORDERS)
    assert code_of(lambda: shop.renew_lease("shop", "orders", ask("a"))) == "lease-lost"
    assert shop.acquire_lease("shop", "orders", ask("b")).owner == "b"


def test_a_database_goes_with_leased_tables(shop: Catalog) -> None:
    shop.acquire_lease("shop", "orders", ask("a"))
    shop.drop_database("shop", cascade=True)
    assert shop.list_databases() == []


@pytest.mark.parametrize(
    "body", [{"owner": "", "seconds": 1}, {"owner": "a", "seconds": 0}, {"owner": "a", "seconds": 3601}]
)
def test_bad_requests_over_http(url: str, body: dict[str, object]) -> None:
    with connect(url) as catalog:
        catalog.create_database("shop")
        catalog.create_table("shop", ORDERS)
        with pytest.raises(InvalidRequest):
            catalog.acquire_lease("shop", "orders", LeaseRequest.model_construct(**body))


def test_of_many_threads_one_gets_it(shop: Catalog) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda n: code_of(lambda: shop.acquire_lease("shop", "orders", ask(f"owner-{n}"))), range(16))
        )
    assert sorted(answers, key=str) == [None, *["lease-held"] * 15]


def test_of_many_processes_one_gets_it(warehouse: str) -> None:
    with connect(warehouse) as catalog:
        catalog.create_database("shop")
        catalog.create_table("shop", ORDERS)
    count = 4
    barrier, results = PROCESSES.Barrier(count), PROCESSES.Queue()
    processes = [PROCESSES.Process(target=_ask_once, args=(warehouse, n, barrier, results)) for n in range(count)]
    for process in processes:
        process.start()
    answers = [results.get(timeout=300) for _ in processes]
    for process in processes:
        process.join(300)
    assert sorted(answers, key=str) == [None, *["lease-held"] * (count - 1)]


def _ask_once(warehouse: str, number: int, barrier: object, results: object) -> None:
    with connect(warehouse) as catalog:
        barrier.wait(300)
        results.put(code_of(lambda: catalog.acquire_lease("shop", "orders", ask(f"owner-{number}"))))


def test_the_databases_clock_is_a_clock(warehouse: str) -> None:
    with connect(warehouse) as catalog:
        catalog.create_database("shop")
    engine = open_engine(default_database_url(warehouse))
    with reading(engine) as connection:
        assert abs(connection.scalar(select(now_ms(engine))) - system_ambient().now_ms()) < 2000
    engine.dispose()
