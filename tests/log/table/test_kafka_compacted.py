"""Topics with retention and with compaction, in a real broker: what readers of ranges take, and what they refuse."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from kafka import KafkaConsumer
from kafka import TopicPartition as ForeignPartition

from filestore.ambient import system_ambient
from filestore.errors import InvalidRequest, NotFound, Unavailable
from filestore.model.log_range import LogTransaction
from log.table.config import LogConfig
from log.table.store import LogStore
from log.table.systems import open_log
from tests.conformance.log_store import changes, ids_of, prepared, rows_of
from tests.log.table.foreign import SECONDS, becomes, change_topic, kafka_config, topic_setting
from tests.servers.kafka import KafkaBroker
from tests.waiting import until
from tests.warehouses import warehouse

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

COMPACTED = {"log.kafka.cleanup.policy": "compact", "log.delete-format": "tombstone"}


@pytest.fixture
def compacted(kafka_broker: KafkaBroker) -> Iterator[tuple[LogStore, LogConfig]]:
    """A log that the broker compacts as soon as it can."""
    config = kafka_config(kafka_broker, **COMPACTED)
    with open_log(config, system_ambient()) as log:
        log.create()
        change_topic(
            config, **{"min.cleanable.dirty.ratio": "0.0", "segment.ms": "100", "max.compaction.lag.ms": "100"}
        )
        yield log, config
        log.drop()


def test_a_log_made_with_retention_has_it_and_it_can_be_changed(kafka_broker: KafkaBroker) -> None:
    config = kafka_config(kafka_broker, **{"log.retention": "2 d", "log.kafka.cleanup.policy": "compact,delete"})
    with open_log(config, system_ambient()) as log:
        log.create()
        assert topic_setting(config, "cleanup.policy") == "compact,delete"
        assert topic_setting(config, "retention.ms") == str(2 * 86_400_000)
        log.keep_for(60_000)
        becomes(config, "retention.ms", "60000")
        log.keep_for(None)
        becomes(config, "retention.ms", "604800000")
        log.drop()


@pytest.mark.deep
def test_altering_the_retention_changes_the_topic_or_nothing(kafka_broker: KafkaBroker) -> None:
    with warehouse() as store:
        options = {"log.system": "kafka", "log.kafka.bootstrap.servers": kafka_broker.bootstrap}
        table = store.create_table("shop.t", "id BIGINT", primary_key=["id"], options=options)
        config = table.opened.log_config()
        assert config is not None
        table.alter("SET log.retention = 90 min")
        becomes(config, "retention.ms", str(90 * 60_000))
        with pytest.raises(InvalidRequest, match="bucket"):
            table.alter("SET log.retention = 1 min", "SET bucket = 2")
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9"):
            table.alter("SET log.kafka.bootstrap.servers = 127.0.0.1:9", "SET log.retention = 1 min")
        assert table.definition.options.as_dict()["log.retention"] == "90 min"
        assert topic_setting(config, "retention.ms") == str(90 * 60_000)
        table.alter("UNSET log.retention")
        becomes(config, "retention.ms", "604800000")
        store.drop_table("shop.t")


def test_a_foreign_reader_sees_deletes_as_null_values(kafka_broker: KafkaBroker) -> None:
    config = kafka_config(kafka_broker, **COMPACTED)
    with open_log(config, system_ambient()) as log:
        log.create()
        transaction = prepared(log, config, 0, changes([1], "-D"))
        log.end([transaction], commit=True)
        until(lambda: _records(config) == [(b'{"id":1}', True)], what="a foreign reader sees it")
        log.drop()


def test_superseded_records_may_be_gone_and_the_last_of_each_key_comes(
    compacted: tuple[LogStore, LogConfig],
) -> None:
    log, config = compacted
    written = _written_until_compacted(log, config, kinds=("+I", "-D", "+U"))
    seen = [row for t in written for row in rows_of(log.read([t], committed_ms=_now()))]
    assert sum(r.count for t in written for r in t.ranges) > len(seen)
    last = {row[0]: row for row in seen}
    assert {key: row[-1] for key, row in last.items() if key <= 3} == {1: "+U", 2: "+U", 3: "+U"}


def test_what_is_gone_may_be_a_tombstone_once_the_broker_forgets_them(
    compacted: tuple[LogStore, LogConfig], kafka_broker: KafkaBroker
) -> None:
    log, config = compacted
    written = _written_until_compacted(log, config, kinds=("+I", "-D"))
    kept_ms = int(topic_setting(config, "delete.retention.ms"))
    first = [written[0]]
    assert ids_of(log.read(first, committed_ms=_now() - kept_ms + 600_000)) == []
    for committed_ms in (_now() - kept_ms, None):
        with pytest.raises(NotFound, match=r"tombstones may be among them.*scan=\"full\"") as caught:
            list(log.read(first, committed_ms=committed_ms))
        assert caught.value.code == "log-gap"
    with open_log(replace(config, tombstones=False), system_ambient()) as full:
        assert ids_of(full.read(first)) == []
    with open_log(replace(config, cleanup_policy="delete"), system_ambient()) as kept, pytest.raises(NotFound):
        list(kept.read(first, committed_ms=_now()))


def _written_until_compacted(log: LogStore, config: LogConfig, kinds: tuple[str, ...]) -> list[LogTransaction]:
    """Changes of the keys 1 to 3, and of others until the broker has removed the first ones."""
    written = [prepared(log, config, 0, changes([1, 2, 3], kind)) for kind in kinds]
    log.end(written, commit=True)
    end = time.monotonic() + SECONDS
    # A poll that gets nothing in its time says nothing of what the broker has.
    while not (found := _offsets(config)) or found[0] < written[0].ranges[0].end:
        assert time.monotonic() < end, "the broker compacts nothing"
        more = prepared(log, config, 0, changes([100]))  # the newest segment is never compacted: let it roll
        log.end([more], commit=True)
        written.append(more)
    return written


def _now() -> int:
    return system_ambient().now_ms()


def _offsets(config: LogConfig) -> list[int]:
    return [offset for offset, _ in _polled(config)]


def _records(config: LogConfig) -> list[tuple[bytes, bool]]:
    return [record for _, record in _polled(config)]


def _polled(config: LogConfig) -> list[tuple[int, tuple[bytes, bool]]]:
    """What kafka-python gets of bucket 0 with read_committed: offsets, keys, and whether the value is null."""
    consumer = KafkaConsumer(
        bootstrap_servers=config.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        group_id=None,
    )
    consumer.assign([ForeignPartition(config.topic, 0)])
    polled = consumer.poll(timeout_ms=500)
    consumer.close()
    return [(r.offset, (r.key, r.value is None)) for records in polled.values() for r in records]
