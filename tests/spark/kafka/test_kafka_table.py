"""Kafka tables in Spark: a real broker, and kafka-python on the other side."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from kafka.partitioner.default import murmur2
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark program gives it
from pyspark.sql.streaming.query import StreamingQuery

from filestore.errors import InvalidRequest, NotFound, Unsupported
from log.connector.declaration import KafkaDeclaration
from tablestore import KafkaTable, Store
from tablestore.spark import SparkStore
from tablestore.spark.kafka import sink as kafka_sink
from tablestore.spark.kafka.table import SparkKafkaTable
from tests.depth import sampled
from tests.log.connector.tables import declared
from tests.servers.kafka import KafkaBroker, quiet
from tests.topics import KAFKA, KEYED, PLAIN, UPSERT, Topics
from tests.waiting import until
from tests.warehouses import rows as table_rows

NOW = {"availableNow": True}
ADDRESS = {"topic": "t", "properties.bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture
def topics(store: Store, kafka_broker: KafkaBroker) -> Iterator[Topics]:
    yield Topics(store, kafka_broker)


def in_spark(lake: SparkStore, table: KafkaTable) -> SparkKafkaTable:
    return lake.kafka_table(table.identifier)


def replayed(rows: list[dict[str, Any]]) -> dict[int, Any]:
    """Returns the last value of each key without deleted ones."""
    found: dict[int, Any] = {}
    for row in rows:
        found[row["id"]] = row["v"]
        if row["_kind"] == "-D":
            del found[row["id"]]
    return found


class Sink:
    """Collects a stream's batches; fails at one if `fail_at` says so."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self.fail_at: int | None = None
        self.batches: list[list[dict[str, Any]]] = []

    def run(self, stream: DataFrame) -> list[list[dict[str, Any]]]:
        """Returns what is available now, by batch."""
        self.batches.clear()
        writer = stream.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self._checkpoint))
        query = writer.trigger(**NOW).start()
        query.awaitTermination()
        self.progress = query.lastProgress
        return self.batches

    def _take(self, frame: DataFrame, number: int) -> None:
        if number == self.fail_at:
            raise RuntimeError("the sink fails")
        self.batches.append([row.asDict() for row in frame.collect()])


# ------------------------------------------------------------------------------------------------ batches


def test_written_by_spark_and_read_by_a_foreign_client_and_the_reverse(lake: SparkStore, topics: Topics) -> None:
    local = topics.table(KEYED, UPSERT)
    table = in_spark(lake, local)
    frame = lake.spark.range(2000).selectExpr("id % 100 AS id", "CAST(id AS STRING) AS v").coalesce(2)
    assert table.write(frame) == 2000
    found = topics.records(local, 2000)
    assert len(found) == 2000
    assert all(r.partition == (murmur2(r.key) & 0x7FFFFFFF) % 3 for r in found)
    values = defaultdict(list)
    for record in found:
        values[json.loads(record.key)["id"]].append(int(json.loads(record.value)["v"]))
    assert dict(values) == {i: list(range(i, 2000, 100)) for i in range(100)}, "each key's rows in the frame's order"
    kinds = lake.spark.sql("SELECT 1L AS id, '-D' AS _kind UNION ALL SELECT 2L, '-U'")
    assert table.write(kinds) == 1
    assert [r.value for r in topics.records(local, 2001) if json.loads(r.key) == {"id": 1}][-1] is None
    topics.produce(local, [(b'{"id":2}', b'{"id":2,"v":"theirs"}'), (b'{"id":3}', None)])
    read = table.read(["v", "id"], max_records_per_task=300)
    assert read.columns == ["v", "id", "_kind"]
    assert read.rdd.getNumPartitions() >= 7
    rows = [row.asDict() for row in read.collect()]
    assert len(rows) == 2003
    assert replayed(rows) == {i: str(1900 + i) for i in range(4, 100)} | {0: "1900", 2: "theirs"}
    assert rows == [r for r in local.scan(["v", "id"]).to_arrow().to_pylist()] or Counter(map(str, rows)) == Counter(
        map(str, local.scan(["v", "id"]).to_arrow().to_pylist())
    )


@pytest.mark.deep
def test_a_frame_stays_at_its_offsets_and_its_last_rows_win_in_a_managed_table(
    lake: SparkStore, topics: Topics
) -> None:
    local = topics.table(KEYED, UPSERT)
    local.write(pa.table({"id": [i % 50 for i in range(1000)], "v": [str(i) for i in range(1000)]}))
    local.write(pa.table({"id": [7], "v": [None], "_kind": ["-D"]}))
    table = in_spark(lake, local)
    frame, capital = table.read(max_records_per_task=150), table.read()
    local.write(pa.table({"id": [1], "v": ["later"]}))
    assert (frame.count(), capital.count(), table.read().count()) == (1001, 1001, 1002)
    copy = lake.store.create_table("shop.copy", KEYED, options={"bucket": "2"})
    lake.write("shop.copy", frame)
    assert {r["id"]: r["v"] for r in table_rows(copy)} == {i: str(950 + i) for i in range(50) if i != 7}


def test_types_metadata_options_and_malformed_records(lake: SparkStore, topics: Topics) -> None:
    columns = (
        "id BIGINT, at TIMESTAMP METADATA FROM 'timestamp', h MAP<STRING, STRING> METADATA FROM 'headers', "
        "p INT METADATA FROM 'partition' VIRTUAL, o BIGINT METADATA FROM 'offset' VIRTUAL, a ARRAY<INT>, "
        "d DECIMAL(10,2)"
    )
    local = topics.table(columns, KAFKA, 1)
    table = in_spark(lake, local)
    at = datetime.now(UTC).replace(microsecond=5000, tzinfo=None)
    frame = lake.spark.sql(f"SELECT 1 AS id, TIMESTAMP '{at}' AS at, map('a', 'x') AS h, array(1, null) AS a, 1.5 AS d")
    assert table.write(frame) == 1
    (sent,) = topics.records(local, 1)
    assert (sent.timestamp, sent.headers) == (int(at.replace(tzinfo=UTC).timestamp() * 1000), [("a", b"x")])
    topics.produce(local, [(None, b"{bad"), (None, b'{"id":2}')])
    skip = {"scan.malformed-records": "skip"}
    first, second = table.read(options=skip).orderBy("o").collect()
    assert (first.id, first.h, first.p, first.o, first.a, str(first.d)) == (1, {"a": "x"}, 0, 0, [1, None], "1.50")
    assert first.at == at
    assert (second.id, second.o, second["_kind"]) == (2, 2, "+I")
    from_third = {"scan.startup.mode": "specific-offsets", "scan.startup.specific-offsets": "partition:0,offset:2"}
    assert [row.id for row in table.read(["id"], options=from_third).collect()] == [2]
    letters = topics.table("v STRING", {"connector": "kafka", "format": "raw"}, 1)
    aside = {"scan.malformed-records": "dead-letter", "scan.dead-letter-topic": letters.declaration.topic}
    assert table.read(options=aside).count() == 2
    (letter,) = topics.records(letters, 1)
    assert (letter.value, dict(letter.headers)["tablestore.offset"]) == (b"{bad", b"1")
    with pytest.raises(PythonException, match=r"partition 0, offset 1, cannot be read"):
        table.read().collect()
    by_name = lake.spark.read.format("tablestore").option("catalog", lake.store.target).options(**skip)
    assert by_name.load(local.identifier).count() == 2
    assert by_name.option("columns", '["o"]').load(local.identifier).columns == ["o", "_kind"]


def test_what_is_refused(lake: SparkStore, topics: Topics) -> None:
    local = topics.table(KEYED + ", o BIGINT METADATA FROM 'offset' VIRTUAL", UPSERT)
    table = in_spark(lake, local)
    row = lake.spark.sql("SELECT 1L AS id, 'a' AS v")
    for frame, code in (
        (row.withColumn("o", F.lit(1)), "virtual-column"),
        (row.withColumn("w", F.lit(1)), "unknown-column"),
        (row.drop("id"), "missing-column"),
        (row.withColumn("id", F.lit("x")), "bad-value"),
        (row.withColumn("id", F.lit(None).cast("long")), "null-value"),
        (row.withColumn("_kind", F.lit("?")), "format-kind"),
    ):
        with pytest.raises(InvalidRequest) as refused:
            table.write(frame)
        assert refused.value.code == code
    assert local.offsets() == {p: (0, 0) for p in range(3)}
    for options in ({"topic": "t"}, {"scan.startup.mode": "latest-offset"}):
        for read in (table.read, table.read_stream):
            with pytest.raises(InvalidRequest):
                read(options=options)
    with pytest.raises(NotFound, match="no column 'w'"):
        table.read_stream(["w"])
    lake.store.create_table("shop.managed", "id BIGINT")
    with pytest.raises(Unsupported) as managed:
        lake.kafka_table("shop.managed")
    assert managed.value.code == "managed-table"
    with pytest.raises(Unsupported, match="kafka_table, of Store or SparkStore"):
        lake.write(local.identifier, row)
    by_name = row.write.format("tablestore").option("catalog", lake.store.target).mode("append")
    with pytest.raises(AnalysisException, match="kafka_table, of Store or SparkStore"):
        by_name.save(local.identifier)


def test_exactly_once_is_all_or_nothing(lake: SparkStore, topics: Topics) -> None:
    local = topics.table(KEYED, UPSERT, sink_semantic="exactly-once")
    table = in_spark(lake, local)
    good = lake.spark.range(0, 30_000, 1, 2).selectExpr("id", "'a' AS v")
    with pytest.raises(InvalidRequest, match=r"_kind is '\?'"):  # the last row, after thousands were sent
        table.write(good.withColumn("_kind", F.expr("IF(id = 29999, '?', '+U')")))
    assert any(end for _, end in local.offsets().values())
    assert topics.records(local, 0, isolation_level="read_committed") == []
    assert table.write(good.limit(3)) == 3
    assert [json.loads(r.value)["v"] for r in topics.records(local, 3, isolation_level="read_committed")] == ["a"] * 3


@pytest.mark.parametrize(
    ("columns", "base", "parallelism", "tasks"),
    [(KEYED, UPSERT, None, [1, 3, 4]), (PLAIN, KAFKA, None, [1, None, None])]
    + [(columns, base, "7", [1, 7, 7]) for columns, base in ((KEYED, UPSERT), (PLAIN, KAFKA))],
)
def test_how_many_tasks_write(
    columns: str, base: dict[str, str], parallelism: str | None, tasks: list[int | None]
) -> None:
    table = declared(columns, base | ADDRESS, sink_parallelism=parallelism)
    counts = [kafka_sink.task_count(table, whole=True, partitions=9, shuffle=9)]
    counts += [kafka_sink.task_count(table, whole=False, partitions=p, shuffle=s) for p, s in ((3, 200), (9, 4))]
    assert counts == tasks


def test_the_rows_of_a_key_are_in_one_task_in_their_order(lake: SparkStore) -> None:
    names = "`i``d` BIGINT, v STRING, PRIMARY KEY (`i``d`) NOT ENFORCED"
    frame = lake.spark.range(0, 5000, 1, 5).selectExpr("id % 37 AS `i``d`", "CAST(id AS STRING) AS v")
    arranged = kafka_sink.arranged_rows(frame, declared(names, UPSERT | ADDRESS), 3)
    found = arranged.withColumn("task", F.spark_partition_id()).collect()
    values = defaultdict(list)
    for row in found:
        values[row.c0].append((row.task, int(row.c1)))
    assert len({task for listed in values.values() for task, _ in listed}) == 3
    for key, listed in values.items():
        assert len({task for task, _ in listed}) == 1
        assert [value for _, value in listed] == list(range(key, 5000, 37))
    keyless = declared(PLAIN, KAFKA | ADDRESS)
    assert kafka_sink.arranged_rows(frame, keyless, None).rdd.getNumPartitions() == 5
    assert kafka_sink.arranged_rows(frame, keyless, 2).rdd.getNumPartitions() == 2


@pytest.mark.parametrize("after", sampled([True, False], 2, test=2))
def test_a_task_that_dies_is_tried_again_and_writes_once(
    lake: SparkStore, topics: Topics, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """The task is killed in the middle of its transaction, or right after that was committed."""
    local = topics.table(KEYED, UPSERT, sink_semantic="exactly-once")
    write = kafka_sink._write

    def mortal(table: KafkaDeclaration, rows: Iterable[pa.Table], once: Any) -> int:
        context = TaskContext.get()
        assert context is not None
        dies = context.attemptNumber() == 0

        def some() -> Iterator[pa.Table]:
            for number, part in enumerate(rows):
                if dies and not after and number == 5:
                    os.kill(os.getpid(), signal.SIGKILL)
                yield part

        written = write(table, some(), once)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return written

    monkeypatch.setattr(kafka_sink, "_write", mortal)
    frame = lake.spark.range(0, 40_000, 1, 2).selectExpr("id", "'a' AS v")
    assert in_spark(lake, local).write(frame) == 40_000
    assert Counter(row["id"] for row in local.scan(["id"]).to_arrow().to_pylist()) == Counter(range(40_000))


# ------------------------------------------------------------------------------------------------ streams


@pytest.mark.deep
def test_a_stream_is_admitted_resumed_and_finds_new_partitions(lake: SparkStore, topics: Topics, folder: Path) -> None:
    local = topics.table(KEYED, UPSERT, 2)
    sink, stream = Sink(folder / "checkpoint"), in_spark(lake, local).read_stream(max_rows_per_batch=40)
    local.write(pa.table({"id": [i % 20 for i in range(100)], "v": [str(i) for i in range(100)]}))
    sink.fail_at = 1
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        sink.run(stream)
    seen = [row for batch in sink.batches for row in batch]
    assert len(seen) == 40
    sink.fail_at = None
    assert [len(batch) for batch in sink.run(stream)] == [40, 20]
    seen += [row for batch in sink.batches for row in batch]
    assert replayed(seen) == {i: str(80 + i) for i in range(20)}
    assert Counter(row["v"] for row in seen) == Counter(map(str, range(100)))
    (progress,) = sink.progress.sources
    assert json.loads(progress.endOffset)["offsets"] == {str(p): end for p, (_, end) in local.offsets().items()}
    assert json.loads(progress.endOffset)["topic"] == local.declaration.topic
    admin = AdminClient(quiet(topics.broker.bootstrap))
    topic = local.declaration.topic
    admin.create_partitions([NewPartitions(topic, 3)])[topic].exception()  # an error may be reported though it is done
    until(lambda: len(local.offsets()) == 3, what="three partitions")
    topics.produce(local, [(b'{"id":77}', None)], partition=2)
    assert sink.run(stream) == [[{"id": 77, "v": None, "_kind": "-D"}]]
    admin.delete_topics([topic])[topic].result()
    until(lambda: topic not in admin.list_topics(timeout=30).topics, what="it is gone")
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result()
    until(lambda: topic in admin.list_topics(timeout=30).topics, what="it is there again")
    with pytest.raises(StreamingQueryException, match="made again"):
        sink.run(stream)


@pytest.mark.deep
def test_a_stream_whose_first_batch_died_begins_where_it_began_and_reports_what_is_gone(
    lake: SparkStore, topics: Topics, folder: Path
) -> None:
    local = topics.table(PLAIN, KAFKA, 1)
    local.write(pa.table({"id": [1], "v": ["a"]}))
    latest = in_spark(lake, local).read_stream(["id"], options={"scan.startup.mode": "latest-offset"})
    sink = Sink(folder / "checkpoint")
    assert [row for batch in sink.run(latest) for row in batch] == []
    local.write(pa.table({"id": [2, 3], "v": ["a", "a"]}))
    sink.fail_at = 1
    with pytest.raises(StreamingQueryException, match="the sink fails"):
        sink.run(latest)
    local.write(pa.table({"id": [4], "v": ["a"]}))
    sink.fail_at = None
    assert [[row["id"] for row in batch] for batch in sink.run(latest)] == [[2, 3], [4]]
    from confluent_kafka import TopicPartition

    local.write(pa.table({"id": [5, 6], "v": ["a", "a"]}))
    admin = AdminClient(quiet(topics.broker.bootstrap))
    (trimmed,) = admin.delete_records([TopicPartition(local.declaration.topic, 0, 5)]).values()
    trimmed.result()
    with pytest.raises(StreamingQueryException, match="offset 4 is not there any more"):
        sink.run(latest)


# ------------------------------------------------------------------------------------------------ streams into topics


@pytest.mark.deep
def test_aggregates_of_a_stream_are_upserts_of_their_keys(lake: SparkStore, topics: Topics, folder: Path) -> None:
    """Later values of a key replace earlier ones, plain and windowed, also after restarts."""
    clicks = topics.table("page STRING, n INT, at TIMESTAMP(3)", KAFKA, 2)
    plain = topics.table("page STRING, clicks BIGINT, PRIMARY KEY (page) NOT ENFORCED", UPSERT, 2)
    windowed = topics.table(
        "begin TIMESTAMP, page STRING, clicks BIGINT, o BIGINT METADATA FROM 'offset' VIRTUAL, "
        "PRIMARY KEY (begin, page) NOT ENFORCED",
        UPSERT,
        2,
        sink_semantic="exactly-once",
    )
    stream = in_spark(lake, clicks).read_stream(max_rows_per_batch=30)
    by_page = stream.groupBy("page").agg(F.sum("n").alias("clicks"))
    hours = stream.withWatermark("at", "1 day").groupBy(F.window("at", "1 hour"), "page")
    by_hour = hours.agg(F.sum("n").alias("clicks")).select(F.col("window.start").alias("begin"), "page", "clicks")

    def run(frame: DataFrame, into: KafkaTable) -> None:
        checkpoint = str(folder / into.declaration.topic)
        in_spark(lake, into).write_stream(
            frame, checkpoint=checkpoint, output_mode="update", trigger=NOW
        ).awaitTermination()

    day = datetime(2026, 1, 31, tzinfo=UTC).timestamp()
    total, hourly = Counter[str](), Counter[tuple[int, str]]()
    for round_ in range(2):
        found = [(f"p{i % 3}", i, (i * 7 + round_) % 4) for i in range(40)]
        times = [datetime.fromtimestamp(day + hour * 3600, UTC) for *_, hour in found]
        clicks.write(
            pa.table(
                {
                    "page": [page for page, *_ in found],
                    "n": pa.array([n for _, n, _ in found], pa.int32()),
                    "at": pa.array(times, pa.timestamp("us", "UTC")),
                }
            )
        )
        for page, n, hour in found:
            total[page] += n
            hourly[hour, page] += n
        run(by_page, plain)
        run(by_hour, windowed)
    last = {json.loads(r.key)["page"]: json.loads(r.value)["clicks"] for r in topics.records(plain, 6)}
    assert last == dict(total), "as a foreign client has it"
    changes = in_spark(lake, windowed).read()
    assert changes.count() > len(hourly)
    newest = changes.groupBy("begin", "page").agg(F.max_by("clicks", "o").alias("clicks")).collect()
    assert {(r.begin.hour, r.page): r.clicks for r in newest} == dict(hourly)


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.deep
def test_a_query_ends_with_its_broker_and_goes_on_when_that_is_back(
    lake: SparkStore, store: Store, folder: Path
) -> None:
    with KafkaBroker(folder / "kafka") as broker:
        topics = Topics(store, broker)
        source = topics.table(KEYED, UPSERT, 2, properties_socket_timeout_ms="2000")
        copy = topics.table(KEYED, UPSERT, 2, sink_semantic="exactly-once", properties_socket_timeout_ms="2000")

        def start() -> StreamingQuery:
            stream, checkpoint = in_spark(lake, source).read_stream(max_rows_per_batch=70), str(folder / "checkpoint")
            return in_spark(lake, copy).write_stream(stream, checkpoint=checkpoint)

        def copied() -> Counter[str]:
            return Counter(row["v"] for row in copy.scan(["v"]).to_arrow().to_pylist())

        source.write(pa.table({"id": range(100), "v": [str(i) for i in range(100)]}))
        query = start()
        until(lambda: not query.isActive or copied().total() >= 100, 120, "the first rows")
        broker.kill()
        until(lambda: not query.isActive, 120, "the query has noticed")
        assert "Unavailable" in str(query.exception())
        broker.restart()
        source.write(pa.table({"id": range(100), "v": [str(i) for i in range(100, 200)]}))
        query = start()
        until(lambda: not query.isActive or copied().total() >= 200, 120, "all rows")
        query.stop()
        assert copied() == Counter(map(str, range(200)))


@pytest.mark.deep
@pytest.mark.parametrize("semantic", sampled(["exactly-once", "at-least-once"], 2, test=2))
def test_a_batch_that_comes_again(lake: SparkStore, topics: Topics, folder: Path, semantic: str) -> None:
    source = lake.store.create_table("shop.source", KEYED, options={"log.system": "embedded"})
    local = topics.table(KEYED, UPSERT, sink_semantic=semantic)
    committed = {"isolation_level": "read_committed"}

    def run() -> None:
        stream, checkpoint = lake.read_stream("shop.source"), str(folder / "checkpoint")
        in_spark(lake, local).write_stream(stream, checkpoint=checkpoint, trigger=NOW).awaitTermination()

    source.write(pa.table({"id": range(10), "v": ["a"] * 10}))
    run()
    source.write(pa.table({"id": [1, 2], "v": ["b", None], "_kind": ["+U", "-D"]}))
    run()
    assert len(topics.records(local, 12, **committed)) == 12
    # as if the driver had died after the batch and before Spark noted it
    last = max(int(path.name) for path in (folder / "checkpoint" / "commits").glob("[0-9]*"))
    (folder / "checkpoint" / "commits" / str(last)).unlink()
    (folder / "checkpoint" / "commits" / f".{last}.crc").unlink(missing_ok=True)
    source.write(pa.table({"id": [3], "v": ["c"]}))
    run()
    again = 2 if semantic == "at-least-once" else 0
    assert len(topics.records(local, 13 + again, **committed)) == 13 + again
    want = {i: "a" for i in range(10) if i != 2} | {1: "b", 3: "c"}
    assert replayed(local.scan().to_arrow().to_pylist()) == want


# ------------------------------------------------------------------------------------------------ complete changes


@pytest.mark.deep
def test_complete_changes_in_batches_and_streams(lake: SparkStore, topics: Topics, folder: Path) -> None:
    """They are the local reader's changes, also after a failed batch, a restart, and in another Spark session."""
    local = topics.table(KEYED, UPSERT)
    table, state = in_spark(lake, local), str(folder / "state")
    with pytest.raises(InvalidRequest) as missing:
        table.read_stream(mode="changelog")
    assert missing.value.code == "state-missing"
    with pytest.raises(InvalidRequest) as unused:
        table.read_stream(state=state)
    assert unused.value.code == "state-unused"

    def put(values: dict[int, str | None]) -> None:
        topics.produce(
            local,
            [
                (json.dumps({"id": i}).encode(), None if v is None else json.dumps({"id": i, "v": v}).encode())
                for i, v in values.items()
            ],
        )

    put({i: "a" for i in range(6)})
    put({0: "b", 1: None, 2: "a"})
    expected = sorted(local.scan(mode="changelog").to_arrow().to_pylist(), key=str)
    assert len(expected) == 5, "what a batch leaves as it was does not show"
    read = table.read(mode="changelog")
    assert sorted((row.asDict() for row in read.collect()), key=str) == expected
    assert [r["v"] for r in (row.asDict() for row in table.read(["v"], mode="changelog").collect())].count("b") == 1

    sink = Sink(folder / "checkpoint")
    sink.run(table.read_stream(mode="changelog", state=state))
    assert sorted((row for batch in sink.batches for row in batch), key=str) == expected
    put({0: "c", 3: None, 7: "new"})
    sink.fail_at = 1
    with pytest.raises(StreamingQueryException):
        sink.run(table.read_stream(mode="changelog", state=state))
    sink.fail_at = None
    sink.run(table.read_stream(mode="changelog", state=state))
    assert sorted((row for batch in sink.batches for row in batch), key=str) == [
        {"id": 0, "v": "b", "_kind": "-U"},
        {"id": 0, "v": "c", "_kind": "+U"},
        {"id": 3, "v": "a", "_kind": "-D"},
        {"id": 7, "v": "new", "_kind": "+I"},
    ]
    admin = AdminClient(quiet(local.declaration.bootstrap_servers))
    admin.create_partitions([NewPartitions(local.declaration.topic, 4)])[local.declaration.topic].result()
    until(lambda: len(local.offsets()) == 4)
    with pytest.raises(StreamingQueryException, match="had 3 partitions"):
        sink.run(table.read_stream(mode="changelog", state=state))
