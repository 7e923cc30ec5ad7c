"""Numbered writes of Kafka tables: a write that is retried, even by two processes at once, is stored once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from filestore.ambient import system_ambient
from filestore.errors import InvalidRequest, Unavailable
from log.connector.declaration import KafkaDeclaration
from log.connector.groups import Numbered
from log.connector.writer import ConnectorWriter
from tablestore import KafkaTable, Store
from tests.servers.kafka import KafkaBroker
from tests.warehouses import warehouse

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.fixture
def table(kafka_broker: KafkaBroker) -> Iterator[Callable[[str], KafkaTable]]:
    def made(name: str) -> KafkaTable:
        options = {
            "connector": "kafka",
            "topic": f"once-{name}",
            "topic.partitions": "3",
            "format": "json",
            "sink.semantic": "exactly-once",
            "properties.bootstrap.servers": kafka_broker.bootstrap,
        }
        found = store.create_kafka_table(f"shop.{name}", "id BIGINT", options=options)
        return found

    store: Store
    with warehouse() as store:
        yield made


def writer(table: KafkaTable) -> ConnectorWriter:
    return ConnectorWriter(table.declaration, system_ambient())


def ids(table: KafkaTable) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def some(*found: int) -> pa.Table:
    return pa.table({"id": pa.array(found, pa.int64())})


def test_a_write_that_comes_again_is_done_once(table: Callable[[str], KafkaTable]) -> None:
    topic = table("again")
    one = writer(topic)
    assert one.write([some(1, 2)], Numbered("q", 0)) == 2
    assert one.write([some(1, 2)], Numbered("q", 0)) == 2, "the same answer"
    assert writer(topic).write([some(3)], Numbered("q", 1)) == 1, "in another process"
    assert one.write([some(1, 2)], Numbered("q", 0)) == 0, "an older one"
    assert one.write([some(9)], Numbered("another", 0)) == 1
    assert one.write([], Numbered("q", 2)) == 0
    assert ids(topic) == [1, 2, 3, 9]


def test_what_failed_leaves_nothing_and_is_tried_again(table: Callable[[str], KafkaTable]) -> None:
    topic = table("failed")

    def breaking() -> Iterator[pa.Table]:
        yield some(*range(20_000))
        raise InvalidRequest("the source is broken", code="bad-rows")

    with pytest.raises(InvalidRequest, match="the source is broken"):
        writer(topic).write(breaking(), Numbered("q", 0))
    assert ids(topic) == []
    assert writer(topic).write([some(1)], Numbered("q", 0)) == 1
    assert ids(topic) == [1]


def test_a_try_that_lives_on_is_shut_out_by_the_next(table: Callable[[str], KafkaTable]) -> None:
    """As with a task that Spark took for dead: the next one meanwhile does the write."""
    topic = table("zombie")

    def slow() -> Iterator[pa.Table]:
        yield some(*range(20_000))
        assert writer(topic).write([some(1)], Numbered("q", 0)) == 1
        yield some(3)

    with pytest.raises(Unavailable):
        writer(topic).write(slow(), Numbered("q", 0))
    assert ids(topic) == [1]


def test_a_try_that_died_with_its_transaction_open_holds_up_nobody(
    table: Callable[[str], KafkaTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = table("died")

    def dies(sink: object, *, ended: bool) -> None:
        """As if the process were gone: nobody aborts."""

    def dying(declaration: KafkaDeclaration) -> Iterator[pa.Table]:
        yield some(*range(20_000))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("log.connector.writer._Sink.give_up", dies)
        writer(topic).write(dying(topic.declaration), Numbered("q", 0))
    assert writer(topic).write([some(1)], Numbered("q", 0)) == 1
    assert ids(topic) == [1]
