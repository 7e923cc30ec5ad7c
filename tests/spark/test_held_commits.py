"""The table that a data source's options name, where the catalog's database holds the table's commits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructType

import tablestore
from catalog_service.server import serving
from filestore.errors import Unsupported
from filestore.storage.locations import storage_of
from tablestore.spark.batch.sink import BatchWriter, StreamWriter, _checkpoint, _write
from tablestore.spark.opened import identity_options, opened, opened_by_name
from tests.warehouses import rows


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A service of a warehouse with one table."""
    with serving(str(tmp_path / "lake"), commits="catalog") as url, tablestore.connect(url) as store:
        store.create_database("shop")
        store.create_table("shop.t", "id BIGINT", primary_key=["id"])
        store.table("shop.t").write([{"id": 1}])
        yield url


def named(url: str) -> dict[str, str]:
    return {"catalog": url, "path": "shop.t"}


def test_a_reader_goes_on_without_the_catalog(url: str) -> None:
    """Found by a reader that asked a catalog which had been closed, by httpx's error and none of ours."""
    state = opened(named(url)).filestore.state()
    assert (state.version, state.catalog_commits) == (1, True)


def test_a_writer_has_the_catalog_as_long_as_it_commits(url: str) -> None:
    staged = opened(named(url)).filestore
    with opened_by_name(named(url)) as table:
        _write(table, staged.table_files(staged.state()), (), True, None)
    with tablestore.connect(url) as store:
        assert rows(store.table("shop.t")) == []


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_options_that_lead_past_the_catalog_are_refused_before_any_work(url: str, kind: str, tmp_path: Path) -> None:
    with tablestore.connect(url) as store:
        options = identity_options(store.table("shop.t").opened)
    schema = StructType().add("id", LongType(), nullable=False)
    with pytest.raises(Unsupported, match=r"SparkStore\.write") as refused:
        if kind == "batch":
            BatchWriter(options, schema, overwrite=False)
        else:
            StreamWriter(options | {"checkpointLocation": str(tmp_path)}, schema)
    assert refused.value.code == "catalog-commits"


def test_a_checkpoint_in_s3_is_reached_as_the_table_is_unless_options_say_how() -> None:
    table = storage_of("s3://lake/t", {"endpoint": "http://127.0.0.1:9000"})
    where = {"checkpointLocation": "s3://lake/checkpoint"}
    found = _checkpoint(where, table).storage.options()
    assert found["endpoint"] == "http://127.0.0.1:9000"
    found = _checkpoint(where | {"storage.endpoint": "http://127.0.0.1:9001"}, table).storage.options()
    assert found["endpoint"] == "http://127.0.0.1:9001"
