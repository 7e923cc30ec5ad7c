"""A warehouse in S3: what a store does with local tables it does there, by the API, a service and the command line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import tablestore
from catalog_service.server import serving
from compaction.compactor import Compactor
from compaction.duties import DUTIES
from filestore.ambient import system_ambient
from filestore.errors import AlreadyExists, InvalidRequest, Unsupported
from filestore.storage.locations import Storages
from tablestore.cli.app import app
from tests.servers.kafka import KafkaBroker
from tests.servers.s3 import S3Endpoint
from tests.servers.s3_proxy import Kind, S3Proxy
from tests.tables import in_order
from tests.warehouses import changes, replay

DDL = "id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED"
ROWS = [{"id": n, "v": "a"} for n in range(100)]


@pytest.fixture
def warehouse(moto: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty one, for which this process has credentials, and no other setting."""
    for name, value in moto.environment().items():
        if name not in ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION"):
            monkeypatch.setenv(name, value)
    return f"s3a://{moto.new_bucket()}/lake/"


@pytest.fixture
def reached(moto: S3Endpoint) -> dict[str, str]:
    return {"endpoint": moto.endpoint, "region": moto.region}


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/catalog.db"


@pytest.fixture
def store(warehouse: str, database: str, reached: dict[str, str]) -> Iterator[tablestore.Store]:
    with tablestore.connect(warehouse, database=database, storage_options=reached) as opened:
        opened.create_database("shop")
        yield opened


def rows(table: tablestore.Table, **scan: object) -> list[dict[str, object]]:
    return table.scan(**scan).to_arrow().sort_by("id").to_pylist()  # type: ignore[arg-type]


def managed(store: tablestore.Store, name: str = "shop.orders") -> tablestore.Table:
    return store.table(name)


def test_a_table_lives_its_life(store: tablestore.Store, moto: S3Endpoint, warehouse: str) -> None:
    store.create_table("shop.orders", DDL, options={"bucket": "2"})
    table = managed(store)
    table.write(ROWS)
    table.create_tag("before", 1)
    table.write([{"id": 1, "v": "b"}, {"id": 2, "v": None}])
    table.write([{"id": 3, "v": None, "_kind": "-D"}])
    now = [{"id": n, "v": {1: "b", 2: None}.get(n, "a")} for n in range(100) if n != 3]
    assert rows(table) == now
    assert rows(table, version=1) == rows(table, tag="before") == ROWS
    assert table.get([{"id": 1}, {"id": 3}]).to_pylist() == [{"id": 1, "v": "b"}]
    location = table.location
    assert location == warehouse.replace("s3a", "s3") + "shop/orders"
    options = table.opened.storage.delta_options(table.location)
    assert pl.scan_delta(location, storage_options=options).collect().sort("id").to_dicts() == now
    table.rollback(tag="before")
    assert rows(table) == ROWS
    assert not table.examine().problems
    store.drop_database("shop", cascade=True)
    assert moto.keys(warehouse.split("/")[2]) == []


def test_its_log_is_none_if_nobody_names_brokers(store: tablestore.Store) -> None:
    table = store.create_table("shop.orders", DDL)
    assert isinstance(table, tablestore.Table)
    assert table.definition.options["log.system"] == "none"
    with pytest.raises(InvalidRequest, match="needs a table on a local disk") as refused:
        store.create_table("shop.logged", DDL, options={"log.system": "embedded"})
    assert refused.value.code == "log-location"
    with pytest.raises(InvalidRequest, match="bootstrap"):
        store.create_table("shop.logged", DDL, options={"log.system": "kafka"})
    assert store.list_tables("shop") == ["orders"]


@pytest.mark.few(1)
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize("who", ["connect", "session", "service", "command"])
def test_its_log_is_in_kafka_if_brokers_are_known(
    warehouse: str,
    database: str,
    reached: dict[str, str],
    kafka_broker: KafkaBroker,
    who: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = kafka_broker.bootstrap
    how: dict[str, Any] = {"database": database, "storage_options": reached}
    with ExitStack() as stack:
        if who == "service":
            url = stack.enter_context(serving(warehouse, brokers=brokers, **how))
            store = stack.enter_context(tablestore.connect(url))
        elif who == "session":
            options = {"table-storage.log.kafka.bootstrap.servers": brokers}
            store = stack.enter_context(tablestore.connect(warehouse, options=options, **how))
        else:
            store = stack.enter_context(tablestore.connect(warehouse, brokers=brokers, **how))
        store.create_database("shop")
        if who == "command":
            settings = ";".join(f"{name}={value}" for name, value in reached.items())
            for name, value in (("CATALOG", warehouse), ("DATABASE", database), ("STORAGE", settings)):
                monkeypatch.setenv(f"TABLESTORE_{name}", value)
            monkeypatch.setenv("TABLESTORE_BROKERS", brokers)
            made = CliRunner().invoke(app, ["create", "shop.orders", DDL])
            assert made.exit_code == 0 and f"with its log in Kafka at {brokers}" in made.output, made.output
        else:
            store.create_table("shop.orders", DDL)
        table = managed(store)
        assert table.definition.options["log.system"] == "kafka"
        assert table.definition.options["log.kafka.bootstrap.servers"] == brokers
        table.write(ROWS)
        table.write([{"id": 1, "v": "b", "_kind": "+U"}, {"id": 2, "v": None, "_kind": "-D"}])
        assert replay(changes(table, version=0), ["id"]) == in_order(rows(table))
        assert table.filestore.state().fences
        assert not table.examine().findings
        assert (
            store.create_table("shop.plain", DDL, options={"log.system": "none"}).definition.options[  # type: ignore[union-attr]
                "log.system"
            ]
            == "none"
        )
        store.drop_table("shop.orders")


@pytest.mark.kafka
@pytest.mark.slow
def test_a_commit_with_a_log_costs_two_requests_more(
    moto: S3Endpoint, warehouse: str, database: str, reached: dict[str, str], kafka_broker: KafkaBroker
) -> None:
    """One that takes its lease, and one that ends it; nothing is looked for while no writer can have died."""
    with (
        S3Proxy(moto) as proxy,
        tablestore.connect(
            warehouse,
            database=database,
            storage_options=reached | {"endpoint": proxy.endpoint},
            brokers=kafka_broker.bootstrap,
        ) as store,
    ):
        store.create_database("shop")
        proxy.reset()
        store.create_table("shop.first", DDL)  # the first one asks whether the store can keep leases
        created = {"first": len(proxy.calls)}
        for name, options in (("logged", {}), ("plain", {"log.system": "none"})):
            proxy.reset()
            store.create_table(f"shop.{name}", DDL, options=options)
            created[name] = len(proxy.calls)
        assert created["logged"] <= created["plain"] + 2 and created["logged"] <= 8, created
        assert created["first"] <= created["logged"] + 7, "four conditional writes, two reads and a deletion, once"
        counts = {}
        for name in ("logged", "plain"):
            table = managed(store, f"shop.{name}")
            table.write(ROWS)
            proxy.reset()
            table.write([{"id": 1, "v": "b"}])
            counts[name] = Counter(proxy.counts())
        more = counts["logged"] - counts["plain"]
        assert sum(more.values()) == 2 and more[Kind.PUT_IF] == 1, counts
        assert not counts["plain"] - counts["logged"], counts


def test_a_store_whose_conditions_mean_nothing_has_no_logs(
    store: tablestore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = type(Storages().of("s3://bucket/x"))

    def replaces_anyway(self: object, path: str, data: bytes, tag: str | None) -> str:
        self.replace(path, data)  # type: ignore[attr-defined]
        return str(self.read_tagged(path).tag)  # type: ignore[attr-defined]

    monkeypatch.setattr(storage, "replace_tagged", replaces_anyway)
    with pytest.raises(Unsupported, match="If-Match") as refused:
        store.create_table("shop.t", DDL, options={"log.system": "kafka", "log.kafka.bootstrap.servers": "b:9092"})
    assert refused.value.code == "no-conditional-writes"
    assert store.list_tables("shop") == []


def test_clients_of_a_service_learn_how_to_reach_the_warehouse(
    warehouse: str, database: str, reached: dict[str, str]
) -> None:
    with (
        serving(warehouse, database=database, storage_options=reached) as url,
        tablestore.connect(url) as store,
    ):
        store.create_database("shop")
        store.create_table("shop.orders", DDL).write(ROWS)
        assert rows(managed(store)) == ROWS
        table = managed(store)
        table.write([{"id": 0, "v": "b"}])
        with store._catalog as catalog:
            list(Compactor(catalog, Storages(), system_ambient()).run(DUTIES[0]))
            assert rows(managed(store))[0] == {"id": 0, "v": "b"}


def test_the_command_line(
    warehouse: str, database: str, reached: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CliRunner()
    monkeypatch.setenv("TABLESTORE_CATALOG", warehouse)
    asked = run.invoke(app, ["databases"])
    assert "needs a database" in asked.output + str(asked.exception)
    monkeypatch.setenv("TABLESTORE_DATABASE", database)
    monkeypatch.setenv("TABLESTORE_STORAGE", ";".join(f"{name}={value}" for name, value in reached.items()))
    for arguments in (["create", "shop"], ["create", "shop.orders", DDL]):
        made = run.invoke(app, arguments)
        assert made.exit_code == 0, made.output
    with tablestore.connect(warehouse, database=database, storage_options=reached) as store:
        managed(store).write(ROWS)
    shown = run.invoke(app, ["scan", "shop.orders", "--format", "json", "--limit", "1"])
    assert shown.exit_code == 0, shown.output
    assert json.loads(shown.stdout.splitlines()[0])["v"] == "a"
    checked = run.invoke(app, ["doctor", "shop.orders"])
    assert checked.exit_code == 0, checked.output
    assert run.invoke(app, ["compactor", "--once"]).exit_code == 0


def test_a_warehouse_in_s3_needs_a_database_elsewhere(warehouse: str) -> None:
    with pytest.raises(InvalidRequest, match="needs a database") as refused:
        tablestore.connect(warehouse)
    assert refused.value.code == "database-needed"


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ("s3://user:hidden@bucket/lake", "contains a login"),
        ("s3:///lake", "is not the URL of a warehouse"),
        ("s3://bucket/lake?x=1", "is not the URL of a warehouse"),
    ],
)
def test_urls_that_are_no_warehouse(wrong: str, what: str, database: str) -> None:
    with pytest.raises(InvalidRequest, match=what) as refused:
        tablestore.connect(wrong, database=database)
    assert "hidden" not in str(refused.value)


def test_a_local_warehouse_takes_no_storage_options(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="only s3:// has options"):
        tablestore.connect(tmp_path / "lake", storage_options={"endpoint": "http://127.0.0.1:1"})


def test_a_store_that_does_not_keep_writers_apart_is_refused(
    store: tablestore.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.drop_database("shop")
    storage = type(Storages().of("s3://bucket/x"))

    def last_writer_wins(self: object, path: str, data: bytes) -> None:
        self.replace(path, data)  # type: ignore[attr-defined]

    monkeypatch.setattr(storage, "write_new", last_writer_wins)
    with pytest.raises(Unsupported, match="does not keep writers apart"):
        store.create_database("shop")
    assert store.list_databases() == []


def test_creating_a_table_where_files_are(store: tablestore.Store, moto: S3Endpoint, warehouse: str) -> None:
    with moto.client() as s3:
        s3.put_object(Bucket=warehouse.split("/")[2], Key="lake/shop/orders/notes.txt", Body=b"mine")
    with pytest.raises(AlreadyExists, match=r"notes\.txt"):
        store.create_table("shop.orders", DDL)
