"""A table whose topic is compacted, in a real broker: races too leave it the table in the log's own order."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from kafka import KafkaConsumer, TopicPartition

from tablestore import Table
from tests.servers.kafka import KafkaBroker
from tests.tablestore.test_log_modes import write_while
from tests.waiting import until
from tests.warehouses import warehouse

pytestmark = pytest.mark.kafka


def test_a_foreign_reader_that_keeps_the_last_record_of_each_key_has_the_table(kafka_broker: KafkaBroker) -> None:
    options = {
        "log.system": "kafka",
        "log.kafka.bootstrap.servers": kafka_broker.bootstrap,
        "log.kafka.cleanup.policy": "compact",
        "log.delete-format": "tombstone",
    }
    with warehouse() as store:
        table = store.create_table("shop.t", "id BIGINT, value BIGINT", primary_key=["id"], options=options)
        other = store.table("shop.t")
        table.write(pa.table({"id": [1, 2, 3], "value": [10, 20, 30]}))
        late = pa.table({"id": [1, 2], "value": [12, None], "_kind": ["+U", "-D"]})
        write_while(table, late, lambda: other.write(pa.table({"id": [1, 2, 4], "value": [11, 21, 41]})))
        assert _rows(table) == {1: 12, 3: 30, 4: 41}
        until(lambda: _last_of_each_key(table) == _rows(table), what="a foreign reader has the table")
        other.rollback(2)
        table.write(pa.table({"id": [3], "_kind": ["-D"]}))
        assert _rows(table) == {1: 11, 2: 21, 4: 41}
        until(lambda: _last_of_each_key(table) == _rows(table), what="a foreign reader has the table")
        assert _followed(table) == _rows(table)
        store.drop_table("shop.t")


def _rows(table: Table) -> dict[int, int]:
    return {row["id"]: row["value"] for row in table.scan().to_arrow().to_pylist()}


def _last_of_each_key(table: Table) -> dict[int, int]:
    config = table.opened.log_config()
    assert config is not None
    consumer = KafkaConsumer(
        bootstrap_servers=config.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        group_id=None,
    )
    consumer.assign([TopicPartition(config.topic, 0)])
    polled = consumer.poll(timeout_ms=500)
    consumer.close()
    found = {r.key: r.value for records in polled.values() for r in records if r.key is not None}
    return {json.loads(k)["id"]: json.loads(v)["after"]["value"] for k, v in found.items() if v is not None}


def _followed(table: Table) -> dict[int, int]:
    state: dict[int, int] = {}
    for batch in table.follow(version=0, stop=table.snapshots()[0].version):
        for row in batch.to_pylist():
            state.pop(row["id"], None)
            if row["_kind"] in ("+I", "+U"):
                state[row["id"]] = row["value"]
    return state
