"""Tables whose log is a real Kafka topic: made, found again after a crash, dropped; and a broker that is not there."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from catalog_service.client import Catalog, CreateTable, EmbeddedCatalog
from catalog_service.database.engine import default_database_url
from catalog_service.tables.steps import ManagedTables, TableSteps
from catalog_service.tables.topics import shares_topic
from catalog_service.use_cases.definitions import definition_of
from catalog_service.use_cases.opening import Parts, open_service
from catalog_service.wire.databases import CreateDatabase
from filestore.errors import AlreadyExists, InvalidRequest, TableStoreError, Unavailable
from filestore.model.definition import TableDefinition
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from managed_table.identity import TableIdentity
from managed_table.opened import OpenedTable
from tablestore import Table
from tests.catalog_service.faults import AMBIENT, OPEN, Fault, Faulty, Striker
from tests.servers.kafka import KafkaBroker, quiet
from tests.waiting import until
from tests.warehouses import changes


def on_kafka(bootstrap: str, **options: str) -> CreateTable:
    given = {
        "bucket": "3",
        "log.system": "kafka",
        "log.kafka.bootstrap.servers": bootstrap,
        "log.kafka.properties.socket.timeout.ms": "10000",
        **options,
    }
    return CreateTable.of("orders", "id BIGINT, name STRING", primary_key=["id"], options=given)


def partitions(broker: KafkaBroker) -> dict[str, int]:
    """Topics that are there, with their numbers of partitions."""
    found = AdminClient(quiet(broker.bootstrap)).list_topics(timeout=30).topics
    return {name: len(topic.partitions) for name, topic in found.items() if not name.startswith("__")}


def test_a_topic_comes_and_goes_with_its_table(catalog: Catalog, kafka_broker: KafkaBroker) -> None:
    catalog.create_database("shop")
    info = catalog.create_table("shop", on_kafka(kafka_broker.bootstrap))
    topic = f"shop.orders.{info.table_id}"
    assert not info.keeps_topic
    assert partitions(kafka_broker)[topic] == 3
    identity = FileStore.open(LocalStorage(), info.location, AMBIENT).state().log.identity
    assert (identity["system"], identity["topic"]) == ("kafka", topic)
    assert identity["topic_id"]
    assert identity["cluster_id"]
    catalog.drop_table("shop", "orders")
    assert topic not in partitions(kafka_broker)


def test_a_topic_that_exists_is_not_taken(catalog: Catalog, kafka_broker: KafkaBroker) -> None:
    catalog.create_database("one")
    catalog.create_database("two")
    request = on_kafka(kafka_broker.bootstrap, **{"log.kafka.topic": f"named-{AMBIENT.new_id()}"})
    catalog.create_table("one", request)
    with pytest.raises(AlreadyExists, match=r"log\.kafka\.topic") as caught:
        catalog.create_table("two", request)
    assert caught.value.code == "log-exists"
    assert catalog.list_tables("two") == []
    assert request.options["log.kafka.topic"] in partitions(kafka_broker)
    catalog.drop_table("one", "orders")
    assert request.options["log.kafka.topic"] not in partitions(kafka_broker)


OWN = {"message.timestamp.type": "LogAppendTime"}


def topic_of_the_users(broker: KafkaBroker, count: int = 3, **settings: str) -> str:
    name = f"own-{AMBIENT.new_id()}"
    topic = NewTopic(name, count, 1, config=OWN | {key.replace("_", "."): value for key, value in settings.items()})
    admin = AdminClient(quiet(broker.bootstrap))
    admin.create_topics([topic])[name].result()
    until(lambda: name in partitions(broker))
    return name


def test_an_empty_topic_of_the_users_becomes_the_log_and_stays(catalog: Catalog, kafka_broker: KafkaBroker) -> None:
    catalog.create_database("shop")
    name = topic_of_the_users(kafka_broker)
    request = on_kafka(kafka_broker.bootstrap, **{"log.kafka.topic": name})
    info = catalog.create_table("shop", request)
    table = Table(OpenedTable(info.identity(), LocalStorage(), AMBIENT))
    table.write(pa.table({"id": [1, 2], "name": ["a", "b"]}))
    assert [row["id"] for row in changes(table, version=0)] == [1, 2]
    assert table.filestore.state().log.identity["topic"] == name
    assert catalog.get_table("shop", "orders").keeps_topic
    catalog.drop_table("shop", "orders")
    assert name in partitions(kafka_broker)
    with pytest.raises(AlreadyExists, match=r"records were written to it \(end offsets by partition: ") as caught:
        catalog.create_table("shop", request)
    assert caught.value.code == "log-exists"
    assert catalog.list_tables("shop") == []
    catalog.drop_database("shop")


@pytest.mark.parametrize(
    ("count", "settings", "problem", "code"),
    [
        (2, {}, "it has 2 partitions, not 3", "log-exists"),
        (3, {"message_timestamp_type": "CreateTime"}, "message.timestamp.type=CreateTime", "log-topic"),
        (3, {"cleanup_policy": "compact"}, "cleanup.policy=compact", "log-topic"),
        (3, {"retention_ms": "1000"}, "retention.ms=1000", "log-topic"),
    ],
)
def test_a_topic_that_does_not_fit_is_refused_and_left_as_it_is(
    catalog: Catalog, kafka_broker: KafkaBroker, count: int, settings: dict[str, str], problem: str, code: str
) -> None:
    catalog.create_database("shop")
    name = topic_of_the_users(kafka_broker, count, **settings)
    with pytest.raises(TableStoreError, match=problem) as caught:
        catalog.create_table(
            "shop", on_kafka(kafka_broker.bootstrap, **{"log.kafka.topic": name, "log.retention": "1 h"})
        )
    assert caught.value.code == code
    assert catalog.list_tables("shop") == []
    assert partitions(kafka_broker)[name] == count


@pytest.mark.few(2)
@pytest.mark.parametrize("method", ["create_log", "create_files", "delete_files"])
def test_whatever_fails_a_topic_of_the_users_stays(warehouse: str, kafka_broker: KafkaBroker, method: str) -> None:
    name = topic_of_the_users(kafka_broker)
    request = on_kafka(kafka_broker.bootstrap, **{"log.kafka.topic": name})
    url = default_database_url(warehouse)
    striker = Striker(Fault(method, sticky=True))
    service = open_service(warehouse, url, Parts(AMBIENT, Faulty(ManagedTables(LocalStorage(), AMBIENT), striker)))
    OPEN.append(service)
    service.create_database(CreateDatabase(name="shop"))
    with pytest.raises(TableStoreError):
        service.create_table("shop", request)
        service.drop_table("shop", "orders")
    with EmbeddedCatalog(warehouse) as catalog:
        assert catalog.list_tables("shop") == []
        assert partitions(kafka_broker)[name] == 3
        catalog.create_table("shop", request)
        catalog.drop_database("shop", cascade=True)
    assert partitions(kafka_broker)[name] == 3


def test_of_two_tables_that_take_one_topic_at_once_one_at_most_gets_it(
    warehouse: str, kafka_broker: KafkaBroker
) -> None:
    name = topic_of_the_users(kafka_broker)
    request = on_kafka(kafka_broker.bootstrap, **{"log.kafka.topic": name})
    both = threading.Barrier(2)
    steps = ManagedTables(LocalStorage(), AMBIENT)

    class Together:
        """Both have seen the empty topic before either writes its row."""

        def check_new(self, table: TableIdentity, definition: TableDefinition) -> bool:
            found = steps.check_new(table, definition)
            both.wait(300)
            return found

        def __getattr__(self, attribute: str) -> Any:
            return getattr(steps, attribute)

    service = open_service(warehouse, default_database_url(warehouse), Parts(AMBIENT, cast(TableSteps, Together())))
    OPEN.append(service)
    service.create_database(CreateDatabase(name="shop"))

    def create(table: str) -> str | None:
        try:
            service.create_table("shop", request.model_copy(update={"name": table}))
        except AlreadyExists as error:
            return error.code
        return None

    with ThreadPoolExecutor(2) as pool:
        codes = list(pool.map(create, ("one", "two")))
    assert "log-exists" in codes
    assert set(codes) <= {None, "log-exists"}
    assert partitions(kafka_broker)[name] == 3


def definition(topic: str | None, servers: str) -> TableDefinition:
    named = {} if topic is None else {"log.kafka.topic": topic}
    made = definition_of(on_kafka(servers, **named))
    assert isinstance(made, TableDefinition)
    return made


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        (("x", "a:1"), ("x", "b:2, A:1"), True),
        (("x", "a:1"), ("x", "b:1"), False),
        (("x", "a:1"), ("y", "a:1"), False),
        ((None, "a:1"), (None, "a:1"), False),
    ],
)
def test_which_tables_share_a_topic(one: tuple[str, str], other: tuple[str, str], shared: bool) -> None:
    assert shares_topic(definition(*one), definition(*other)) is shared


@pytest.mark.parametrize("method", ["create_files", "drop_log"])
def test_start_up_finishes_what_is_half_done(warehouse: str, kafka_broker: KafkaBroker, method: str) -> None:
    before = partitions(kafka_broker)
    url = default_database_url(warehouse)
    steps = Faulty(ManagedTables(LocalStorage(), AMBIENT), Striker(Fault(method, sticky=True)))
    service = open_service(warehouse, url, Parts(AMBIENT, steps))
    OPEN.append(service)
    service.create_database(CreateDatabase(name="shop"))
    with pytest.raises(TableStoreError):
        service.create_table("shop", on_kafka(kafka_broker.bootstrap))
        service.drop_table("shop", "orders")
    assert len(partitions(kafka_broker)) == len(before) + 1
    with EmbeddedCatalog(warehouse) as catalog:
        assert catalog.list_tables("shop") == []
        assert partitions(kafka_broker) == before
        catalog.create_table("shop", on_kafka(kafka_broker.bootstrap))
        catalog.drop_database("shop", cascade=True)
    assert partitions(kafka_broker) == before


@pytest.mark.slow
def test_a_broker_that_is_not_there(catalog: Catalog) -> None:
    catalog.create_database("shop")
    request = on_kafka("127.0.0.1:1", **{"log.kafka.properties.socket.timeout.ms": "1000"})
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        catalog.create_table("shop", request)
    assert catalog.list_tables("shop") == []
    catalog.create_table("shop", CreateTable.of("orders", "id BIGINT"))


def test_a_name_that_is_no_topic(catalog: Catalog) -> None:
    catalog.create_database("shop")
    with pytest.raises(InvalidRequest) as caught:
        catalog.create_table("shop", on_kafka("127.0.0.1:1", **{"log.kafka.topic": "t" * 250}))
    assert caught.value.code == "log-topic"
    assert catalog.list_tables("shop") == []
