"""Found while reviewing readers: tables made again, times without a zone, batches that did not fit together."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa
import pytest

from filestore.errors import NotFound
from tablestore import Store, Table
from tests.servers.kafka import KafkaBroker
from tests.waiting import until
from tests.warehouses import assert_whole, changes


@pytest.fixture
def orders(store: Store) -> Table:
    return store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=["id"], options={"bucket": "2"})


def put(table: Table, *ids: int, name: str = "a") -> int:
    return table.write(pa.table({"id": ids, "name": [name] * len(ids)})).version


def test_from_a_timestamp_of_any_zone(orders: Table) -> None:
    put(orders, 1)
    put(orders, 2)
    moment = orders.snapshots(1)[0].timestamp
    for given in (moment, moment.astimezone(ZoneInfo("Asia/Tokyo"))):
        assert [row["id"] for row in changes(orders, scan="from-timestamp", timestamp=given)] == [2]
    first = orders.filestore.snapshot(1).timestamp
    assert [row["id"] for row in changes(orders, scan="from-timestamp", timestamp=first)] == [1, 2]


def test_following_from_before_the_creation_gives_all_changes(orders: Table) -> None:
    """It failed, as time travel does, with a number of milliseconds that nobody can read."""
    put(orders, 1)
    put(orders, 2)
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    assert [row["id"] for row in changes(orders, scan="from-timestamp", timestamp=long_ago)] == [1, 2]
    with pytest.raises(NotFound, match=r"did not exist at 2020-01-01T00:00:00\+00:00"):
        orders.scan(timestamp=long_ago)


def test_all_batches_make_one_table(orders: Table) -> None:
    put(orders, 1)
    following = orders.follow(stop=4)
    put(orders, 2)
    orders.write(pa.table({"id": [1], "_kind": ["-D"]}))
    orders.write(pa.table({"id": [5], "name": ["x"]}), overwrite=True)
    together = pa.Table.from_batches(following)
    assert together.schema.names == ["id", "name", "_kind"]
    assert all(field.nullable for field in together.schema)
    assert pl.from_arrow(together).height == 5


@pytest.mark.parametrize("again", [False, True], ids=["dropped", "made-again"])
def test_a_table_that_is_dropped_under_a_reader_is_an_error(store: Store, orders: Table, again: bool) -> None:
    put(orders, 1)
    following = orders.follow()
    assert next(following).num_rows == 1
    store.drop_table("shop.orders")
    if again:
        made = store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=["id"])
        put(made, 7)
        put(made, 8)
    with pytest.raises(NotFound) as caught:
        next(following)
    assert caught.value.code == "table-replaced"


@pytest.mark.parametrize("table", ["made-again", "dropped"])
def test_a_handle_of_a_table_that_is_gone_says_so(store: Store, orders: Table, table: str) -> None:
    put(orders, 1)
    store.drop_table("shop.orders")
    if table == "made-again":
        made = store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=["id"])
        for i in range(3):
            put(made, 100 + i)
    for use in (lambda: orders.scan().to_arrow(), lambda: put(orders, 5), lambda: orders.detail()):
        with pytest.raises(NotFound) as caught:
            use()
        assert caught.value.code == "table-replaced"
    assert "shop.orders" in repr(orders)
    if table == "made-again":
        assert len(assert_whole(made)) == 3


def test_a_function_that_says_stop_is_asked_only_when_nothing_is_waiting(orders: Table) -> None:
    put(orders, 1)
    put(orders, 2)
    assert sum(batch.num_rows for batch in orders.follow(version=0, stop=lambda: True)) == 2


def test_a_range_of_kafka_does_not_wait_for_the_end_of_the_one_before(store: Store, kafka_broker: KafkaBroker) -> None:
    """Each waited half a second for a fetch that hung at the partition's end."""
    options = {"bucket": "2", "log.system": "kafka", "log.kafka.bootstrap.servers": kafka_broker.bootstrap}
    table = store.create_table("shop.logged", "id BIGINT, name STRING", primary_key=["id"], options=options)
    for i in range(15):
        put(table, *range(i, i + 10))

    def seconds() -> float:
        begin = time.monotonic()
        assert len(changes(table, version=0)) == 150
        return time.monotonic() - begin

    until(lambda: seconds() < 30 * 0.25, what="reading thirty ranges without waiting")
