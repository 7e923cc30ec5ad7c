"""Tables that are Kafka topics, without Spark: a real broker, and other Kafka clients on the other side."""

from __future__ import annotations

import json
import threading
import uuid
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.partitioner.default import murmur2

from filestore.ambient import system_ambient
from filestore.errors import Corrupt, InvalidRequest, NotFound, Unsupported
from log.connector.ranges import PartitionRange
from tablestore import KafkaTable, Store
from tablestore.topics.ranges import changes_of_range
from tablestore.topics.spec import spec_of
from tests.servers.kafka import KafkaBroker, quiet
from tests.topics import KAFKA, KEYED, PLAIN, UPSERT, Topics
from tests.waiting import until

pytestmark = pytest.mark.kafka


@pytest.fixture
def topics(store: Store, kafka_broker: KafkaBroker) -> Iterator[Topics]:
    yield Topics(store, kafka_broker)


def rows(table: KafkaTable, **how: Any) -> list[dict[str, Any]]:
    return table.scan(**how).to_arrow().to_pylist()


def by_id(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: row["id"])  # each key's changes stay in order


def test_changes_of_a_key_stay_in_order_without_keys_of_messages(topics: Topics) -> None:
    """They were in any partition, and a batch by the primary key read a row that was replaced."""
    table = topics.table(KEYED, {"connector": "kafka"}, value_format="debezium-json")
    for number in range(4):
        table.write(pa.table({"id": range(7), "v": [str(number)] * 7}))
    found = topics.records(table, 28)
    assert all(record.key is None for record in found)
    places = {(json.loads(record.value)["after"]["id"], record.partition) for record in found}
    assert len(places) == 7
    assert len({partition for _, partition in places}) > 1
    assert by_id(rows(table)) == [{"id": i, "v": str(n), "_kind": "+I"} for i in range(7) for n in range(4)]


def test_a_foreign_client_reads_what_we_write(topics: Topics) -> None:
    table = topics.table(KEYED, UPSERT)
    assert table.write(pl.DataFrame({"id": range(20), "v": ["a"] * 20})) == 20
    changes = {"id": [3, 4, 4, 5], "v": ["b", "a", "c", None], "_kind": ["+U", "-U", "+U", "-D"]}
    assert table.write(pa.table(changes)) == 3
    found = topics.records(table, 23)
    last = {json.loads(r.key)["id"]: r.value for r in found}
    assert len(found) == 23
    assert json.loads(last[3]) == {"id": 3, "v": "b"}
    assert json.loads(last[4]) == {"id": 4, "v": "c"}
    assert last[5] is None
    assert all(r.partition == (murmur2(r.key) & 0x7FFFFFFF) % 3 for r in found)
    assert len({r.partition for r in found}) == 3


def test_we_read_what_a_foreign_client_writes(topics: Topics) -> None:
    table = topics.table(KEYED, UPSERT)
    messages = [(f'{{"id":{i}}}'.encode(), json.dumps({"id": i, "v": f"v{i}"}).encode()) for i in range(5)]
    topics.produce(table, [*messages, (messages[2][0], None), (messages[2][0], messages[2][1])])
    assert by_id(rows(table)) == [
        {"id": 0, "v": "v0", "_kind": "+U"},
        {"id": 1, "v": "v1", "_kind": "+U"},
        {"id": 2, "v": "v2", "_kind": "+U"},
        {"id": 2, "v": None, "_kind": "-D"},
        {"id": 2, "v": "v2", "_kind": "+U"},
        {"id": 3, "v": "v3", "_kind": "+U"},
        {"id": 4, "v": "v4", "_kind": "+U"},
    ]
    assert table.scan(["v", "id"], where="id = 2 AND v IS NOT NULL").to_polars().rows() == [("v2", 2, "+U")] * 2
    theirs, ours = topics.records(table, 7), topics.table(KEYED, UPSERT)
    ours.write(pa.table({"id": range(5), "v": ["x"] * 5}))
    partitions = {r.key: r.partition for r in theirs}
    assert all(partitions[r.key] == r.partition for r in topics.records(ours, 5))


@pytest.mark.parametrize("name", ["json", "csv", "avro", "debezium-json", "canal-json"])
def test_every_format_there_and_back(topics: Topics, name: str) -> None:
    columns = "id BIGINT, v STRING, d DECIMAL(10,2), at TIMESTAMP, ok BOOLEAN"
    message = {"avro.timestamp_mapping.legacy": "false"} if name == "avro" else {}
    table = topics.table(columns, {"connector": "kafka", "format": name, **message}, 1)
    written = pa.table(
        {
            "id": [1, 2],
            "v": ['a,"b"', None],
            "d": pa.array(["1.50", "-2.25"]).cast(pa.decimal128(10, 2)),
            "at": pa.array([1_700_000_000_123_456, None], pa.timestamp("us", "UTC")),
            "ok": [True, False],
        }
    )
    table.write(written)
    assert table.scan().to_arrow().drop_columns("_kind").to_pylist() == written.to_pylist()
    assert {row["_kind"] for row in rows(table)} == {"+I"}


def test_raw_keys_and_values(topics: Topics) -> None:
    options = {"key_format": "raw", "value_format": "raw", "value_fields__include": "EXCEPT_KEY"}
    table = topics.table(KEYED, UPSERT, **options)
    table.write(pa.table({"id": [258], "v": ["text"]}))
    (record,) = topics.records(table, 1)
    assert (record.key, record.value) == ((258).to_bytes(8, "big"), b"text")
    assert rows(table) == [{"id": 258, "v": "text", "_kind": "+U"}]


def test_prefixes_and_halves(topics: Topics) -> None:
    table = topics.table(
        "k_id BIGINT, id STRING",
        KAFKA,
        key_format="json",
        key_fields="k_id",
        key_fields__prefix="k_",
        value_fields__include="EXCEPT_KEY",
    )
    table.write(pa.table({"k_id": [1], "id": ["one"]}))
    topics.produce(table, [(b'{"id":2}', b'{"id":"two"}'), (None, b'{"id":"none"}')])
    found = {(row["k_id"], row["id"], row["_kind"]) for row in rows(table)}
    assert found == {(1, "one", "+I"), (2, "two", "+I"), (None, "none", "+I")}


def test_a_value_that_contradicts_its_key(topics: Topics) -> None:
    table = topics.table(PLAIN, KAFKA, key_format="json", key_fields="id", fields_verify__integrity="true")
    topics.produce(table, [(b'{"id":1}', b'{"id":9,"v":"a"}')])
    with pytest.raises(Corrupt, match="column 'id' differs between key and value"):
        rows(table)


def test_metadata_is_read_and_written(topics: Topics) -> None:
    table = topics.table(
        "id BIGINT, at TIMESTAMP METADATA FROM 'timestamp', h MAP<STRING, STRING> METADATA FROM 'headers', "
        "p INT METADATA FROM 'partition' VIRTUAL, o BIGINT METADATA FROM 'offset' VIRTUAL, "
        "t STRING METADATA FROM 'topic' VIRTUAL, e INT METADATA FROM 'leader-epoch' VIRTUAL, "
        "k STRING METADATA FROM 'timestamp-type' VIRTUAL",
        KAFKA,
        1,
    )
    at = datetime.now(UTC).replace(microsecond=0)
    headers = pa.array([[("a", "x")], None], pa.map_(pa.string(), pa.string()))
    table.write(pa.table({"id": [1, 2], "at": pa.array([at, at], pa.timestamp("us", "UTC")), "h": headers}))
    table.write(pa.table({"id": [3]}))
    topics.produce(
        table, [(None, b'{"id":4}')], timestamp_ms=int(at.timestamp() * 1000), headers=[("b", b"1"), ("b", b"2")]
    )
    sent = topics.records(table, 4)
    assert [(r.timestamp, r.headers) for r in sent[:2]] == [
        (int(at.timestamp() * 1000), [("a", b"x")]),
        (int(at.timestamp() * 1000), []),
    ]
    one, two, three, four = rows(table)
    topic = table.declaration.topic
    assert one == {
        **{"id": 1, "at": at, "h": [("a", "x")], "p": 0, "o": 0, "t": topic, "e": 0, "k": "CreateTime", "_kind": "+I"}
    }
    assert (two["o"], two["h"]) == (1, [])
    assert abs((three["at"] - datetime.now(UTC)).total_seconds()) < 600
    assert (four["at"], four["h"]) == (at, [("b", "2")])
    with pytest.raises(InvalidRequest, match="VIRTUAL"):
        table.write(pa.table({"id": [1], "o": [1]}))


def test_where_readers_begin(topics: Topics) -> None:
    table = topics.table("id BIGINT, at TIMESTAMP METADATA FROM 'timestamp'", KAFKA, 1)
    day = int(datetime.now(UTC).timestamp()) // 86400 * 86_400_000  # the broker soon deletes old records
    times = pa.array([day + 1000, day + 2000, day + 3000], pa.timestamp("ms", "UTC"))
    table.write(pa.table({"id": [1, 2, 3], "at": times}))

    def ids(**options: str) -> list[int]:
        named = {f"scan.startup.{name.replace('_', '-')}": value for name, value in options.items()}
        return [row["id"] for row in rows(table, columns=["id"], options=named)]

    assert ids() == [1, 2, 3]
    assert ids(mode="latest-offset") == []
    for millis, found in ((1500, [2, 3]), (1999, [2, 3]), (2000, [2, 3]), (2001, [3])):
        assert ids(mode="timestamp", timestamp_millis=str(day + millis)) == found
    assert ids(mode="timestamp", timestamp_millis=str(day + 9_000)) == []
    assert ids(mode="specific-offsets", specific_offsets="partition:0,offset:2") == [3]
    with pytest.raises(NotFound, match="offset 7 is not in partition 0") as caught:
        ids(mode="specific-offsets", specific_offsets="partition:0,offset:7")
    assert caught.value.code == "offset-gone"
    planned = table.scan(["id"])
    table.write(pa.table({"id": [4]}))
    assert planned.to_arrow().num_rows == 3  # the scan ends where the topic ended when it was planned


def test_malformed_messages_fail_are_skipped_or_put_aside(topics: Topics) -> None:
    letters = topics.table("v STRING", {"connector": "kafka", "format": "raw"}, 1)
    table = topics.table(PLAIN, KAFKA, 1)
    topics.produce(table, [(None, b'{"id":1}'), (b"k", b"{bad"), (None, b'{"id":2}')], headers=[("own", b"1")])
    topic = table.declaration.topic
    with pytest.raises(Corrupt, match=rf"{topic}, partition 0, offset 1") as caught:
        rows(table)
    assert caught.value.code == "malformed-record"
    aside = {
        "scan.malformed-records": "dead-letter",
        "scan.dead-letter-topic": letters.declaration.topic,
    }
    for options in ({"scan.malformed-records": "skip"}, aside):
        assert [row["id"] for row in rows(table, options=options)] == [1, 2]
    (letter,) = topics.records(letters, 1)
    headers = dict(letter.headers)
    assert (letter.key, letter.value, headers["own"]) == (b"k", b"{bad", b"1")
    assert [headers[f"tablestore.{n}"] for n in ("topic", "partition", "offset")] == [topic.encode(), b"0", b"1"]
    assert headers["tablestore.reason"]


def test_a_transaction_is_seen_whole_or_not_at_all(topics: Topics) -> None:
    table = topics.table(PLAIN, KAFKA, sink_semantic="exactly-once")
    for count in (1, 2):
        table.write(pa.table({"id": [1, 2, 3], "v": ["a"] * 3}))
        assert len(rows(table)) == 3 * count  # at once

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": pa.array([4] * 20_000), "v": ["b"] * 20_000})
        yield pa.record_batch({"id": pa.array([None], pa.int64()), "v": ["c"]})
        raise InvalidRequest("the source is broken", code="bad-rows")

    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    with pytest.raises(InvalidRequest, match="the source is broken"):
        table.write(pa.RecordBatchReader.from_batches(schema, batches()))
    assert len(rows(table)) == 6
    assert len(topics.records(table, 6, isolation_level="read_committed")) == 6
    assert table.write(pa.table({"id": [5], "v": ["d"]})) == 1
    assert len(rows(table)) == 7


def test_others_open_transactions_are_not_read_and_hold_up_no_batch(topics: Topics) -> None:
    table = topics.table(PLAIN, KAFKA, 1)
    table.write(pa.table({"id": [1], "v": ["a"]}))
    producer = Producer({**quiet(topics.broker.bootstrap), "transactional.id": str(uuid.uuid4())})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(table.declaration.topic, b'{"id":2}')
    producer.flush()
    table.write(pa.table({"id": [3], "v": ["a"]}))
    assert [row["id"] for row in rows(table)] == [1]
    producer.abort_transaction(30)
    until(lambda: [row["id"] for row in rows(table)] == [1, 3], what="the transaction has ended")


def test_nothing_is_promised_and_it_still_arrives_here(topics: Topics) -> None:
    table = topics.table(PLAIN, KAFKA, sink_semantic="none")

    def arrives() -> bool:
        """Writes again in each turn: a broker that is not ready for a new topic drops what nobody waits for."""
        assert table.write(pa.table({"id": [1, 2], "v": ["a", "b"]})) == 2
        return {row["id"] for row in rows(table)} == {1, 2}

    until(arrives, what="both are there")


def test_following_continues_until_it_is_stopped(topics: Topics) -> None:
    table = topics.table(KEYED, UPSERT)
    table.write(pa.table({"id": [1, 2], "v": ["a", "a"]}))
    stop, seen = threading.Event(), list[dict[str, Any]]()

    def follow() -> None:
        for batch in table.follow(["v", "id"], stop=stop):
            seen.extend(batch.to_pylist())

    reader = threading.Thread(target=follow)
    reader.start()
    until(lambda: len(seen) == 2, what="what was there")
    table.write(pa.table({"id": [1], "v": [None], "_kind": ["-D"]}))
    until(lambda: len(seen) == 3, what="the delete")
    stop.set()
    reader.join(300)
    assert not reader.is_alive()
    assert by_id(seen)[1] == {"v": None, "id": 1, "_kind": "-D"}
    already = threading.Event()
    already.set()
    assert sum(batch.num_rows for batch in table.follow(stop=already)) == 3  # old records are emitted, too


def test_a_consumer_goes_on_where_it_was(topics: Topics) -> None:
    table, consumer = topics.table(PLAIN, KAFKA, 2), f"report-{uuid.uuid4()}"
    latest = {"scan.startup.mode": "latest-offset"}

    def reported(**how: Any) -> list[int]:
        found = table.follow(["id"], consumer=consumer, stop=lambda: True, **how)
        return sorted(id_ for batch in found for id_ in batch["id"].to_pylist())

    table.write(pa.table({"id": range(5), "v": ["a"] * 5}))
    assert reported() == [0, 1, 2, 3, 4]
    assert reported() == []
    table.write(pa.table({"id": range(5, 9), "v": ["b"] * 4}))
    with closing(table.follow(["id"], consumer=consumer, stop=lambda: True)) as left:
        assert next(left).num_rows > 0  # batches that were not read are not consumed
    assert reported(options=latest, mode="changelog") == [5, 6, 7, 8]
    assert reported() == []
    group = Consumer({**quiet(topics.broker.bootstrap), "group.id": consumer})
    kept = group.committed([TopicPartition(table.declaration.topic, partition) for partition in range(2)], timeout=20)
    assert sum(at.offset for at in kept) == 9


@pytest.mark.parametrize("how", ["consumer", "state"])
def test_messages_before_the_first_saved_place_are_not_lost(topics: Topics, folder: Path, how: str) -> None:
    """A reader of ``latest-offset`` that had received nothing began at another offset each time it was started."""
    table = topics.table(KEYED, {"connector": "kafka", "format": "debezium-json"}, 2)
    latest = {"scan.startup.mode": "latest-offset"}
    place: dict[str, Any] = {"consumer": f"report-{uuid.uuid4()}"}
    if how == "state":
        place = {"mode": "changelog", "state": str(folder / "state")}

    def follow() -> Generator[pa.RecordBatch]:
        return table.follow(["id"], options=latest, stop=lambda: True, **place)

    def ids(batches: Iterable[pa.RecordBatch]) -> list[int]:
        return sorted(id_ for batch in batches for id_ in batch["id"].to_pylist())

    table.write(pa.table({"id": [0], "v": ["before"]}))
    assert ids(follow()) == []
    table.write(pa.table({"id": [1], "v": ["a"]}))
    begun = follow()  # the call of `follow` decides where it begins
    table.write(pa.table({"id": [2], "v": ["a"]}))
    assert ids(begun) == [1, 2]
    table.write(pa.table({"id": [3], "v": ["a"]}))
    with closing(follow()) as stopped:
        assert ids([next(stopped)]) == [3]
    table.write(pa.table({"id": [4], "v": ["a"]}))
    assert ids(follow()) == [3, 4], "the batch of the stopped reader, and the later one"


def test_a_consumers_place_moves_with_each_batch_and_a_gap_is_noticed(topics: Topics) -> None:
    table, consumer = topics.table(PLAIN, KAFKA, 1), f"report-{uuid.uuid4()}"
    table.write(pa.table({"id": range(7), "v": ["a"] * 7}))

    def follow() -> Generator[pa.RecordBatch]:
        return table.follow(["id"], consumer=consumer, stop=lambda: True, max_rows_per_batch=2)

    def trim(before: int) -> None:
        admin = AdminClient(quiet(topics.broker.bootstrap))
        [trimmed] = admin.delete_records([TopicPartition(table.declaration.topic, 0, before)]).values()
        trimmed.result(30)

    with closing(follow()) as first:
        assert [next(first)["id"].to_pylist() for _ in range(2)] == [[0, 1], [2, 3]]
    with closing(follow()) as second:
        assert next(second)["id"].to_pylist() == [2, 3], "the batch that was in hand"
    trim(2)
    with closing(follow()) as third:
        assert next(third)["id"].to_pylist() == [2, 3]
    trim(4)
    with pytest.raises(NotFound, match=f"position of consumer '{consumer}'") as caught:
        list(follow())
    assert caught.value.code == "offset-gone"


def test_a_gap_before_the_first_batch_was_taken_is_noticed(topics: Topics) -> None:
    table, consumer = topics.table(PLAIN, KAFKA, 1), f"report-{uuid.uuid4()}"
    table.write(pa.table({"id": range(4), "v": ["a"] * 4}))
    with closing(table.follow(["id"], consumer=consumer, max_rows_per_batch=2)) as first:
        assert next(first)["id"].to_pylist() == [0, 1]
    admin = AdminClient(quiet(topics.broker.bootstrap))
    [trimmed] = admin.delete_records([TopicPartition(table.declaration.topic, 0, 3)]).values()
    trimmed.result(30)
    with pytest.raises(NotFound, match="offset 0 is not there"):
        list(table.follow(["id"], consumer=consumer, stop=lambda: True))


def test_a_consumer_of_upserts_that_are_completed_has_its_place_with_the_rows(topics: Topics) -> None:
    with pytest.raises(InvalidRequest, match="the folder in state has the position") as caught:
        next(topics.table(KEYED, UPSERT, 2).follow(mode="changelog", consumer="report"))
    assert caught.value.code == "consumer-unused"


def test_a_batch_of_a_follower_has_at_most_so_many_rows(topics: Topics, folder: Path) -> None:
    table, state = topics.table(KEYED, UPSERT, 2), str(folder / "state")

    def reported(mode: str, state: str | None = None) -> list[tuple[int, str, str]]:
        batches = list(table.follow(mode=mode, state=state, max_rows_per_batch=3, stop=lambda: True))
        assert max(batch.num_rows for batch in batches) == 3
        return sorted((row["id"], row["_kind"], row["v"]) for batch in batches for row in batch.to_pylist())

    table.write(pa.table({"id": range(10), "v": ["a"] * 10}))
    assert reported("changelog", state) == [(key, "+I", "a") for key in range(10)]
    table.write(pa.table({"id": range(10), "v": ["b"] * 10}))
    assert reported("changelog", state) == [(key, *rest) for key in range(10) for rest in (("+U", "b"), ("-U", "a"))]
    assert reported("upsert") == [(key, "+U", v) for key in range(10) for v in "ab"]
    assert replay(reported("changelog")) == dict.fromkeys(range(10), "b")
    with pytest.raises(InvalidRequest, match="max_rows_per_batch=0") as caught:
        next(table.follow(max_rows_per_batch=0))
    assert caught.value.code == "bad-option-value"


def test_a_follower_sees_transactions_whole_and_ends_behind_their_markers(topics: Topics) -> None:
    table = topics.table(PLAIN, KAFKA, 2, sink_semantic="exactly-once")
    stop, seen = threading.Event(), list[int]()

    def follow() -> None:
        for batch in table.follow(stop=stop):
            seen.extend(batch["id"].to_pylist())

    reader = threading.Thread(target=follow)
    reader.start()
    for first in (0, 10):
        table.write(pa.table({"id": range(first, first + 10), "v": ["a"] * 10}))
        until(lambda: len(seen) == first + 10, what="all of it")  # noqa: B023
    stop.set()
    reader.join(300)
    assert not reader.is_alive()
    assert sorted(seen) == list(range(20))


def test_dead_letters_need_their_topic(topics: Topics) -> None:
    letters = {"scan.malformed-records": "dead-letter", "scan.dead-letter-topic": "nowhere"}
    with pytest.raises(InvalidRequest, match=r"scan\.dead-letter-topic = 'nowhere'") as caught:
        topics.table(PLAIN, KAFKA | letters)
    assert caught.value.code == "topic-not-found"
    with pytest.raises(NotFound, match="'nowhere'"):
        rows(topics.table(PLAIN, KAFKA), options=letters)


def test_a_follower_finds_new_partitions(topics: Topics) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    table = topics.table(PLAIN, KAFKA, 1, scan_topic__partition__discovery_interval="1 ms")
    stop, seen = threading.Event(), list[int]()

    def follow() -> None:
        for batch in table.follow(stop=stop):
            seen.extend(batch["id"].to_pylist())

    reader = threading.Thread(target=follow)
    reader.start()
    admin = AdminClient(quiet(topics.broker.bootstrap))
    topic = table.declaration.topic
    admin.create_partitions([NewPartitions(topic, 4)])[topic].exception()  # an error may be reported though it is done
    until(lambda: len(table.offsets()) == 4, what="four partitions")
    foreign = Producer(quiet(topics.broker.bootstrap))
    for partition in range(4):
        foreign.produce(topic, json.dumps({"id": partition}).encode(), partition=partition)
    foreign.flush()
    until(lambda: len(seen) >= 4, what="a row of each partition")
    stop.set()
    reader.join(300)
    assert Counter(seen) == Counter(range(4))


def test_batches_are_bounded_and_rows_come_in_order(topics: Topics) -> None:
    table = topics.table("id BIGINT", KAFKA, 1)
    table.write(pa.table({"id": range(50_000)}))
    batches = list(table.scan().to_batches())
    assert max(b.num_rows for b in batches) <= 20_000
    assert pa.Table.from_batches(batches)["id"].to_pylist() == list(range(50_000))


def test_a_message_that_is_too_large(topics: Topics) -> None:
    table = topics.table(PLAIN, KAFKA, 1, properties_message_max_bytes="10000")
    with pytest.raises(InvalidRequest, match=r"message\.max\.bytes") as caught:
        table.write(pa.table({"id": [1], "v": ["x" * 20_000]}))
    assert caught.value.code == "message-too-large"
    assert table.write(pa.table({"id": [1], "v": ["x"]})) == 1
    assert len(rows(table)) == 1


def test_a_topic_that_is_gone(topics: Topics) -> None:
    from confluent_kafka.admin import AdminClient

    table = topics.table(PLAIN, KAFKA, 1)
    admin = AdminClient(quiet(topics.broker.bootstrap))
    admin.delete_topics([table.declaration.topic])[table.declaration.topic].result()
    until(lambda: table.declaration.topic not in admin.list_topics(timeout=30).topics, what="it is gone")
    for call in (lambda: rows(table), lambda: table.write(pa.table({"id": [1]})), lambda: next(table.follow())):
        with pytest.raises(NotFound) as caught:
            call()
        assert caught.value.code == "topic-not-found"


def test_the_store_knows_what_it_is(topics: Topics) -> None:
    table = topics.table(KEYED, UPSERT, properties_sasl_password="geheim", allow__literal__secrets="true")
    name = table.identifier
    opened = topics.store.kafka_table(name)
    assert opened.declaration == table.declaration
    assert opened.schema == table.schema
    assert name.partition(".")[2] in topics.store.list_tables("shop")
    assert "geheim" not in str(opened.detail())
    for call in (lambda: topics.store.table(name), lambda: opened.rollback(1), lambda: opened.location):
        with pytest.raises(Unsupported, match="upsert-kafka") as caught:
            call()
        assert caught.value.code == "connector-table"
    assert not hasattr(opened, "nonsense")
    topics.store.drop_table(name)
    assert rows(opened) == []  # the topic stays


def test_upserts_become_complete_changes_and_go_on_after_a_restart(topics: Topics, folder: Path) -> None:
    table, state = topics.table(KEYED, UPSERT, 2), str(folder / "state")

    def reported(**how: Any) -> list[tuple[int, str, str]]:
        found = [row for batch in table.follow(mode="changelog", state=state, **how) for row in batch.to_pylist()]
        return sorted((row["id"], row["_kind"], row["v"]) for row in found)

    table.write(pa.table({"id": [1, 2, 1, 3], "v": ["a", "b", "c", "d"]}))
    table.write(pa.table({"id": [3, 9], "v": [None, None], "_kind": ["-D", "-D"]}))
    reader = table.follow(mode="changelog", state=state, stop=lambda: True)
    first = next(reader)  # the reader is closed before it asks for more
    reader.close()
    seen = reported(stop=lambda: True)
    assert {(row["id"], row["_kind"], row["v"]) for row in first.to_pylist()} <= set(seen)
    assert replay(seen) == {1: "c", 2: "b"}
    table.write(pa.table({"id": [1, 2, 4], "v": ["c", None, "e"], "_kind": ["+U", "-D", "+U"]}))
    assert reported(stop=lambda: True) == [(2, "-D", "b"), (4, "+I", "e")]
    assert reported(stop=lambda: True) == []
    whole = table.scan(["v", "id"], where="v = 'b'", mode="changelog").to_arrow().to_pylist()
    assert whole in ([{"v": "b", "id": 2, "_kind": k} for k in kinds] for kinds in (["+I", "-D"], []))
    with pytest.raises(NotFound) as caught:
        topics.table(KEYED, UPSERT, 2).follow(mode="changelog", state=state, stop=lambda: True).__next__()
    assert caught.value.code == "topic-replaced"


def test_a_task_normalizes_a_range_and_again(topics: Topics, folder: Path) -> None:
    """Each range is normalized twice, as a task of Spark may do."""
    table = topics.table(KEYED, UPSERT, 2)
    declaration, ambient = table.declaration, system_ambient()
    spec = spec_of(declaration, str(folder / "state"), None)
    found: list[tuple[int, str, str]] = []
    begin = {p: first for p, (first, _) in table.offsets().items()}
    before = dict(begin)
    for step in range(3):
        table.write(pa.table({"id": range(10), "v": [f"{step}-{i % (step + 1)}" for i in range(10)]}))
        for partition, (_, end) in table.offsets().items():
            part = PartitionRange(partition, before[partition], end)
            reported = [
                [
                    row
                    for batch in changes_of_range(declaration, spec, "id", begin[partition], part, ambient)
                    for row in batch.to_pylist()
                ]
                for _ in range(2)
            ]
            assert reported[0] == reported[1]
            found += [(row["id"], row["_kind"], row["v"]) for row in reported[0]]
            before[partition] = end
    assert replay(sorted(found)) == {i: f"2-{i % 3}" for i in range(10)}
    part = PartitionRange(0, begin[0], before[0])
    with pytest.raises(NotFound, match="another topic"):
        list(changes_of_range(declaration, spec, "made anew", begin[0], part, ambient))
    elsewhere = spec_of(declaration, str(folder / "another worker's"), None)
    with pytest.raises(InvalidRequest, match="all workers"):
        list(changes_of_range(declaration, elsewhere, "id", begin[0], replace(part, start=begin[0] + 1), ambient))
    assert sum(kind == "+I" for _, kind, _ in found) == 10


def test_debezium_without_rows_before_becomes_complete(topics: Topics) -> None:
    keyed = topics.table(KEYED, {"connector": "kafka", "format": "debezium-json"}, 1)
    events = [("c", None, "a"), ("u", None, "b"), ("u", "b", "b"), ("u", "b", "c"), ("d", "?", None)]
    for op, before, after in events:
        images = {name: None if v is None else {"id": 1, "v": v} for name, v in (("before", before), ("after", after))}
        topics.produce(keyed, [(b"1", json.dumps({**images, "op": op}).encode())])
    found = [(row["_kind"], row["v"]) for row in rows(keyed, mode="changelog")]
    assert replay([(1, kind, v) for kind, v in found]) == {}
    assert [kind for kind, _ in found] in ([], ["+I", "-D"], ["+I", "-U", "+U", "-D"], ["+I", *["-U", "+U"] * 2, "-D"])
    bare = topics.table(PLAIN, {"connector": "kafka", "format": "debezium-json"}, 1)
    with pytest.raises(InvalidRequest) as caught:
        bare.scan(mode="changelog")
    assert caught.value.code == "no-primary-key"
    plain = topics.table(PLAIN, KAFKA, 1)
    plain.write(pa.table({"id": [1, 1], "v": ["a", "b"]}))
    assert [(r["_kind"], r["v"]) for r in rows(plain, mode="changelog")] == [("+I", "a"), ("+I", "b")]
    with pytest.raises(InvalidRequest) as caught:
        next(plain.follow(mode="changelog", state="s"))
    assert caught.value.code == "state-unused"


def replay(changes: list[tuple[int, str, str]]) -> dict[int, str]:
    """Returns the rows that sorted changes lead to: those that were added and not removed."""
    left = Counter((key, value) for key, kind, value in changes if kind[0] == "+")
    left.subtract((key, value) for key, kind, value in changes if kind[0] == "-")
    return {key: value for (key, value), count in left.items() if count}
