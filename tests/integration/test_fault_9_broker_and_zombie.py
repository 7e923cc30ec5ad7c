"""Fault test 9: the broker is killed and begins again, and a zombie goes on beside its successor's transactional id.

The zombie's commit is refused, before and after the broker's death, and after recovery nothing is there twice.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from filestore.ambient import system_ambient
from filestore.errors import TableStoreError, Unavailable
from filestore.storage.local import LocalStorage
from log.kafka.transactions import TransactionClient
from log.table.config import LogConfig
from log.table.systems import open_log
from tablestore import Store, Table
from tests.faults import Call, FaultyStorage
from tests.integration.foreign import ForeignConsumer
from tests.integration.test_eventual_log import on, put
from tests.servers.kafka import KafkaBroker
from tests.waiting import until
from tests.warehouses import assert_whole, changes, replay

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

KEY = ["id"]
FENCED = {KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}


@pytest.fixture
def broker(mortal_broker: KafkaBroker) -> KafkaBroker:
    return mortal_broker


@pytest.fixture
def table(store: Store, broker: KafkaBroker) -> Table:
    options = {
        "bucket": "2",
        "log.system": "kafka",
        "log.kafka.bootstrap.servers": broker.bootstrap,
        "log.kafka.properties.socket.timeout.ms": "2000",
    }
    return store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=KEY, options=options)


def config_of(table: Table) -> LogConfig:
    config = table.opened.log_config()
    assert config is not None
    return config


def row_batch(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "name": ["zombie"] * len(ids), "_kind": ["+I"] * len(ids)})


def until_done(work: Any) -> None:
    """Again and again while the broker that begins anew does not answer."""

    def done() -> bool:
        try:
            work()
        except Unavailable:
            return False
        return True

    until(done, 60)


def end_code(table: Table, id_: str, producer_id: int, epoch: int) -> int:
    """What the broker answers to the zombie's EndTxn."""
    client = TransactionClient(config_of(table).bootstrap_servers or "", {}, 5.0, system_ambient())
    try:
        return client.end(id_, producer_id, epoch, commit=True)
    finally:
        client.close()


def assert_each_once(table: Table) -> None:
    """Table, our readers and foreign ones have the same changes, none of them twice."""
    with ForeignConsumer(table) as foreign:
        foreign.catch_up()
        found = foreign.changes()
        assert replay(found, KEY) == assert_whole(table)
        assert Counter(row["id"] for row in found) == Counter(row["id"] for row in changes(table, version=0))
        assert "zombie" not in {row["name"] for row in found}


@pytest.mark.deep
def test_a_zombies_commit_is_refused_before_and_after_the_brokers_death(table: Table, broker: KafkaBroker) -> None:
    """It had flushed; a successor with its transactional id then fences it, and the broker dies and remembers that."""
    put(table, 1)
    name = f"{table.opened.identity.table_id}/{system_ambient().new_id()}/0.0"
    with open_log(config_of(table), system_ambient()) as log, open_log(config_of(table), system_ambient()) as other:
        zombie = log.begin(name)
        zombie.append(0, row_batch(70))
        flushed = zombie.prepare()
        assert flushed is not None
        successor = other.begin(name)
        successor.append(0, pa.table({"id": [80], "name": ["b"], "_kind": ["+I"]}))
        prepared = successor.prepare()
        assert prepared is not None
        assert end_code(table, name, flushed.producer_id, flushed.producer_epoch) in FENCED
        assert log.end([flushed], commit=True).lost == (name,)
        broker.kill()
        broker.start()
        until_done(other.end_offsets)
        assert end_code(table, name, flushed.producer_id, flushed.producer_epoch) in FENCED
        assert other.end([prepared], commit=False).ended == (name,), "which no snapshot names"
    put(on(table), 2)
    assert_each_once(table)


@pytest.mark.deep
def test_a_zombie_that_has_not_flushed_writes_no_snapshot(table: Table) -> None:
    """Recovery takes it for dead and fences it between its records and its flush: its write fails as a whole."""
    put(table, 1)
    with open_log(config_of(table), system_ambient()) as log, open_log(config_of(table), system_ambient()) as other:
        zombie = log.begin(f"{table.opened.identity.table_id}/{system_ambient().new_id()}/0.0")
        zombie.append(0, row_batch(70))
        zombie._sender.producer.flush(5.0)  # type: ignore[attr-defined]  # what librdkafka does in time
        assert len(other.abort_unnamed(lambda ids: ids)) == 1
        with pytest.raises(TableStoreError):
            zombie.append(0, row_batch(71))
            zombie.prepare()
    put(table, 2)
    assert_each_once(table)


@pytest.mark.deep
def test_a_transaction_outlives_a_broker_that_is_killed_between_log_and_snapshot(
    table: Table, broker: KafkaBroker
) -> None:
    """Whoever recovers ends it, and who does so again adds nothing."""
    put(table, 1)

    def kill_at_commit(call: Call) -> None:
        if call.operation == "write_new" and call.path.endswith(".json") and not call.done:
            broker.kill()

    assert put(on(table, FaultyStorage(LocalStorage(), kill_at_commit)), 2, 3) == 2, "the snapshot stands"
    with pytest.raises(Unavailable):
        put(on(table), 4)
    assert table.filestore.state().version == 2, "a write without its log changes nothing"
    broker.start()
    until_done(on(table).recover)
    until_done(lambda: put(on(table), 5))
    on(table).recover()
    assert_each_once(table)
