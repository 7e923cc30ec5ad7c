"""Work on tables in S3 beside writing and reading them: overlays, changes, consumers, and the commands of the shell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import tablestore
from filestore.delta.entry import decode
from filestore.life.overlays import remove_old_overlays
from filestore.reading.difference import VersionPair, changed_rows, differences
from filestore.sorting.runs import local_runs
from tablestore import Table
from tablestore.cli.app import app
from tests.changes import assert_exact, by_version
from tests.opened import again
from tests.servers.s3 import S3Endpoint
from tests.tables import Clock, assert_healthy, in_order, seeded
from tests.tablestore.test_merge_on_read import overlay_of
from tests.warehouses import replay, rows

pytestmark = pytest.mark.s3

DDL = "id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED"
LATER = {"write-mode": "merge-on-read", "bucket": "2"}


@pytest.fixture
def lake(moto: S3Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tablestore.Store]:
    moto.set_environment(monkeypatch)
    database = f"sqlite:///{tmp_path}/catalog.db"
    target = f"s3://{moto.new_bucket()}/lake"
    monkeypatch.setenv("TABLESTORE_CATALOG", target)
    monkeypatch.setenv("TABLESTORE_DATABASE", database)
    with tablestore.connect(target, database=database) as opened:
        opened.create_database("shop")
        yield opened


def made(lake: tablestore.Store, **options: str) -> Table:
    """A table with three versions: rows, other rows for some of its keys, and a delete."""
    lake.create_table("shop.t", DDL, options=options)
    table = lake.table("shop.t")
    table.write([{"id": n, "v": "a"} for n in range(40)])
    table.write([{"id": n, "v": "b"} for n in range(20, 50)])
    table.write([{"id": 3, "v": None, "_kind": "-D"}])
    return table


NOW = in_order({"id": n, "v": "b" if n >= 20 else "a"} for n in range(50) if n != 3)


@pytest.mark.few(1)
@pytest.mark.parametrize("engine", ["deduplicate", "partial-update"])
def test_an_overlay_names_files_in_s3_that_a_delta_reader_finds(lake: tablestore.Store, engine: str) -> None:
    options = LATER | {"merge-engine": engine, "partial-update.remove-record-on-delete": "true"}
    if engine == "deduplicate":
        del options["partial-update.remove-record-on-delete"]
    table = made(lake, **options)
    table.compact(full=True)
    table.write([{"id": n, "v": "c"} for n in (1, 60)])
    expected = rows(table)
    assert {row["v"] for row in expected} == {"a", "b", "c"}
    location, storage = overlay_of(table), table.opened.storage
    reader = deltalake.DeltaTable(location, storage_options=storage.delta_options(location))
    assert reader.metadata().id != table.filestore.state().table_id
    live = 0
    for action in decode(storage.read(f"{location}/_delta_log/{0:020d}.json")):
        if "add" in action:
            path = unquote(action["add"]["path"])
            named = path if path.startswith("s3://") else f"{location}/{path}"
            assert storage.exists(named), named
            vector = action["add"].get("deletionVector") or {"cardinality": 0}
            if vector.get("storageType") == "p":
                assert storage.exists(unquote(vector["pathOrInlineDv"]))
            live += json.loads(action["add"]["stats"])["numRecords"] - vector["cardinality"]
    assert live == len(expected)
    old = again(table, ambient=seeded(1, Clock(2 * 10**12)))
    assert remove_old_overlays(old.filestore) == 1
    assert not storage.exists(f"{location}/_delta_log/{0:020d}.json")
    assert rows(table) == expected


def test_what_two_versions_differ_by(lake: tablestore.Store) -> None:
    store = made(lake, bucket="2").filestore
    old, new = store.state(1), store.state()
    compared = VersionPair(store.table_files(old), store.table_files(new), new.definition.schema)
    parts = (part for one in differences(old, new) for part in changed_rows(compared, one, local_runs))
    found = [row for part in parts for row in part.to_pylist()]
    assert len(found) == 20 * 2 + 10 + 1
    before = [{"id": n, "v": "a", "_kind": "+I"} for n in range(40)]
    assert replay([*before, *found], ["id"]) == NOW


def test_the_change_data_of_every_version(lake: tablestore.Store) -> None:
    table = made(lake, **{"changelog-producer": "lookup"})
    table.write([{"id": 1, "v": "z"}], overwrite=True)
    table.rollback(2)
    options = table.opened.storage.delta_options(table.location)
    feed = deltalake.DeltaTable(table.location, storage_options=options).load_cdf(starting_version=1)
    assert_exact(table.filestore, by_version(pa.table(feed.read_all()).to_pylist()))
    assert_healthy(table.filestore)


def test_a_consumer_keeps_its_version(lake: tablestore.Store) -> None:
    table = made(lake, **{"snapshot.num-retained.min": "1", "snapshot.time-retained": "0 s"})
    with table.consumer("job").register(1):
        table.expire()
        assert len(rows(table, version=1)) == 40
        assert [consumer.id for consumer in table.consumers()] == ["job"]
    assert table.consumers() == []  # it has ended
    assert table.expire().versions
    assert rows(table) == NOW


def test_every_command_for_a_table(lake: tablestore.Store, moto: S3Endpoint) -> None:
    table = made(lake, **{"snapshot.num-retained.min": "1", "snapshot.time-retained": "0 s", "bucket": "2"})

    def run(*arguments: str) -> str:
        ran = CliRunner().invoke(app, list(arguments))
        assert ran.exit_code == 0, f"{arguments}: {ran.output}"
        return ran.stdout

    run("tag", "shop.t", "first", "--version", "1")
    assert "first" in run("tags", "shop.t")
    assert json.loads(run("get", "shop.t", "1", "--format", "json")) == {"id": 1, "v": "a"}
    assert len(run("scan", "shop.t", "--format", "json", "--version", "1").splitlines()) == 40
    assert "s3://" in run("describe", "shop.t")
    assert len(run("snapshots", "shop.t", "--format", "json").splitlines()) == 5
    assert run("show", "shop.t$files", "--format", "json")
    run("alter", "shop.t", "ADD COLUMN w INT")
    run("compact", "shop.t", "--full")
    run("rollback", "shop.t", "--tag", "first", "--yes")
    run("expire", "shop.t", "--yes")
    run("maintain", "shop.t")
    orphan = f"{table.location}/bucket-00000/{table.opened.ambient.new_id()}.parquet"
    table.opened.storage.write_new(orphan, b"")
    young = ("--older-than-hours", "0", "--even-young")
    assert orphan.rpartition("/")[2] in run("orphans", "shop.t", "--remove", "--yes", *young)
    assert not table.opened.storage.exists(orphan)
    run("doctor", "shop.t")
    options = table.opened.storage.delta_options(table.location)
    assert pl.scan_delta(table.location, storage_options=options).collect().height == 40
    run("drop", "shop.t", "--yes")
    assert moto.keys(table.location.split("/")[2]) == []
