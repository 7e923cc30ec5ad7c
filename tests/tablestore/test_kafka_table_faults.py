"""Tables that are Kafka topics while their broker dies and comes back."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from filestore.errors import Unavailable
from tablestore import KafkaTable, Store
from tests.servers.kafka import KafkaBroker
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def broker(mortal_broker: KafkaBroker) -> KafkaBroker:
    return mortal_broker


def table(store: Store, broker: KafkaBroker, name: str, **options: str) -> KafkaTable:
    given = {
        "connector": "kafka",
        "topic": name,
        "topic.partitions": "2",
        "format": "json",
        "properties.bootstrap.servers": broker.bootstrap,
        **{key.replace("_", "."): value for key, value in options.items()},
    }
    made = store.create_kafka_table(f"shop.{name}", "id BIGINT", options=given)
    return made


def put(table: KafkaTable, *ids: int) -> None:
    table.write(pa.table({"id": ids}))


def put_in_the_end(table: KafkaTable, id: int) -> None:
    """As callers do: what is unavailable is tried again."""

    def done() -> bool:
        try:
            put(table, id)
        except Unavailable:
            return False
        return True

    until(done, seconds=90, what="the broker takes rows again")


def ids(table: KafkaTable) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


@pytest.mark.deep
def test_readers_and_writers_outlive_their_broker(store: Store, broker: KafkaBroker) -> None:
    impatient = {"properties_socket_timeout_ms": "2000", "properties_delivery_timeout_ms": "3000"}
    plain = table(store, broker, "plain", **{"scan.topic-partition-discovery.interval": "500 ms"}, **impatient)
    whole = table(store, broker, "whole", sink_semantic="exactly-once")
    short = table(store, broker, "short", sink_semantic="exactly-once", **impatient)
    for one in (plain, whole, short):
        put(one, 1, 2)
    stop, seen = threading.Event(), list[int]()

    def follow() -> None:
        for batch in plain.follow(stop=stop):
            seen.extend(batch["id"].to_pylist())

    reader = threading.Thread(target=follow)
    reader.start()
    until(lambda: len(seen) == 2, what="the first rows")
    broker.kill()
    for call in (lambda: put(short, 3), lambda: ids(short)):
        with pytest.raises(Unavailable):
            call()
    assert reader.is_alive()
    broker.restart()
    for one in (plain, whole, short):
        put_in_the_end(one, 4)
    until(lambda: set(seen) == {1, 2, 4}, seconds=60, what="the follower goes on")
    stop.set()
    reader.join(300)
    assert not reader.is_alive()
    assert set(ids(plain)) == {1, 2, 4}  # at least once
    assert ids(whole) == ids(short) == [1, 2, 4]
    assert sorted(seen) == ids(plain)
