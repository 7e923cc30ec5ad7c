"""Debezium topics become tables: against a real broker, with another Kafka client as the connector."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from filestore.errors import Conflict, Corrupt, InvalidRequest, NotFound
from tablestore import Ingestion, KafkaTable, Pace, Store, Table
from tests.servers.kafka import KafkaBroker, quiet
from tests.tablestore.ingesting.debezium import ID, TEXT, Messages, decimal, instant, make_topic

pytestmark = pytest.mark.kafka

Message = tuple[bytes | None, bytes | None]
ORDERS = {"id": ID, "name": TEXT, "price": decimal(10, 2), "at": instant("MicroTimestamp")}


def row(key: int, name: str | None, cents: int = 150, at: int = 0) -> dict[str, Any]:
    return {"id": key, "name": name, "price": base64.b64encode(cents.to_bytes(4, "big")).decode(), "at": at}


class Source:
    """A topic and the connector that writes it."""

    def __init__(self, store: Store, broker: KafkaBroker, partitions: int = 2) -> None:
        self.store = store
        self.servers = broker.bootstrap
        self.topic = f"cdc.shop.{uuid.uuid4()}"
        make_topic(self.servers, self.topic, partitions)

    def send(self, messages: Sequence[Message]) -> None:
        producer = KafkaProducer(bootstrap_servers=self.servers)
        for key, value in messages:
            producer.send(self.topic, value, key)
        producer.flush()
        producer.close()

    def ingest(self, into: str = "shop.orders", **how: Any) -> Ingestion:
        return self.store.ingest(self.topic, into, servers=self.servers, **how)

    def table(self, name: str = "shop.orders") -> Table:
        return self.store.table(name)


@pytest.fixture
def source(store: Store, kafka_broker: KafkaBroker) -> Iterator[Source]:
    yield Source(store, kafka_broker)


def test_a_managed_table_is_made_and_kept(source: Source) -> None:
    """Snapshot, changes, tombstones and a changed key are ingested; after a restart each change is there once."""
    orders = Messages(ORDERS)
    moved = orders.change("d", row(3, "c"), None)
    source.send(
        [
            *(orders.change("r", None, row(key, name)) for key, name in ((1, "a"), (2, "b"), (3, "c"))),
            orders.change("u", row(1, "a"), row(1, "A", 199, 1_700_000_000_123_456)),
            orders.change("d", row(2, "b"), None),
            (orders.change("d", row(2, "b"), None)[0], None),
            moved,
            (moved[0], None),
            orders.change("c", None, row(30, "c")),
        ]
    )
    ingestion = source.ingest()
    assert ingestion.copy().rows == 8  # an update is two
    table = source.table()
    assert table.definition.schema.to_sql() == (
        "`id` BIGINT NOT NULL, `name` STRING, `price` DECIMAL(10,2), `at` TIMESTAMP_NTZ"
    )
    assert table.definition.primary_key == ("id",)
    at = datetime(2023, 11, 14, 22, 13, 20, 123456)
    assert table.scan().to_polars().sort("id").rows() == [
        (1, "A", Decimal("1.99"), at),
        (30, "c", Decimal("1.50"), datetime(1970, 1, 1)),
    ]
    version = table.snapshots(1)[0].version
    assert source.ingest().copy().rows == 0
    assert table.snapshots(1)[0].version == version
    source.send([orders.change("u", None, row(30, None))])  # as PostgreSQL, without the row before
    assert [taken.rows for taken in source.ingest().follow(lambda: True, Pace(rows=1))] == [1]
    assert table.scan(["name"], "id = 30").to_arrow().to_pylist() == [{"name": None}]


def test_a_column_that_comes_is_added(source: Source) -> None:
    source.send([Messages({"id": ID, "name": TEXT}).change("c", None, {"id": 1, "name": "a"})])
    source.ingest().copy()
    wider = Messages({"id": ID, "name": TEXT, "price": decimal(10, 2)})
    priced = {"id": 2, "name": "b", "price": base64.b64encode(b"\x7f").decode()}
    source.send([Messages({"id": ID, "name": TEXT}).change("c", None, {"id": 3, "name": "c"})])
    source.send([wider.change("c", None, priced)])
    source.send([Messages({"id": ID}).change("u", None, {"id": 1})])  # and one that is gone is null
    source.ingest().copy()
    assert source.table().scan().to_polars().sort("id").rows() == [
        (1, None, None),
        (2, "b", Decimal("1.27")),
        (3, "c", None),
    ]
    other = source.ingest("shop.few", columns="id BIGINT, name STRING")
    other.copy()
    assert source.table("shop.few").scan().to_polars().sort("id").rows() == [(1, None), (2, "b"), (3, "c")]


def test_a_compacted_topic(source: Source) -> None:
    orders = Messages(ORDERS)
    source.send([orders.change("c", None, row(key, f"n{key}")) for key in range(4)])
    source.send([orders.change("u", row(1, "n1"), row(9, "n1")), orders.change("d", row(2, "n2"), None)])
    made = source.ingest(options={"connector": "upsert-kafka", "topic": f"orders-{uuid.uuid4()}"})
    assert made.copy().rows == 7
    table = made.table
    assert isinstance(table, KafkaTable)
    assert len(table.offsets()) == 2
    last = {r["id"]: (r["_kind"], r["name"], r["price"]) for r in table.scan().to_arrow().to_pylist()}
    price = Decimal("1.50")
    assert last == {
        0: ("+U", "n0", price),
        1: ("-D", None, None),
        2: ("-D", None, None),
        3: ("+U", "n3", price),
        9: ("+U", "n1", price),
    }
    ends = table.offsets()
    assert source.ingest().copy().rows == 0
    assert table.offsets() == ends
    source.send([Messages({**ORDERS, "new": TEXT}).change("c", None, {**row(5, "x"), "new": "y"})])
    with pytest.raises(InvalidRequest) as caught:
        source.ingest().copy()
    assert caught.value.code == "schema-changed"


def test_messages_without_a_schema(source: Source) -> None:
    plain = Messages({"id": ID, "name": TEXT}, described=False)
    with pytest.raises(InvalidRequest) as caught:
        source.ingest()
    assert caught.value.code == "empty-topic"
    source.send([plain.change("c", None, {"id": 1, "name": "a"}), (None, b"broken")])
    with pytest.raises(InvalidRequest) as caught:
        source.ingest()
    assert caught.value.code == "no-schema"
    ingestion = source.ingest(columns="id BIGINT, name STRING")
    with pytest.raises(Corrupt):
        ingestion.copy()
    skipping = source.ingest(columns="id BIGINT, name STRING", source_options={"scan.malformed-records": "skip"})
    skipping.copy()
    assert source.table().scan().to_polars().rows() == [(1, "a")]


def test_of_two_at_once_one_gets_an_error(source: Source) -> None:
    """Both began at one offset: the slower one's changes are older than what is there, or equal, and are refused."""
    orders = Messages(ORDERS)
    source.send([orders.change("c", None, row(key, "a")) for key in range(20)])
    fast, slow = source.ingest(), source.ingest()

    def overtaken() -> bool:
        source.send([orders.change("d", row(key, "a"), None) for key in range(10)])
        return fast.copy().rows == 30

    with pytest.raises(Conflict) as caught:
        list(slow.follow(overtaken, Pace(interval=timedelta(minutes=1))))
    assert caught.value.code == "other-batch"
    assert sorted(source.table().scan(["id"]).to_polars()["id"]) == list(range(10, 20))


def test_where_it_begins_is_kept_from_the_start(source: Source) -> None:
    """Otherwise a start that died would begin at a later offset."""
    orders = Messages(ORDERS)
    source.send([orders.change("c", None, row(1, "before"))])
    latest = {"scan.startup.mode": "latest-offset"}
    assert list(source.ingest(source_options=latest).follow(lambda: True)) == [], "nothing was ingested"
    source.send([orders.change("c", None, row(2, "meanwhile"))])
    assert source.ingest(source_options=latest).copy().rows == 1
    assert source.table().scan(["id"]).to_arrow().to_pylist() == [{"id": 2}]


@pytest.mark.parametrize("options", [{}, {"connector": "upsert-kafka"}], ids=["managed", "topic"])
def test_messages_that_go_before_the_first_commit_are_missed(
    store: Store, kafka_broker: KafkaBroker, options: dict[str, str]
) -> None:
    source = Source(store, kafka_broker, 1)
    orders = Messages(ORDERS)
    source.send([orders.change("c", None, row(1, "a")), (b"", b"garbage"), orders.change("c", None, row(2, "b"))])
    if options:
        options = options | {"topic": f"t-{uuid.uuid4()}"}
    with pytest.raises(Corrupt, match="offset 1"):
        source.ingest(options=options).copy()
    admin = AdminClient(quiet(source.servers))
    [trimmed] = admin.delete_records([TopicPartition(source.topic, 0, 2)]).values()
    trimmed.result(30)
    with pytest.raises(NotFound, match="offset 0 is not there") as caught:
        source.ingest().copy()
    assert caught.value.code == "offset-gone"


def test_a_slow_topic_makes_few_versions(source: Source) -> None:
    """A pause in the topic alone is no reason to commit."""
    orders = Messages(ORDERS)
    source.send([orders.change("c", None, row(0, "a"))])
    source.ingest().copy()
    before, sent = source.table().snapshots(1)[0].version, iter(range(1, 6))

    def ended() -> bool:
        key = next(sent, None)
        if key is not None:
            source.send([orders.change("c", None, row(key, "a"))])
        return key is None

    taken = list(source.ingest().follow(ended, Pace(interval=timedelta(minutes=1))))
    assert [commit.rows for commit in taken] == [5]
    assert source.table().snapshots(1)[0].version == before + 1
