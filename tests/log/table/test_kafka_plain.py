"""The log in Kafka without Kafka's transactions: the contract of every log, and what the snapshot alone decides."""

from __future__ import annotations

import os
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient

from filestore.ambient import system_ambient
from filestore.errors import InvalidRequest, NotFound, Unavailable
from filestore.model.log_range import LogRange
from log.kafka.transactions import ProducerState
from log.table.config import LogConfig
from log.table.on_kafka.settings import topic_of
from log.table.on_kafka.writer import PlainWriter
from log.table.store import EndReport, LogStore
from log.table.systems import open_log
from tests.conformance.log_store import LogStoreTests, changes, ids_of, make_config, prepared, transaction_id
from tests.log.table.foreign import change_topic, foreign_ids, kafka_config
from tests.servers.kafka import KafkaBroker, quiet
from tests.waiting import until


class TestPlainKafkaLog(LogStoreTests):
    @pytest.fixture
    def config(self, kafka_broker: KafkaBroker) -> LogConfig:
        return kafka_config(kafka_broker, **{"log.kafka.transactions": "false"})

    def test_other_consumers_see_records_at_once_also_those_of_writers_that_give_up(
        self, log: LogStore, config: LogConfig
    ) -> None:
        writer = log.begin(transaction_id(config))
        writer.append(0, changes([1]))
        assert writer.prepare() is not None
        writer.abort()
        transaction = prepared(log, config, 0, changes([2]))
        assert foreign_ids(config) == [1, 2]
        assert log.abort_unnamed(lambda ids: ids) == []
        assert ids_of(log.read([transaction])) == [2]

    def test_a_writer_says_that_the_topic_is_gone_and_does_not_ask_for_a_retry(
        self, log: LogStore, config: LogConfig, kafka_broker: KafkaBroker
    ) -> None:
        prepared(log, config, 0, changes([1]))  # its producer is kept, and knows the topic
        admin = AdminClient(quiet(kafka_broker.bootstrap))
        admin.delete_topics([topic_of(config)])[topic_of(config)].result()
        until(lambda: not log.exists(), what="the topic is gone")
        writer = log.begin(transaction_id(config))
        with pytest.raises(NotFound, match=r"has no topic .* `tablestore new-log ") as caught:
            writer.append(0, changes([2]))
            writer.prepare()
        writer.abort()
        assert caught.value.code == "log-not-found"

    def test_ending_is_no_request(self, log: LogStore, config: LogConfig) -> None:
        transaction = prepared(log, config, 0, changes([1]))
        report = EndReport(ended=(transaction.id,))
        with open_log(replace(config, bootstrap_servers="127.0.0.1:9"), system_ambient()) as unreachable:
            assert unreachable.end([transaction], commit=True) == report
            assert unreachable.end([transaction], commit=False) == report

    def test_offsets_have_no_gaps_and_ranges_are_exact(self, log: LogStore, config: LogConfig) -> None:
        one, two = log.begin(transaction_id(config)), log.begin(transaction_id(config))
        for number in range(3):
            one.append(0, changes(range(number * 10, number * 10 + 10)))
            two.append(0, changes([number]))
        first, second = one.prepare(), two.prepare()
        third = prepared(log, config, 0, changes([5]))
        assert first is not None
        assert second is not None
        assert log.end_offsets()[0] == 34
        assert sum(r.count for t in (first, second, third) for r in t.ranges) == 34
        assert third.ranges == (LogRange(0, 33, 34, 1),)

    def test_a_record_that_is_refused_amid_others_fails_the_transaction(self, log: LogStore, config: LogConfig) -> None:
        """Its own delivery is not reported: only a chunk's first and last message are."""
        change_topic(config, **{"max.message.bytes": "2000"})
        rows = changes([1, 2, 3])
        large = rows.set_column(2, "name", pa.array(["a", os.urandom(5000).hex(), "c"]))
        writer = log.begin(transaction_id(config))
        with pytest.raises(InvalidRequest) as caught:
            writer.append(0, large)
            writer.prepare()
        assert caught.value.code == "message-too-large"
        writer.abort()
        assert ids_of(log.read([prepared(log, config, 0, changes([4]))])) == [4]


class _Desk:
    """A log whose partitions hold what a test says."""

    def __init__(self, stored: dict[int, ProducerState]) -> None:
        self._stored = stored

    def stored(self, buckets: list[int], producer_id: int) -> dict[int, ProducerState]:
        return self._stored


@pytest.mark.parametrize(
    "stored",
    [{}, {0: ProducerState(0, 2, -1)}, {0: ProducerState(1, 3, -1)}, {0: ProducerState(0, 4, -1)}],
    ids=["nothing", "too few", "after another beginning", "too many"],
)
def test_what_the_partitions_hold_must_be_what_was_sent(stored: dict[int, ProducerState]) -> None:
    config = make_config("", **{"log.system": "kafka", "log.kafka.bootstrap.servers": "127.0.0.1:9"})
    writer = PlainWriter(transaction_id(config), config, system_ambient(), _Desk(stored))  # type: ignore[arg-type]
    writer._sender.counts[0] = 3
    with pytest.raises(Unavailable, match=r"bucket 0 (holds|has)") as caught:
        writer._stored("preparing", 7, 0)
    assert caught.value.code == "log-delivery"
