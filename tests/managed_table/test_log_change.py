"""ALTER of the options by which a log in Kafka is reached: what no write could use is refused, and nothing changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from filestore.errors import Corrupt, NotFound, TableStoreError
from log.table.systems import open_log
from tablestore import Store, Table
from tests.servers.kafka import KafkaBroker
from tests.warehouses import warehouse

PROPERTIES = "log.kafka.properties"
UNUSABLE = {
    f"{PROPERTIES}.sasl.pasword": ("x", "sasl.pasword"),
    f"{PROPERTIES}.linger.ms": ("many", "queue.buffering.max.ms"),  # its name in librdkafka
    f"{PROPERTIES}.socket.timeout.ms": ("soon", "socket.timeout.ms"),
    f"{PROPERTIES}.acks": ("0", "acks"),
    f"{PROPERTIES}.security.protocol": ("TSL", "TSL"),
    "log.kafka.bootstrap.servers": ("127.0.0.1:9", r"127\.0\.0\.1:9"),
}


@pytest.fixture
def opened(kafka_broker: KafkaBroker) -> Iterator[tuple[Store, Table]]:
    options = {"log.system": "kafka", "log.kafka.bootstrap.servers": kafka_broker.bootstrap}
    with warehouse() as store:
        yield store, store.create_table("shop.t", "id BIGINT", primary_key=["id"], options=options)


@pytest.mark.parametrize("option", UNUSABLE)
def test_settings_with_which_no_write_can_succeed_are_refused(opened: tuple[Store, Table], option: str) -> None:
    _, table = opened
    value, says = UNUSABLE[option]
    with pytest.raises(TableStoreError, match=says):
        table.alter(f"SET {option} = '{value}'")
    assert table.filestore.state().version == 0
    table.write([{"id": 1}])


def test_usable_ones_are_taken(opened: tuple[Store, Table], kafka_broker: KafkaBroker) -> None:
    _, table = opened
    other = kafka_broker.bootstrap.replace("127.0.0.1", "localhost")
    table.alter(f"SET {PROPERTIES}.linger.ms = 7", f"SET log.kafka.bootstrap.servers = '{other}'")
    table.write([{"id": 1}])
    table.alter(f"UNSET {PROPERTIES}.linger.ms")
    assert [row["id"] for batch in table.follow(stop=table.filestore.state().version) for row in batch.to_pylist()] == [
        1
    ]


def test_brokers_without_the_topic_or_with_another_of_its_name_are_refused(opened: tuple[Store, Table]) -> None:
    _, table = opened
    config = table.opened.log_config()
    assert config is not None
    with open_log(config, table.opened.ambient) as log:
        log.drop()
        with pytest.raises(NotFound, match="no topic"):
            table.alter(f"SET {PROPERTIES}.linger.ms = 7")
        log.create()
    with pytest.raises(Corrupt, match="its offsets are those of"):
        table.alter(f"SET {PROPERTIES}.linger.ms = 7")
    table.alter("COMMENT 'orders'")  # it reaches no log
