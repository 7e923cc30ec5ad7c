"""Tables whose log is a real Kafka topic: made, found again after a crash, dropped; and a broker that is not there."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from catalog_service.client import Catalog, CreateTable, EmbeddedCatalog
from catalog_service.engine import default_database_url
from catalog_service.service import Parts, open_service
from catalog_service.tables import ManagedTables
from catalog_service.wire import CreateDatabase
from filestore.errors import AlreadyExists, InvalidRequest, TableStoreError, Unavailable
from filestore.storage import LocalStorage
from filestore.table import FileStore
from tests.catalog_service.faults import AMBIENT, OPEN, Fault, Faulty, Striker
from tests.servers.kafka import KafkaBroker


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
    found = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30).topics
    return {name: len(topic.partitions) for name, topic in found.items() if not name.startswith("__")}


def test_a_topic_comes_and_goes_with_its_table(catalog: Catalog, kafka_broker: KafkaBroker) -> None:
    catalog.create_database("shop")
    info = catalog.create_table("shop", on_kafka(kafka_broker.bootstrap))
    topic = f"shop.orders.{info.table_id}"
    assert partitions(kafka_broker)[topic] == 3
    identity = FileStore.open(LocalStorage(), info.location, AMBIENT).state().log_identity
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


@pytest.mark.parametrize("method", ["create_files", "drop_log"])
def test_start_up_finishes_what_lies_half_done(warehouse: str, kafka_broker: KafkaBroker, method: str) -> None:
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
