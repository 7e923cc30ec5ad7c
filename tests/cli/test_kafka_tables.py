"""Tables that are Kafka topics, from the shell."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from tablestore import KafkaTable, Store, Table
from tests.cli.conftest import Run
from tests.cli.programs import Program
from tests.servers.kafka import KafkaBroker, quiet
from tests.tablestore.ingesting.debezium import ID, TEXT, Messages, make_topic
from tests.warehouses import changes

COLUMNS = "id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED"
OPTIONS = (
    "connector=upsert-kafka",
    "topic=pay",
    "key.format=json",
    "value.format=json",
    "properties.sasl.password=x-geheim",
    "allow-literal-secrets=true",
)


def create(run: Run, *more: str, columns: str = COLUMNS) -> object:
    return run("create", "shop.pay", columns, *(part for option in (*OPTIONS, *more) for part in ("-o", option)))


@pytest.mark.slow
def test_it_is_made_listed_described_and_dropped(run: Run) -> None:
    servers = ("properties.bootstrap.servers=127.0.0.1:1", "topic.check=false")
    made = create(run, *servers)
    assert made.exit_code == 0, made.stderr
    assert run("tables").stdout == "shop.pay\n"
    described = json.loads(run("describe", "shop.pay", "--format", "json").stdout)
    assert (described["connector"], described["topic"], described["primary_key"]) == ("upsert-kafka", "pay", ["id"])
    assert "geheim" not in run("describe", "shop.pay").stdout
    dropped = run("drop", "shop.pay", "--yes")
    assert (dropped.exit_code, run("tables").stdout) == (0, "")


@pytest.mark.parametrize(
    "command",
    [
        ("snapshots", "shop.pay"),
        ("scan", "shop.pay", "--version", "1"),
        ("get", "shop.pay", "1"),
        ("doctor", "shop.pay"),
        ("rollback", "shop.pay", "--version", "1"),
        ("show", "shop.pay$files"),
    ],
)
def test_what_only_managed_tables_have_is_refused(run: Run, command: tuple[str, ...]) -> None:
    create(run, "properties.bootstrap.servers=127.0.0.1:1", "topic.check=false")
    result = run(*command)
    assert result.exit_code == 1
    assert "error[connector-table]: table shop.pay has connector = upsert-kafka" in result.stderr


@pytest.mark.parametrize("option", [("--until", "1"), ("--version", "1"), ("--tag", "t"), ("--on-log-gap", "rescan")])
def test_a_follower_of_a_topic_learns_which_option_needs_versions(run: Run, option: tuple[str, str]) -> None:
    create(run, "properties.bootstrap.servers=127.0.0.1:1", "topic.check=false")
    result = run("follow", "shop.pay", *option)
    assert result.exit_code == 2
    assert f"Invalid value for {option[0]}: a Kafka topic has no versions" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), {}),
        (("--scan", "latest"), {"scan.startup.mode": "latest-offset"}),
        (("--scan", "full"), {"scan.startup.mode": "earliest-offset"}),
        (
            ("--timestamp", "1970-01-01T00:00:07Z"),
            {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": "7000"},
        ),
        (
            ("--timestamp", "1970-01-01T00:00:01.001Z"),  # as a floating-point number it was a millisecond earlier
            {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": "1001"},
        ),
        (
            ("--timestamp", "1970-01-01T00:00:01.001001Z"),
            {"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": "1002"},
        ),
        (("--scan", "latest", "--timestamp", "1970-01-01T00:00:07Z"), None),
    ],
)
def test_where_a_follower_of_a_topic_begins(
    run: Run, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], expected: dict[str, str] | None
) -> None:
    asked: list[dict[str, str]] = []

    def follow(self: KafkaTable, *, options: dict[str, str], **_: Any) -> Generator[pa.RecordBatch]:
        asked.append(options)
        yield from ()

    monkeypatch.setattr(KafkaTable, "follow", follow)
    create(run, "properties.bootstrap.servers=127.0.0.1:1", "topic.check=false")
    result = run("follow", "shop.pay", *options)
    if expected is None:
        assert result.exit_code == 2
        assert "Invalid value for --timestamp: --scan latest cannot be combined" in " ".join(result.stderr.split())
    else:
        assert (result.exit_code, asked) == (0, [expected]), result.stderr


def test_a_declaration_that_does_not_hold_is_reported(run: Run) -> None:
    result = create(run, "properties.bootstrap.servers=127.0.0.1:1", columns="id BIGINT, v STRING")
    assert result.exit_code == 1
    assert "error[connector-key]: table pay: connector = upsert-kafka needs a primary key" in result.stderr


def test_rows_go_in_and_come_out(run: Run, start: Callable[..., Program], kafka_broker: KafkaBroker) -> None:
    topic = f"pay-{uuid.uuid4()}"
    created = create(
        run, f"properties.bootstrap.servers={kafka_broker.bootstrap}", "topic.partitions=1", f"topic={topic}"
    )
    assert created.exit_code == 0, created.stderr
    written = run("write", "shop.pay", "-", stdin='{"id": 1, "v": "a"}\n{"id": 2, "v": "b"}\n')
    assert "2 messages" in written.stderr
    run("write", "shop.pay", "-", stdin='{"id": 1, "_kind": "-D"}\n')
    scanned = run("scan", "shop.pay", "--format", "json", "--where", "id = 1")
    assert [json.loads(line) for line in scanned.stdout.splitlines()] == [
        {"id": 1, "v": "a", "_kind": "+U"},
        {"id": 1, "v": None, "_kind": "-D"},
    ]
    run("write", "shop.pay", "-", stdin='{"id": 3000, "v": "c"}\n')
    following = start("follow", "shop.pay", "--max-rows", 1, "--columns", "id", "--consumer", "report")
    printed = following.out.until_count(5)
    following.interrupt()
    assert following.wait() == 0
    assert printed == ["_kind  id", "+U      1", "+U      2", "-D      1", "+U     3000"], "as wide as the rows so far"


@pytest.mark.deep
def test_a_debezium_topic_becomes_tables(run: Run, start: Callable[..., Program], kafka_broker: KafkaBroker) -> None:
    topic = f"cdc-{uuid.uuid4()}"
    make_topic(kafka_broker.bootstrap, topic, 1)
    producer = Producer(quiet(kafka_broker.bootstrap))
    messages = Messages({"id": ID, "name": TEXT})

    def send(key: int, name: str) -> None:
        sent_key, value = messages.change("c", None, {"id": key, "name": name})
        producer.produce(topic, value, sent_key)
        assert producer.flush(30) == 0

    send(1, "pen")
    made = run("ingest", topic, "--into", "shop.items", "--servers", kafka_broker.bootstrap)
    assert made.exit_code == 0, made.stderr
    assert "1 changes, version " in made.stderr
    follower = start("ingest", topic, "--into", "shop.items", "--servers", kafka_broker.bootstrap, "--follow")
    follower.err.until_any("Ctrl-C stops it")
    send(2, "cup")
    follower.err.until_any("1 changes")
    follower.interrupt()
    assert follower.wait() == 0
    scanned = run("scan", "shop.items", "--format", "json").stdout.splitlines()
    assert sorted(scanned) == ['{"id":1,"name":"pen"}', '{"id":2,"name":"cup"}']
    latest = ("--into", "shop.latest", "--servers", kafka_broker.bootstrap, "--to-topic", f"{topic}-latest")
    assert run("ingest", topic, *latest).exit_code == 0
    following = start("follow", "shop.latest", "--mode", "changelog", "--format", "json")
    assert {json.loads(line)["_kind"] for line in following.out.until_count(2)} == {"+I"}


def test_a_managed_table_needs_no_state(run: Run, orders: Table) -> None:
    result = run("follow", orders.identifier, "--state", "s")
    assert result.exit_code == 2
    assert "--consumer" in result.stderr


@pytest.mark.deep
@pytest.mark.slow
def test_a_killed_ingestion_has_each_change_once(
    run: Run, store: Store, start: Callable[..., Program], kafka_broker: KafkaBroker
) -> None:
    """Each key is once in the log, though three processes died while they ingested and more changes arrived."""
    topic, messages, sent = f"cdc-{uuid.uuid4()}", Messages({"id": ID, "name": TEXT}), 0
    make_topic(kafka_broker.bootstrap, topic, 2)
    producer = Producer(quiet(kafka_broker.bootstrap))
    command = ("ingest", topic, "--into", "shop.items", "--servers", kafka_broker.bootstrap)
    for _ in range(3):
        program: Program | None = None
        while program is None or not any("changes" in line for line in program.err.lines):
            for _ in range(20):
                key, value = messages.change("c", None, {"id": sent, "name": "x"})
                producer.produce(topic, value, key)
                sent += 1
            assert producer.flush(30) == 0
            program = program or start(*command, "--follow")
            assert program.process.poll() is None, program.err.lines
        program.process.kill()
        program.wait()
    assert run(*command).exit_code == 0
    reported = Counter(row["id"] for row in changes(store.table("shop.items"), version=0))
    assert reported == dict.fromkeys(range(sent), 1)
