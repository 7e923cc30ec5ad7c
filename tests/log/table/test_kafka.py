"""The log in Kafka, against a real broker: the contract of every log, and the errors that only a broker can cause."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from filestore.ambient import Ambient, system_ambient
from filestore.errors import (
    AlreadyExists,
    InvalidRequest,
    TableStoreError,
    Unavailable,
)
from filestore.model.log_range import LogRange, LogTransaction
from log.kafka.errors import translated
from log.table.config import LogConfig
from log.table.log_record import DebeziumJson
from log.table.on_kafka.settings import TOMBSTONE_HEADER
from log.table.store import EndReport, LogBatch, LogStore
from log.table.systems import open_log
from tests.conformance.log_store import (
    BUCKETS,
    LogTransactionTests,
    changes,
    ids_of,
    prepared,
    rows_of,
    transaction_id,
)
from tests.log.table.foreign import (
    SECONDS,
    change_topic,
    foreign_ids,
    foreign_values,
    kafka_config,
    kafka_python_ids,
)
from tests.servers.kafka import KafkaBroker, quiet
from tests.waiting import until

pytestmark = pytest.mark.kafka


class TestKafkaLog(LogTransactionTests):
    @pytest.fixture
    def config(self, kafka_broker: KafkaBroker) -> LogConfig:
        return kafka_config(kafka_broker)

    # ------------------------------------------------------------------------------- the topic

    def test_the_topic_is_made_as_the_protocol_says(self, log: LogStore, config: LogConfig) -> None:
        assert config.topic == f"shop.orders.{config.table_id}"
        admin = AdminClient(quiet(config.bootstrap_servers))
        resource = ConfigResource(ResourceType.TOPIC, config.topic)
        settings = admin.describe_configs([resource])[resource].result()
        assert settings["message.timestamp.type"].value == "LogAppendTime"
        assert settings["cleanup.policy"].value == "delete"
        assert len(admin.list_topics(config.topic).topics[config.topic].partitions) == BUCKETS

    def test_a_topic_of_the_users_own_is_taken_if_it_fits(self, kafka_broker: KafkaBroker) -> None:
        admin = AdminClient(quiet(kafka_broker.bootstrap))
        own_time = {"message.timestamp.type": "LogAppendTime"}
        fits, *others = (f"own-{uuid.uuid4()}" for _ in range(4))
        wrong = [own_time | {"cleanup.policy": "compact"}, {}, own_time | {"retention.ms": "59999"}]
        topics = [
            NewTopic(name, BUCKETS, 1, config=settings)
            for name, settings in zip((fits, *others), (own_time, *wrong), strict=True)
        ]
        for future in admin.create_topics(topics).values():
            future.result()
        with open_log(kafka_config(kafka_broker, **{"log.kafka.topic": fits}), system_ambient()) as log:
            log.create()
            assert log.identity()["topic"] == fits
            log.drop()
        for name, problem in zip(
            others, ("cleanup.policy=compact", "message.timestamp.type=CreateTime", "retention.ms=59999"), strict=True
        ):
            config = kafka_config(kafka_broker, **{"log.kafka.topic": name, "log.retention": "60 s"})
            with open_log(config, system_ambient()) as log, pytest.raises(InvalidRequest, match=problem) as caught:
                log.create()
            assert caught.value.code == "log-topic"
            with open_log(config, system_ambient()) as log:
                assert log.exists()
                log.drop()

    def test_a_topic_of_another_table_with_other_partitions_is_a_clear_error(
        self, log: LogStore, config: LogConfig, ambient: Ambient
    ) -> None:
        with (
            open_log(replace(config, buckets=1), ambient) as other,
            pytest.raises(AlreadyExists, match="it has 3 partitions, not 1"),
        ):
            other.create()

    def test_a_name_that_kafka_refuses_is_an_invalid_request(self, kafka_broker: KafkaBroker) -> None:
        with (
            open_log(kafka_config(kafka_broker, **{"log.kafka.topic": "a b"}), system_ambient()) as log,
            pytest.raises(InvalidRequest),
        ):
            log.create()
        with pytest.raises(InvalidRequest) as caught:
            kafka_config(kafka_broker, **{"log.kafka.topic": "x" * 250})
        assert caught.value.code == "log-topic"

    def test_properties_that_the_protocol_depends_on_are_refused(self, kafka_broker: KafkaBroker) -> None:
        config = kafka_config(kafka_broker, **{"log.kafka.properties.transactional.id": "mine"})
        with pytest.raises(InvalidRequest) as caught:
            open_log(config, system_ambient())
        assert caught.value.code == "log-properties"

    # --------------------------------------------------------------------------- foreign readers

    def test_a_foreign_reader_of_the_topic_gets_debezium_json(self, log: LogStore, config: LogConfig) -> None:
        writer = log.begin(transaction_id(config))
        for kind in ("+I", "-U", "+U", "-D"):
            writer.append(1, changes([7], kind))
        transaction = writer.prepare()
        assert transaction is not None
        log.end([transaction], commit=True)
        values = foreign_values(config, dict.fromkeys(range(BUCKETS), 0), "read_committed")
        row = {"id": 7, "name": "name 7", "price": "7.00"}
        assert [(v["op"], v["before"], v["after"], v["source"]["kind"]) for v in values] == [
            ("c", None, row, "+I"),
            ("d", row, None, "-U"),
            ("u", None, row, "+U"),
            ("d", row, None, "-D"),
        ]
        table_id, commit, _ = transaction.id.split("/")
        for number, value in enumerate(values):
            source = value["source"]
            assert source["txn"] == transaction.id
            assert source["commit"] == commit
            assert (source["db"], source["table"], source["seq"]) == ("shop", "orders", number)
            assert abs(value["ts_ms"] - time.time() * 1000) < 600_000
        assert table_id == config.table_id

    def test_read_committed_consumers_see_records_when_they_are_ended_and_not_before(
        self, log: LogStore, config: LogConfig
    ) -> None:
        committed = [prepared(log, config, b, changes([b, b + 10])) for b in range(BUCKETS)]
        assert foreign_ids(config) == []
        assert foreign_ids(config, "read_uncommitted") == [0, 1, 2, 10, 11, 12]
        log.end(committed, commit=True)
        until(lambda: foreign_ids(config) == [0, 1, 2, 10, 11, 12], what="the markers are written")
        assert kafka_python_ids(config, 6) == [0, 1, 2, 10, 11, 12]

    def test_read_committed_consumers_never_see_what_was_aborted(self, log: LogStore, config: LogConfig) -> None:
        aborted = prepared(log, config, 0, changes([1]))
        unflushed = log.begin(transaction_id(config))
        unflushed.append(0, changes([2]))
        unflushed.abort()
        committed = prepared(log, config, 0, changes([3]))
        log.end([aborted], commit=False)
        log.end([committed], commit=True)
        until(lambda: foreign_ids(config) == [3], what="the markers are written")
        assert kafka_python_ids(config, 1) == [3]

    def test_reading_at_the_logs_end_waits_for_nothing(self, log: LogStore, config: LogConfig) -> None:
        transactions = []
        for number in range(10):
            writer = log.begin(transaction_id(config))
            writer.append(0, changes([number]))
            writer.append(1, changes([number]))
            transactions.append(writer.prepare())

        def seconds() -> float:
            begun = time.monotonic()
            for number, transaction in enumerate(transactions):
                assert transaction is not None
                assert ids_of(log.read([transaction])) == [number, number]
            return time.monotonic() - begun

        # it takes 0.15 s, longer on a busy machine; with Kafka's own fetch.wait.max.ms it took 10 s each time
        until(lambda: seconds() < 5.0, what="reading that does not wait")

    # ------------------------------------------------------------------------------ foreign writers

    def test_foreign_messages_between_ours_are_passed_over(self, log: LogStore, config: LogConfig) -> None:
        writer = log.begin(transaction_id(config))
        writer.append(0, changes([1]))
        _flushed(writer)
        stranger = Producer(quiet(config.bootstrap_servers))
        for value in (b"\xff\xfe", b"", b'{"after":1}', None, b'{"source":{"txn":"other","kind":"+I"'):
            stranger.produce(config.topic or "", value, b"\xff", partition=0)
        assert stranger.flush(SECONDS) == 0
        writer.append(0, changes([2]))
        transaction = writer.prepare()
        assert transaction is not None
        assert transaction.ranges == (LogRange(0, 0, 7, 2),)
        assert ids_of(log.read([transaction])) == [1, 2]
        with log.tail({0: 0}, ["id"]) as tail:
            found = []
            while tail.offsets[0] < 7:
                found += tail.poll(1.0)
        assert [i for e in found if isinstance(e, LogBatch) for i in e.rows["id"].to_pylist()] == [1, 2]

    def test_a_null_value_that_names_its_transaction_is_a_deletion(self, log: LogStore, config: LogConfig) -> None:
        name = transaction_id(config)
        stranger = Producer(quiet(config.bootstrap_servers))
        topic = config.topic or ""
        mine = [(TOMBSTONE_HEADER, name.encode())]
        stranger.produce(topic, None, b'{"id":1}', partition=0, headers=mine)
        stranger.produce(topic, None, b'{"id":2}', partition=0)
        stranger.produce(topic, None, b'{"id":3}', partition=0, headers=[(TOMBSTONE_HEADER, b"other")])
        stranger.produce(topic, None, b'{"id":4}', partition=0, headers=mine)
        assert stranger.flush(SECONDS) == 0
        transaction = LogTransaction(name, (LogRange(0, 0, 4, 2),))
        assert rows_of(log.read([transaction])) == [(1, None, None, "-D"), (4, None, None, "-D")]

    def test_a_damaged_record_is_named_by_its_place(self, log: LogStore, config: LogConfig) -> None:
        name = transaction_id(config)
        value = DebeziumJson(config).encode(changes([1]).select([1, 2, 3, 0]), name, 0, 0).values[0]
        stranger = Producer(quiet(config.bootstrap_servers))
        stranger.produce(config.topic or "", value[:-3], partition=2)
        assert stranger.flush(SECONDS) == 0
        with pytest.raises(TableStoreError, match=r"bucket 2, offsets 0 to 0") as caught:
            list(log.read([LogTransaction(name, (LogRange(2, 0, 1, 1),))]))
        assert caught.value.code == "log-record"

    # ------------------------------------------------------------------------------------- failures

    def test_a_record_that_the_broker_refuses_fails_the_transaction(self, log: LogStore, config: LogConfig) -> None:
        change_topic(config, **{"max.message.bytes": "2000"})
        writer = log.begin(transaction_id(config))
        row = changes([2])
        large = row.set_column(2, "name", pa.array([os.urandom(5000).hex()]))
        with pytest.raises(InvalidRequest, match=r"log\.kafka\.properties\.message\.max\.bytes") as caught:
            for rows in (changes([1]), large, changes([3])):
                writer.append(0, rows)
            writer.prepare()
        assert caught.value.code == "message-too-large"
        writer.abort()
        assert ids_of(log.read([prepared(log, config, 0, changes([4]))])) == [4]

    @pytest.mark.parametrize("tombstones", [False, True])
    def test_a_record_that_the_client_refuses_fails_the_transaction(
        self, log: LogStore, config: LogConfig, tombstones: bool
    ) -> None:
        """The client does not queue a record that is larger than `message.max.bytes`, nor any record behind it."""
        kinds = pa.concat_tables([changes(range(1500)), changes([1500], "-D"), changes(range(1501, 3000))])
        names = ["x" * 1_500_000 if i == 2000 else "x" for i in range(3000)]
        with open_log(replace(config, tombstones=tombstones), system_ambient()) as refusing:
            writer = refusing.begin(transaction_id(config))
            with pytest.raises(InvalidRequest, match=r"writing log transaction .*too large") as caught:
                writer.append(0, kinds.set_column(2, "name", pa.array(names)))
            assert caught.value.code == "message-too-large"
            writer.abort()
        assert ids_of(log.read([prepared(log, config, 0, changes([4]))])) == [4]

    @pytest.mark.parametrize("tombstones", [False, True])
    def test_order_and_deletes_hold_across_the_pieces_that_are_handed_over(
        self, log: LogStore, config: LogConfig, tombstones: bool
    ) -> None:
        deleted = {0, 999, 1000, 1001, 2499}
        rows = changes(range(2500)).set_column(
            0, "_kind", pa.array(["-D" if i in deleted else "+U" for i in range(2500)])
        )
        with open_log(replace(config, tombstones=tombstones), system_ambient()) as written:
            found = rows_of(written.read([prepared(written, config, 1, rows)]))
        assert [row[0] for row in found] == [*range(2500)]
        assert {row[0] for row in found if row[-1] == "-D"} == deleted
        assert {row[0] for row in found if row[1] is None} == (deleted if tombstones else set())

    def test_a_broker_that_is_not_there_is_unavailable_soon(self, kafka_broker: KafkaBroker) -> None:
        config = replace(
            kafka_config(kafka_broker, **{"log.kafka.properties.socket.timeout.ms": "500"}),
            bootstrap_servers="127.0.0.1:9",
        )
        range_ = LogTransaction("a/b/c", (LogRange(0, 0, 1, 1),), 1, 1)
        with open_log(config, system_ambient()) as log:
            calls: list[Callable[[], object]] = [
                log.create,
                log.exists,
                log.identity,
                log.end_offsets,
                lambda: log.begin(transaction_id(config)).append(0, changes([1])),
                lambda: log.end([range_], commit=True),
                lambda: list(log.read([range_])),
                lambda: log.abort_unnamed(lambda ids: ids),
            ]
            for call in calls:
                begun = time.monotonic()
                with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9"):
                    call()
                assert time.monotonic() - begun < SECONDS

    def test_two_writers_of_one_id_the_first_is_fenced(self, log: LogStore, config: LogConfig) -> None:
        name = transaction_id(config)
        zombie = log.begin(name)
        zombie.append(0, changes([1]))
        writer = log.begin(name)
        writer.append(0, changes([2]))
        with pytest.raises(TableStoreError):
            zombie.append(0, changes([3]))
            zombie.prepare()
        transaction = writer.prepare()
        assert transaction is not None
        assert log.end([transaction], commit=True).lost == ()
        assert ids_of(log.read([transaction])) == [2]
        until(lambda: foreign_ids(config) == [2], what="the markers are written")

    def test_a_fatal_error_that_the_client_swallows_is_an_error_of_ours(self, config: LogConfig) -> None:
        """For 2 of 40 fenced writers a delivery report arrived between the fatal error and its exception."""
        swallowed = SystemError("<method 'flush' of 'cimpl.Producer'> returned NULL without setting an exception")
        with pytest.raises(Unavailable, match="the Kafka client gave up") as caught, translated("flushing", config):
            raise swallowed
        assert caught.value.__cause__ is swallowed

    def test_a_committed_transaction_cannot_be_aborted(self, log: LogStore, config: LogConfig) -> None:
        transaction = prepared(log, config, 0, changes([1]))
        log.end([transaction], commit=True)
        assert log.end([transaction], commit=False) == EndReport(lost=(transaction.id,))
        until(lambda: foreign_ids(config) == [1], what="it is still committed")


def _flushed(writer: Any) -> None:
    """Sends what the writer holds, as the client does after a while."""
    assert writer._sender.producer.flush(SECONDS) == 0
