"""``python -m tests.bench.lookups [--rows N] [--dimension M] [--turns K]``: look-up joins in Spark, in one run.

N rows are joined with a dimension of M rows: by look-up with what Spark's Python processes keep, by look-up with caches
of 1 kB, so that each batch reads the dimension's files, and by Spark's own join, of the dimension's files and with the
dimension in Spark's cache. In between one row of the dimension is changed, so that no look-up has the version of the
one before.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl
from pyspark.sql import DataFrame
from rich.console import Console
from rich.table import Table as Printed

import tablestore
from tablestore import Table
from tablestore.reading import keyed_rows
from tablestore.spark import SparkStore, spark_session
from tests.bench.folders import cached_folder
from tests.bench.timings import Timings

KEPT, READ = "look-up", "look-up without caches"
SPARK, UNCACHED = "Spark's join, cached", "Spark's join"
LARGE, SMALL = "dimension looked up by key", "dimension in memory"
NO_LOG = {"log.system": "none"}
NO_CACHE = {"lookup.cache-max-memory-size": "1 kb", "lookup.cache-max-disk-size": "1 kb"}


def filled(store: tablestore.Store, name: str, rows: int, options: dict[str, str]) -> Table:
    dice = np.random.default_rng(rows)
    store.create_table(
        name,
        "id BIGINT, name STRING, price DOUBLE, size INT",
        primary_key=["id"],
        options={"bucket": "4"} | NO_LOG | options,
    )
    table = store.table(name)
    ids = np.arange(rows)
    names = pl.Series("name", dice.integers(0, 1 << 40, rows)).cast(pl.String)
    table.write(
        pl.DataFrame({"id": ids, "name": names, "price": dice.random(rows), "size": (ids % 9).astype(np.int32)})
    )
    return table


def asked(lake: SparkStore, path: Path, rows: int, dimension: int) -> DataFrame:
    """The rows, in files: one in ten has a key that the dimension lacks."""
    keys = np.random.default_rng(1).integers(0, dimension * 10 // 9, rows)
    for part, some in enumerate(np.array_split(keys, 4)):
        pl.DataFrame({"n": np.arange(len(some)), "id": some}).write_parquet(path / f"{part}.parquet")
    return lake.spark.read.parquet(str(path / "*.parquet"))


def read(joined: DataFrame) -> None:
    """Returns one row, for which all columns are needed."""
    joined.selectExpr("max(hash(n, id, name, price, size))").collect()


def changed(table: Table, turn: int) -> None:
    table.write(pl.DataFrame({"id": [turn], "name": [f"new {turn}"], "price": [0.5], "size": [1]}))


def measured(lake: SparkStore, path: Path, rows: int, tables: dict[str, dict[str, Table]], turns: int) -> Timings:
    """Seconds of each join; the first turns warm up."""
    timings, default = Timings(), keyed_rows.SMALL_BYTES
    for stage, ways in tables.items():
        keys = path / stage.replace(" ", "-")
        keys.mkdir()
        table = ways[KEPT]
        probes = asked(lake, keys, rows, sum(file.live_rows for file in table.files()))
        own = lake.spark.read.format("delta").load(table.location)
        for turn in range(turns + 1):  # before it is cached: Spark would use its cache for these, too
            taken = timings if turn else Timings()
            taken.take(stage, UNCACHED, lambda p=probes, o=own: read(p.join(o, "id", "left")))  # type: ignore[misc]
        own.cache().count()
        keyed_rows.SMALL_BYTES = -1 if stage == LARGE else default
        for turn in range(turns + 2):
            taken = timings if turn > 1 else Timings()
            taken.take(stage, SPARK, lambda p=probes, o=own: read(p.join(o, "id", "left")))  # type: ignore[misc]
            for way, one in ways.items():
                changed(one, turn)
                joined = lake.lookup_join(probes, one.identifier)
                taken.take(stage, way, lambda j=joined: read(j))  # type: ignore[misc]
        own.unpersist()
    return timings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dimension", type=int, default=5_000_000)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    spark = spark_session("bench", {"spark.master": "local[2]", "spark.driver.memory": "4g"})
    try:
        with cached_folder("lookups") as path, tablestore.connect(path / "warehouse") as store:
            store.create_database("shop")
            tables = {
                LARGE: {
                    KEPT: filled(store, "shop.large", given.dimension, {}),
                    READ: filled(store, "shop.uncached", given.dimension, NO_CACHE),
                },
                SMALL: {KEPT: filled(store, "shop.small", given.dimension // 50, {})},
            }
            timings = measured(SparkStore(spark, store), path, given.rows, tables, given.turns)
    finally:
        spark.stop()
    report(timings, given.rows, given.dimension)


def report(timings: Timings, rows: int, dimension: int) -> None:
    def ratio(stage: str, one: str, other: str) -> str:
        first, second = timings.median(stage, one), timings.median(stage, other)
        return f"{first / second:.2f}" if first and second else "-"

    printed = Printed("", "measured", "asked", title=f"{rows:,} rows joined with {dimension:,} and {dimension // 50:,}")
    printed.add_row(f"look-up / Spark's join: {LARGE}", ratio(LARGE, KEPT, SPARK), "≤ 1.5")
    printed.add_row(f"Spark's join of files / look-up: {LARGE}", ratio(LARGE, UNCACHED, KEPT), "≥ 3")
    printed.add_row("look-up without caches / look-up", ratio(LARGE, READ, KEPT), "")
    printed.add_row(f"look-up / Spark's join: {SMALL}", ratio(SMALL, KEPT, SPARK), "")
    ways = (KEPT, READ, SPARK, UNCACHED)
    for stage, way in [*((LARGE, way) for way in ways), *((SMALL, way) for way in ways if way != READ)]:
        printed.add_row(f"{way}: {stage}", f"{timings.median(stage, way) or 0:.2f} s", "")
    Console().print(printed)


if __name__ == "__main__":
    main()
