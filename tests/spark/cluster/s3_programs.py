"""What tests of tables in S3 run in a driver: commits that the catalog holds, pending runs, and logs in Kafka."""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

import tablestore
from tablestore.spark import SparkStore, error_of
from tablestore.spark.opened import identity_options
from tests.spark.cluster.programs import COLUMNS, lake, session

ONCE = {"availableNow": True}

Row = tuple[Any, ...]


def collected(frame: DataFrame) -> list[Row]:
    """The rows, in order."""
    return sorted(tuple(row) for row in frame.collect())


def held_batches(place: str, database: str, options: dict[str, str]) -> list[Row]:
    """Creates a warehouse whose commits the catalog holds, and writes a table; returns what was read."""
    with lake(place, database, options, "catalog") as tables:
        spark, store = tables.spark, tables.store
        store.create_database("shop")
        store.create_table("shop.now", COLUMNS, primary_key=["id"], options={"bucket": "2"})
        tables.write("shop.now", spark.range(1000).selectExpr("id", "concat('a', id) v"))
        tables.write("shop.now", spark.range(10).selectExpr("id", "'b' v", "IF(id < 5, '-D', '+I') _kind"))
        return collected(tables.read("shop.now"))


def held_runs(place: str, database: str, options: dict[str, str]) -> dict[str, list[Row]]:
    """Writes a table with pending runs there, and compacts it; returns what was read."""
    with lake(place, database, options) as tables:
        spark, store = tables.spark, tables.store
        how = {"bucket": "2", "write-mode": "merge-on-read"}
        store.create_table("shop.later", COLUMNS, primary_key=["id"], options=how)
        tables.write("shop.later", spark.range(1000).selectExpr("id", "concat('a', id) v"))
        tables.write("shop.later", spark.range(10).selectExpr("id", "'b' v", "IF(id < 5, '-D', '+I') _kind"))
        assert store.table("shop.later").filestore.state().pending
        found = {"later": collected(tables.read("shop.later"))}
        tables.compact("shop.later", full=True)
        assert not store.table("shop.later").filestore.state().pending
        found["compacted"] = collected(tables.read("shop.later"))
        found["changes"] = collected(tables.read("shop.now$changes", from_version=1, to_version=2))
        return found


def held_stream(place: str, database: str, options: dict[str, str]) -> int:
    """Copies a table's changes by a stream with a checkpoint; returns the copy's version."""
    with lake(place, database, options) as tables:
        store = tables.store
        store.create_table("shop.copy", COLUMNS, primary_key=["id"], if_not_exists=True)
        changes = tables.read_stream("shop.now", mode="changelog")
        tables.write_stream("shop.copy", changes, checkpoint=f"{place}/checkpoint", trigger=ONCE).awaitTermination()
        return store.table("shop.copy").filestore.state().version


def past_the_catalog(place: str, database: str, options: dict[str, str]) -> list[str | None]:
    """Writes by options that do not lead to the catalog; returns the codes of the errors of a batch and a stream."""
    with lake(place, database, options) as tables:
        named = identity_options(tables.store.table("shop.now").opened)
        assert tables.spark.read.format("tablestore").options(**named).load("shop.now").count() == 995
        rows = tables.spark.range(3).selectExpr("id", "'c' v")
        stream = tables.read_stream("shop.now", mode="changelog").drop("_kind").writeStream.format("tablestore")
        stream = stream.options(**named).option("checkpointLocation", f"{place}/past").trigger(**ONCE)
        attempts = (
            lambda: rows.write.format("tablestore").options(**named).mode("append").save("shop.now"),
            lambda: stream.start("shop.now").awaitTermination(),
        )
        found = []
        for attempt in attempts:
            try:
                attempt()
                found.append(None)
            except PySparkException as error:
                ours = error_of(error)
                found.append(ours.code if ours is not None else repr(error))
        return found


def by_name(url: str, place: str) -> list[int]:
    """Writes and streams by the format's name and a catalog service; returns counts of rows."""
    spark = session()
    with tablestore.connect(url) as store:
        SparkStore(spark, store)  # registers the format
        store.create_table("shop.named", COLUMNS, primary_key=["id"])
    counts = []

    def count() -> None:
        counts.append(spark.read.format("tablestore").option("catalog", url).load("shop.named").count())

    for first in (0, 50):
        rows = spark.range(first, first + 100).selectExpr("id", "'c' v").write.format("tablestore")
        rows.option("catalog", url).mode("append").save("shop.named")
        count()
    for _ in range(2):  # the second run finds nothing
        found = spark.readStream.format("tablestore").option("catalog", url).option("changes", "true")
        changes = found.option("mode", "changelog").load("shop.now").drop("_kind")
        stream = changes.writeStream.format("tablestore").option("catalog", url)
        stream.option("checkpointLocation", f"{place}/by-name").trigger(**ONCE).start("shop.named").awaitTermination()
        count()
    return counts


def read(place: str, database: str, options: dict[str, str], name: str, **how: Any) -> list[Row]:
    """The rows of a table, natively."""
    with lake(place, database, options) as tables:
        return collected(tables.read(name, **how))


def pruned(place: str, database: str, options: dict[str, str], name: str, where: str) -> tuple[list[Row], str]:
    """The ids of the rows that a condition holds for, and the plan by which they were found."""
    with lake(place, database, options) as tables:
        frame = tables.read(name).where(where).select("id")
        return collected(frame), frame._jdf.queryExecution().executedPlan().toString()
