"""Tables with a connector in both catalogs: they store a row only; they may create a topic, and never drop one."""

from __future__ import annotations

import os

import alembic.command
import httpx
import pytest
from alembic.runtime.migration import MigrationContext
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from catalog_service.client import AlterTable, Catalog, CreateTable, EmbeddedCatalog
from catalog_service.database.definitions import decode_definition, encode_definition
from catalog_service.database.engine import default_database_url, locks_of, migrate, open_engine, writing
from catalog_service.use_cases.definitions import definition_of
from filestore.errors import AlreadyExists, InvalidRequest, NotFound, Unavailable, Unsupported
from filestore.model import options as managed
from filestore.model.table_columns import TableColumns
from log.connector.declaration import KafkaDeclaration
from log.connector.options import CONNECTOR_OPTIONS
from tests.catalog_service.faults import AMBIENT
from tests.catalog_service.test_migrations import config
from tests.filestore.test_table_columns import table_columns
from tests.servers.kafka import KafkaBroker, quiet

COLUMNS = (
    "id BIGINT, name STRING COMMENT 'of it', at TIMESTAMP METADATA FROM 'timestamp', "
    "`offset` BIGINT NOT NULL METADATA VIRTUAL, PRIMARY KEY (id) NOT ENFORCED"
)
OPTIONS = {
    "connector": "upsert-kafka",
    "topic": "payments",
    "properties.bootstrap.servers": "127.0.0.1:1",
    "properties.socket.timeout.ms": "1000",
    "key.format": "json",
    "value.format": "json",
}


def request(name: str = "payments", **options: str) -> CreateTable:
    named = {key.replace("_", "."): value for key, value in {"topic_check": "false", **options}.items()}
    return CreateTable.of(name, COLUMNS, options=OPTIONS | named, comment="as they come")


@pytest.mark.parametrize(
    "option", [*sorted(CONNECTOR_OPTIONS.keys() - managed.OPTIONS.keys() - {"connector"}), "properties.acks"]
)
def test_an_option_of_topics_without_a_connector_says_what_is_missing(option: str) -> None:
    with pytest.raises(InvalidRequest, match=r"set connector = 'kafka' or 'upsert-kafka', too") as caught:
        definition_of(CreateTable.of("payments", "id BIGINT", options={option: "1"}))
    assert caught.value.code == "unknown-option"


def test_a_table_is_its_declaration(catalog: Catalog, warehouse: str) -> None:
    catalog.create_database("shop")
    made = catalog.create_table("shop", request())
    assert (made.connector, made.format, made.location, made.current_snapshot) == ("upsert-kafka", None, None, None)
    assert (made.primary_key, made.partition_by, made.comment) == (["id"], [], "as they come")
    assert made.options == OPTIONS | {"topic.check": "false"}
    assert made.effective_options["sink.semantic"] == "at-least-once"
    assert [(c.name, c.nullable, c.metadata is not None) for c in made.columns] == [
        ("id", False, False),
        ("name", True, False),
        ("at", True, True),
        ("offset", False, True),
    ]
    assert catalog.get_table("shop", "payments", with_snapshot=True) == made
    assert made.declaration() == definition_of(request())
    assert catalog.list_tables("shop") == ["payments"]
    assert not os.path.exists(f"{warehouse}/shop")


def test_it_shares_its_names_with_managed_tables(catalog: Catalog) -> None:
    catalog.create_database("shop")
    catalog.create_table("shop", CreateTable.of("orders", "id BIGINT"))
    first = catalog.create_table("shop", request())
    for taken in (request(), request("PAYMENTS"), CreateTable.of("payments", "id BIGINT"), request("orders")):
        with pytest.raises(AlreadyExists) as caught:
            catalog.create_table("shop", taken)
        assert caught.value.code == "table-exists"
    assert catalog.create_table("shop", request(topic="other"), if_not_exists=True) == first
    assert catalog.list_tables("shop") == ["orders", "payments"]
    with pytest.raises(InvalidRequest) as refused:
        catalog.create_table("shop", request("pay-ments"))
    assert refused.value.code == "bad-name"


def test_it_goes_alone_or_with_its_database(catalog: Catalog) -> None:
    catalog.create_database("shop")
    first = catalog.create_table("shop", request())
    catalog.drop_table("shop", "payments")
    with pytest.raises(NotFound):
        catalog.get_table("shop", "payments")
    assert catalog.create_table("shop", request()).table_id != first.table_id
    catalog.create_table("shop", CreateTable.of("orders", "id BIGINT"))
    catalog.drop_database("shop", cascade=True)
    assert catalog.list_databases() == []
    catalog.create_database("shop")
    assert catalog.list_tables("shop") == []


def test_what_only_managed_tables_have_is_refused(catalog: Catalog) -> None:
    catalog.create_database("shop")
    catalog.create_table("shop", request())
    with pytest.raises(Unsupported, match="connector = upsert-kafka") as caught:
        catalog.alter_table("shop", "payments", AlterTable(changes=("ADD COLUMN x INT",)))
    assert caught.value.code == "connector-table"


def test_over_rest_a_list_says_which_tables_are_topics(api: httpx.Client) -> None:
    api.post("/databases", json={"name": "shop"}).raise_for_status()
    body = request().model_dump(by_alias=True, exclude_none=True)
    assert api.post("/databases/shop/tables", json=body).status_code == 201
    (listed,) = api.get("/databases/shop/tables").json()["tables"]
    assert (listed["connector"], listed["location"]) == ("upsert-kafka", None)
    answer = api.get("/databases/shop/tables/payments/snapshots")
    assert (answer.status_code, answer.json()["code"]) == (501, "connector-table")


@pytest.mark.parametrize(
    ("changed", "code", "words"),
    [
        ({"value.format": "debezium-json"}, "connector-format", "table payments: option value.format"),
        ({"connector": "pulsar"}, "bad-option-value", "table payments: option connector"),
        ({"properties.nope": "1", "topic.check": "true"}, "log-settings", "nope"),
    ],
)
def test_a_wrong_declaration_leaves_nothing(catalog: Catalog, changed: dict[str, str], code: str, words: str) -> None:
    catalog.create_database("shop")
    options = OPTIONS | {"topic.check": "false"} | changed
    with pytest.raises(InvalidRequest, match=words) as caught:
        catalog.create_table("shop", CreateTable.of("payments", COLUMNS, options=options))
    assert caught.value.code == code
    assert catalog.list_tables("shop") == []


def test_partitions_are_the_topics(catalog: Catalog) -> None:
    catalog.create_database("shop")
    with pytest.raises(InvalidRequest, match="by its key") as caught:
        catalog.create_table("shop", CreateTable.of("t", "id BIGINT, d DATE", partition_by=["d"], options=OPTIONS))
    assert caught.value.code == "partition-by"


@pytest.mark.slow
def test_a_broker_that_does_not_answer(catalog: Catalog) -> None:
    catalog.create_database("shop")
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        catalog.create_table("shop", request(topic_check="true"))
    assert catalog.list_tables("shop") == []


def test_a_managed_table_may_have_its_key_in_the_list(catalog: Catalog) -> None:
    catalog.create_database("shop")
    info = catalog.create_table("shop", CreateTable.of("t", "id BIGINT, v INT, PRIMARY KEY (id) NOT ENFORCED"))
    assert (info.primary_key, info.columns[0].nullable) == (["id"], False)


@given(table_columns(), st.dictionaries(st.sampled_from(sorted(CONNECTOR_OPTIONS)), st.text(min_size=1)), st.text())
def test_a_declaration_survives_the_database(columns: TableColumns, options: dict[str, str], comment: str) -> None:
    made = KafkaDeclaration(columns, (), tuple(sorted(options.items())), comment)
    assert decode_definition(encode_definition(made)) == made


def test_an_older_catalog_is_upgraded_and_downgraded(warehouse: str) -> None:
    url = default_database_url(warehouse)
    with EmbeddedCatalog(warehouse) as catalog:
        catalog.create_database("shop")
        managed = catalog.create_table("shop", CreateTable.of("orders", "id BIGINT"))
        catalog.create_table("shop", request())
    engine = open_engine(url)
    with writing(engine) as connection:
        older = config()
        older.attributes["connection"] = connection
        alembic.command.downgrade(older, "0002")
    with engine.connect() as connection:
        assert MigrationContext.configure(connection).get_current_revision() == "0002"
        assert "connector" not in connection.exec_driver_sql("SELECT * FROM tables").keys()  # noqa: SIM118
        assert connection.exec_driver_sql("SELECT name FROM tables").scalars().all() == ["orders"]
    migrate(engine, locks_of(engine, AMBIENT))
    engine.dispose()
    with EmbeddedCatalog(warehouse) as catalog:
        assert catalog.get_table("shop", "orders", with_snapshot=True) == managed
        assert catalog.create_table("shop", request()).connector == "upsert-kafka"
        assert catalog.list_tables("shop") == ["orders", "payments"]


def test_the_topic_is_looked_at_or_made_and_never_dropped(catalog: Catalog, kafka_broker: KafkaBroker) -> None:
    topic = f"payments-{AMBIENT.new_id()}"
    there = {"topic": topic, "topic_check": "true", "properties_bootstrap_servers": kafka_broker.bootstrap}
    catalog.create_database("shop")
    with pytest.raises(InvalidRequest, match=topic) as caught:
        catalog.create_table("shop", request(**there))
    assert caught.value.code == "topic-not-found"
    catalog.create_table("shop", request(**there, topic_partitions="2"))
    catalog.create_table("shop", request("again", **there))
    with pytest.raises(InvalidRequest, match=r"topic\.partitions = 3") as caught:
        catalog.create_table("shop", request("other", **there, topic_partitions="3"))
    assert caught.value.code == "topic-partitions"
    assert catalog.list_tables("shop") == ["again", "payments"]
    catalog.drop_database("shop", cascade=True)
    found = AdminClient(quiet(kafka_broker.bootstrap)).list_topics(timeout=30).topics[topic]
    assert len(found.partitions) == 2
