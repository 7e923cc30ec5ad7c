"""Warehouses in a store that lets all of several writers win: refused, unless the catalog's database holds commits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

import tablestore
from catalog_service.server import serving
from compaction.compactor import Compactor
from compaction.duties import DUTIES
from filestore.ambient import system_ambient
from filestore.errors import InvalidRequest, Unsupported
from filestore.storage.locations import Storages, storage_of
from filestore.table import FileStore
from tablestore import Table
from tablestore.cli.app import app
from tests.depth import Depth
from tests.servers.s3 import S3Endpoint
from tests.servers.s3_proxy import Fault, S3Proxy
from tests.tables import assert_healthy, in_order, write
from tests.warehouses import rows

pytestmark = pytest.mark.s3

DDL = "id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED"


@pytest.fixture
def unconditional(moto: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Proxy]:
    """A store that ignores conditions."""
    with S3Proxy(moto, lambda _: Fault.DROP_CONDITIONS) as proxy:
        proxy.set_environment(monkeypatch)
        yield proxy


@pytest.fixture
def warehouse(unconditional: S3Proxy) -> str:
    return f"s3://{unconditional.new_bucket()}/lake"


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/catalog.db"


def test_the_refusal_says_what_helps(warehouse: str, database: str) -> None:
    with tablestore.connect(warehouse, database=database) as store:
        with pytest.raises(Unsupported, match="commits='catalog'") as refused:
            store.create_database("shop")
        assert refused.value.code == "not-exclusive"
        assert store.list_databases() == []


@pytest.mark.few(1)
@pytest.mark.parametrize("through", ["embedded", "service"])
def test_many_writers_lose_nothing(warehouse: str, database: str, through: str, depth: Depth) -> None:
    with ExitStack() as stack:
        how = {"database": database, "commits": "catalog"}
        if through == "service":
            target = stack.enter_context(serving(warehouse, **how))
            how = {}
        else:
            target = warehouse
        store = stack.enter_context(tablestore.connect(target, **how))
        store.create_database("shop")
        store.create_table("shop.t", DDL, options={"checkpoint.interval": "5"})
        count, threads = depth.times(8, deep=64), depth.times(4, deep=16)
        writers = [stack.enter_context(tablestore.connect(target, **how)) for _ in range(threads)]

        def work(number: int) -> int:
            values = [{"id": number, "v": "own"}, {"id": 1000, "v": f"{number}"}]
            return writers[number % threads].table("shop.t").write(values).version

        with ThreadPoolExecutor(threads) as pool:
            versions = list(pool.map(work, range(count)))
        assert sorted(versions) == list(range(1, count + 1))
        table = store.table("shop.t")
        last = versions.index(count)
        expected = in_order([{"id": n, "v": "own"} for n in range(count)] + [{"id": 1000, "v": f"{last}"}])
        assert rows(table) == plain(table) == expected
        assert_healthy(table.filestore)


def plain(table: Table) -> list[dict[str, object]]:
    """The rows of a reader that knows nothing of the catalog."""
    options = table.opened.storage.delta_options(table.location)
    return in_order(pl.scan_delta(table.location, storage_options=options).collect().to_dicts())


def test_everything_that_commits_claims_its_version(warehouse: str, database: str, unconditional: S3Proxy) -> None:
    with (
        serving(warehouse, database=database, commits="catalog") as url,
        tablestore.connect(url) as store,
    ):
        store.create_database("shop")
        store.create_table("shop.t", DDL, options={"num-sorted-run.compaction-trigger": "2"})
        table = store.table("shop.t")
        for v in "abc":
            table.write([{"id": n, "v": v} for n in range(10)])
        with store._catalog as catalog:
            compactor = Compactor(catalog, Storages(), system_ambient())
            for duty in DUTIES:
                list(compactor.run(duty))
            table.create_tag("now")
            table.alter("SET snapshot.num-retained.min = 3")
            table.alter("ADD COLUMN w INT")
            table.rollback(1)
            table.write([{"id": 1, "v": "z"}], overwrite=True)
            state = table.filestore.state()
            assert state.catalog_commits
            newest = catalog.newest_claim("shop", "t", state.table_id).claim()
            assert newest is not None
            assert (newest.version, newest.published) == (state.version, True)
            assert rows(table) == plain(table) == [{"id": 1, "v": "z", "w": None}]
            assert assert_healthy(table.filestore).findings == ()
            store.drop_table("shop.t")
    assert unconditional._server.keys(warehouse.split("/")[2]) == []


def test_a_table_there_has_no_log(warehouse: str, database: str) -> None:
    """Leases of writers need conditional writes."""
    with tablestore.connect(warehouse, database=database, commits="catalog", brokers="broker:9092") as store:
        store.create_database("shop")
        assert store.create_table("shop.t", DDL).definition.options["log.system"] == "none"
        with pytest.raises(InvalidRequest, match="conditional writes") as refused:
            store.create_table("shop.u", DDL, options={"log.system": "kafka"})
        assert refused.value.code == "log-location"
        assert store.list_tables("shop") == ["t"]


def test_a_table_that_is_opened_by_its_path_is_not_written(warehouse: str, database: str) -> None:
    with tablestore.connect(warehouse, database=database, commits="catalog") as store:
        store.create_database("shop")
        store.create_table("shop.t", DDL)
        table = store.table("shop.t")
        table.write([{"id": 1, "v": "a"}])
        by_path = FileStore.open(storage_of(table.location), table.location, system_ambient())
        with pytest.raises(Unsupported, match=r"tablestore\.connect") as refused:
            write(by_path, [{"id": 1, "v": "b"}])
        assert refused.value.code == "catalog-commits"
        assert rows(table) == [{"id": 1, "v": "a"}]


def test_the_command_line(warehouse: str, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = CliRunner()
    monkeypatch.setenv("TABLESTORE_CATALOG", warehouse)
    monkeypatch.setenv("TABLESTORE_DATABASE", database)
    refused = run.invoke(app, ["create", "shop"])
    assert refused.exit_code == 1
    assert "TABLESTORE_COMMITS" in refused.output
    monkeypatch.setenv("TABLESTORE_COMMITS", "catalog")
    assert run.invoke(app, ["create", "shop"]).exit_code == 0
    monkeypatch.delenv("TABLESTORE_COMMITS")
    assert run.invoke(app, ["create", "shop.t", DDL]).exit_code == 0
    wrote = run.invoke(app, ["write", "shop.t", "-"], input='{"id": 1, "v": "a"}\n')
    assert wrote.exit_code == 0, wrote.output
    assert run.invoke(app, ["compactor", "--once"]).exit_code == 0
    shown = run.invoke(app, ["scan", "shop.t", "--format", "json"])
    assert json.loads(shown.stdout) == {"id": 1, "v": "a"}
