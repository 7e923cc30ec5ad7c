"""``format("tablestore")``: the data source by itself, without `SparkStore`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame

from tablestore import Store, Table
from tablestore.spark import SparkStore
from tests.depth import sampled
from tests.tables import in_order
from tests.warehouses import rows


@pytest.fixture
def orders(store: Store) -> Table:
    table = store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=["id"], options={"bucket": "2"})
    table.write(pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}))
    return table


def batch(lake: SparkStore, **options: str) -> DataFrame:
    options.setdefault("catalog", lake.store.target)
    return lake.spark.read.format("tablestore").options(**options).load("shop.orders")


def streamed(lake: SparkStore, folder: Path, **options: str) -> list[dict[str, Any]]:
    options.setdefault("catalog", lake.store.target)
    stream = lake.spark.readStream.format("tablestore").options(**options).load("shop.orders")
    found: list[dict[str, Any]] = []
    query = (
        stream.writeStream.foreachBatch(lambda frame, _: found.extend(row.asDict() for row in frame.collect()))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return in_order(found)


def test_a_batch_read_gives_the_newest_rows(lake: SparkStore, orders: Table) -> None:
    orders.write(pa.table({"id": [1], "_kind": ["-D"]}))
    assert in_order(row.asDict() for row in batch(lake).collect()) == rows(orders)
    assert batch(lake).count() == 2
    assert batch(lake).where("id = 3").select("name").collect()[0].name == "c"
    with_kind = batch(lake, changes="true")
    assert {row["_kind"] for row in with_kind.collect()} == {"+I"}


def test_spark_forks_processes_that_have_imported_what_they_need(lake: SparkStore) -> None:
    def imported(_: object) -> list[tuple[bool]]:
        import sys

        return [("tablestore.spark.batch.reading" in sys.modules and "polars" in sys.modules,)]

    schema = "there BOOLEAN"
    frame = lake.spark.sparkContext.parallelize([0], 1).mapPartitions(imported).toDF(schema)
    assert frame.collect()[0].there


def test_a_batch_read_of_an_empty_table(lake: SparkStore, store: Store, orders: Table) -> None:
    orders.write(pa.table({"id": pa.array([], pa.int64())}), overwrite=True)
    assert batch(lake).count() == 0
    assert batch(lake).columns == ["id", "name"]


@pytest.mark.deep
def test_a_stream_of_inserts_needs_no_kind(lake: SparkStore, orders: Table, folder: Path) -> None:
    assert streamed(lake, folder) == rows(orders)
    orders.write(pa.table({"id": [9], "name": ["z"]}))
    assert streamed(lake, folder) == [{"id": 9, "name": "z"}]


@pytest.mark.deep
def test_a_stream_without_kind_refuses_what_it_cannot_say(lake: SparkStore, orders: Table, folder: Path) -> None:
    streamed(lake, folder)
    orders.write(pa.table({"id": [1], "name": ["z"]}))
    with pytest.raises(StreamingQueryException, match=r"option\('changes', 'true'\)"):
        streamed(lake, folder)


@pytest.mark.deep
def test_a_stream_of_changes_has_kinds(lake: SparkStore, orders: Table, folder: Path) -> None:
    assert {row["_kind"] for row in streamed(lake, folder, changes="true")} == {"+I"}
    orders.write(pa.table({"id": [1, 2], "name": ["z", None], "_kind": ["+U", "-D"]}))
    assert streamed(lake, folder, changes="true") == [
        {"id": 1, "name": "z", "_kind": "+U"},
        {"id": 2, "name": None, "_kind": "-D"},
    ]


@pytest.mark.deep
def test_the_token_of_a_file_reaches_a_service_that_asks_for_it(lake: SparkStore, tmp_path: Path) -> None:
    import tablestore
    from catalog_service.server import serving

    with serving(str(tmp_path / "warehouse"), token="secret") as url:
        with tablestore.connect(url, token="secret") as store:
            store.create_database("shop")
            table = store.create_table("shop.orders", "id BIGINT", primary_key=["id"])
            table.write(pa.table({"id": [1]}))
            assert SparkStore(lake.spark, store).read_stream("shop.orders").columns == ["id", "_kind"]
        for name, token in (("right", "secret\n"), ("wrong", "other")):
            (tmp_path / name).write_text(token)
        assert batch(lake, catalog=url, **{"token-file": str(tmp_path / "right")}).count() == 1
        with pytest.raises(PySparkException, match="token"):
            batch(lake, catalog=url, **{"token-file": str(tmp_path / "wrong")})
        with pytest.raises(PySparkException, match="a token is no option"):
            batch(lake, catalog=url, token="secret")


@pytest.mark.parametrize(
    ("options", "problem"),
    sampled(
        [
            ({"catalog": ""}, "needs .option"),
            ({"scan": "earliest"}, "scan='earliest' is not known"),
            ({"scan": "from-timestamp"}, "with a timestamp"),
            ({"scan": "from-timestamp", "timestamp": "yesterday"}, "yesterday"),
            ({"maxRowsPerBatch": "many"}, "maxRowsPerBatch"),
        ],
        5,
        test=5,
        names=2,
    ),
    ids=lambda value: str(value),
)
def test_options_that_are_wrong(
    lake: SparkStore, orders: Table, folder: Path, options: dict[str, str], problem: str
) -> None:
    with pytest.raises(PySparkException, match=problem):
        streamed(lake, folder, **options)


@pytest.mark.deep
def test_a_table_without_a_log_cannot_be_streamed(lake: SparkStore, store: Store, folder: Path) -> None:
    store.create_table("shop.orders", "id BIGINT", primary_key=["id"], options={"log.system": "none"})
    with pytest.raises(StreamingQueryException, match=r"log\.system = none"):
        streamed(lake, folder)
    assert batch(lake).count() == 0


def test_a_table_that_does_not_exist(lake: SparkStore) -> None:
    with pytest.raises(PySparkException, match="orders"):
        batch(lake)
