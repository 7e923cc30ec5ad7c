"""Which paths a warehouse may have: those with which our clients, deltalake and polars find the same files."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import deltalake
import polars as pl
import pytest

import tablestore
from catalog_service.model.paths import check_for_creation, warehouse_location
from filestore.errors import InvalidRequest
from filestore.storage import locations
from tablestore import Table
from tests.depth import sampled
from tests.servers.s3 import S3Endpoint

SAFE = "a+b&c;d@e'f!g$h(i),j~k-l_m.n"
"""Each character besides letters, digits and ``/`` that may be in a path in a store of objects."""

BROKEN = ["a//b", "a/./b", "../b", "a/..", "a\tb", "a\nb", "a\x01b", "/a"]
MISREAD = [
    "a b",
    "a%20b",
    "100%",
    "a%2Fb",
    "ü",
    "日本",
    "a=b",
    "a:b",
    'a"b',
    "a\\b",
    "a*b",
    "a[b]",
    "a{b}",
    "a|b",
    "a<b",
]


def made(target: str, database: str | None = None) -> Table:
    store = tablestore.connect(target, database=database)
    store.create_database("shop", if_not_exists=True)
    table = store.create_table(
        "shop.t",
        "id BIGINT, p STRING",
        primary_key=["id", "p"],
        partition_by=["p"],
        options={"checkpoint.interval": "1", "bucket": "1", "log.system": "none"},
    )
    assert isinstance(table, Table)
    table.write([{"id": 1, "p": "x y"}, {"id": 2, "p": "ü=%20"}])
    table.write([{"id": 1, "p": "x y"}])
    return table


def assert_found_by_all(table: Table, options: dict[str, str] | None, log: pytest.LogCaptureFixture) -> None:
    assert table.scan().to_arrow().num_rows == 2
    assert pl.scan_delta(table.location, storage_options=options).collect().height == 2
    reader = deltalake.DeltaTable(table.location, storage_options=options)
    found = deltalake.QueryBuilder().register("t", reader).execute("SELECT * FROM t").read_all()
    assert found.num_rows == 2
    assert "no checkpoint" not in log.text


@pytest.fixture
def lake(moto: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> str:
    moto.set_environment(monkeypatch)
    return f"s3://{moto.new_bucket()}"


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/catalog.db"


@pytest.mark.few(1)
@pytest.mark.s3
@pytest.mark.parametrize("library", ["obstore", "s3fs"])
@pytest.mark.parametrize("prefix", sampled([SAFE, "a/b-c", "a.", "..b", "_a/.b"], fast=5, test=5))
def test_a_path_that_is_taken_works_everywhere(
    lake: str,
    database: str,
    prefix: str,
    library: str,
    moto: S3Endpoint,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = locations.find_spec
    monkeypatch.setattr(
        locations, "find_spec", lambda name: None if (name, library) == ("obstore", "s3fs") else found(name)
    )
    table = made(f"{lake}/{prefix}", database)
    assert_found_by_all(table, table.opened.storage.delta_options(table.location), caplog)
    keys = moto.keys(lake.removeprefix("s3://"))
    assert {key.partition("/shop/")[0] for key in keys} == {prefix}
    assert sum(key.endswith(".checkpoint.parquet") for key in keys) == 2


@pytest.mark.s3
@pytest.mark.parametrize("prefix", BROKEN)
def test_a_path_that_clients_change_is_refused_at_once(lake: str, database: str, prefix: str) -> None:
    """obstore raised a TypeError, and s3fs wrote files that deltalake could not find."""
    with pytest.raises(InvalidRequest, match=r"an empty part, '\.', '\.\.' or a control character") as refused:
        tablestore.connect(f"{lake}/{prefix}", database=database)
    assert refused.value.code == "bad-path"


@pytest.mark.s3
def test_no_table_is_created_where_other_libraries_look_elsewhere(lake: str, database: str) -> None:
    """No commit got its checkpoint: deltalake decodes ``%20``."""
    with tablestore.connect(f"{lake}/a%20b", database=database) as store:
        with pytest.raises(InvalidRequest, match="take another folder") as refused:
            store.create_database("shop")
        assert refused.value.code == "bad-path"
        assert store.list_databases() == []


@pytest.mark.parametrize("prefix", MISREAD)
def test_characters_that_are_refused_in_stores_of_objects(prefix: str) -> None:
    location = warehouse_location(f"s3://bucket/lake/{prefix}/x")
    with pytest.raises(InvalidRequest, match="take another folder"):
        check_for_creation(location)


@pytest.mark.parametrize("prefix", ["a%20b", "a%2Fb", "a\\b", "a\tb"])
def test_characters_that_are_refused_on_a_local_disk(tmp_path: Path, prefix: str) -> None:
    """deltalake looked for the files in another folder."""
    with tablestore.connect(tmp_path / prefix) as store:
        with pytest.raises(InvalidRequest, match="take another folder"):
            store.create_database("shop")
        assert store.list_databases() == []


def test_a_table_that_is_there_already_can_be_used(lake: str, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from catalog_service.tables import construction, lifecycle

    with monkeypatch.context() as before:
        for module in (construction, lifecycle):
            before.setattr(module, "check_for_creation", lambda _: None)
        made(f"{lake}/a b", database)
    with tablestore.connect(f"{lake}/a b", database=database) as store:
        store.create_database("shop", if_not_exists=True)
        table = store.table("shop.t")
        assert isinstance(table, Table)
        table.write([{"id": 3, "p": "x"}])
        assert table.scan().to_arrow().num_rows == 3
        with pytest.raises(InvalidRequest, match="take another folder"):
            store.create_table("shop.other", "id BIGINT", primary_key=["id"])
        assert store.list_tables("shop") == ["t"]


@pytest.mark.parametrize("prefix", ["a b", "ü", "100%", SAFE])
def test_local_paths_that_are_taken(tmp_path: Path, prefix: str, caplog: pytest.LogCaptureFixture) -> None:
    """polars finds no files below some of them, as homes have them: it does not decode what delta-rs has encoded."""
    with caplog.at_level(logging.WARNING):
        table = made(str(tmp_path / prefix))
    assert table.scan().to_arrow().num_rows == 2
    reader = deltalake.DeltaTable(table.location)
    assert deltalake.QueryBuilder().register("t", reader).execute("SELECT * FROM t").read_all().num_rows == 2
    log = os.listdir(Path(table.location) / "_delta_log")
    assert sum(name.endswith(".checkpoint.parquet") for name in log) == 2
    assert "no checkpoint" not in caplog.text
