"""``python -m tests.bench.temporal_joins [--rows N] [--dimension M] [--versions V] [--turns K]``: in one run.

N rows with times are joined with a dimension of M rows, of which each of V versions has changed a hundredth: by ``FOR
SYSTEM_TIME AS OF``, by `SparkStore.lookup_join`, and by Spark's own join with the dimension's whole history, whose rows
have the times from and to which they were stored. The rows are in the order of their times, or in none.
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
from tablestore.spark import SparkStore, spark_session
from tablestore.spark.settings import catalog_settings
from tests.bench.folders import cached_folder
from tests.bench.timings import Timings

SQL, PYTHON, HISTORY = "FOR SYSTEM_TIME AS OF", "lookup_join", "join of the history"
SORTED, MIXED = "in the order of times", "in no order"
TEMPORAL = (
    "SELECT o.n, d.name, d.size FROM {rows} o LEFT JOIN lake.shop.dim FOR SYSTEM_TIME AS OF o.ts AS d ON o.k = d.id"
)
INTERVALS = """
    WITH history AS (
        SELECT id, name, size, _change_type AS kind, _commit_timestamp AS begins,
               lead(_commit_timestamp) OVER (PARTITION BY id ORDER BY _commit_version) AS ends
        FROM lake.shop.dim CHANGES FROM VERSION 1 WHERE _change_type <> 'update_preimage'
    )
    SELECT o.n, d.name, d.size FROM {rows} o LEFT JOIN (SELECT * FROM history WHERE kind <> 'delete') d
    ON o.k = d.id AND o.ts >= d.begins AND (d.ends IS NULL OR o.ts < d.ends)
"""


def changed(store: tablestore.Store, rows: int, versions: int) -> Table:
    """A dimension with versions: the first one has all rows."""
    options = {"bucket": "4", "log.system": "none", "changelog-producer": "lookup"}
    table = store.create_table("shop.dim", "id BIGINT, name STRING, size INT", primary_key=["id"], options=options)
    dice = np.random.default_rng(rows)
    for version in range(versions):
        ids = np.arange(rows) if version == 0 else np.sort(dice.choice(rows, rows // 100, replace=False))
        table.write(
            pl.DataFrame({"id": ids, "name": [f"{version} {n}" for n in ids], "size": (ids % 9).astype(np.int32)})
        )
    return table


def asked(lake: SparkStore, path: Path, table: Table, rows: int, *, in_order: bool) -> None:
    """The rows, in files: their times are from the first version to a second after the last one."""
    dice = np.random.default_rng(1)
    times = [snapshot.timestamp.timestamp() for snapshot in table.snapshots() if snapshot.version > 0]
    seconds = dice.uniform(min(times), max(times) + 1, rows)
    seconds = np.sort(seconds) if in_order else seconds
    keys = dice.integers(0, sum(file.live_rows for file in table.files()), rows)
    path.mkdir()
    for part, some in enumerate(np.array_split(np.arange(rows), 4)):
        micros = pl.Series("ts", (seconds[some] * 1e6).astype(np.int64)).cast(pl.Datetime("us", "UTC"))
        pl.DataFrame({"n": some, "k": keys[some], "ts": micros}).write_parquet(path / f"{part}.parquet")
    lake.spark.read.parquet(str(path / "*.parquet")).createOrReplaceTempView("asked")


def measured(lake: SparkStore, path: Path, table: Table, rows: int, turns: int) -> Timings:
    """Seconds of each way; the first turn warms up, and its results are compared."""

    def read(joined: DataFrame) -> object:
        return joined.selectExpr("sum(hash(n, name, size))", "count(name)").collect()

    def by_python() -> DataFrame:
        return lake.lookup_join(lake.spark.table("asked"), "shop.dim", {"k": "id"}, at="ts")

    timings = Timings()
    ways = {
        SQL: lambda: lake.spark.sql(TEMPORAL.format(rows="asked")),
        PYTHON: by_python,
        HISTORY: lambda: lake.spark.sql(INTERVALS.format(rows="asked")),
    }
    for stage in (SORTED, MIXED):
        asked(lake, path / stage.replace(" ", "-"), table, rows, in_order=stage == SORTED)
        results = {str(read(joined())) for joined in ways.values()}
        assert len(results) == 1, results
        for _ in range(turns):
            for way, joined in ways.items():
                timings.take(stage, way, lambda j=joined: read(j()))  # type: ignore[misc]
    return timings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dimension", type=int, default=200_000)
    parser.add_argument("--versions", type=int, default=20)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    with cached_folder("temporal") as path, tablestore.connect(path / "warehouse") as store:
        store.create_database("shop")
        settings = {"spark.master": "local[2]", "spark.driver.memory": "4g"}
        spark = spark_session("bench", settings | catalog_settings({"lake": store.target}))
        try:
            table = changed(store, given.dimension, given.versions)
            timings = measured(SparkStore(spark, store), path, table, given.rows, given.turns)
        finally:
            spark.stop()
    printed = Printed("", "measured", title=f"{given.rows:,} rows, {given.dimension:,} in {given.versions} versions")
    for stage in (SORTED, MIXED):
        seconds = {way: timings.median(stage, way) or 0.0 for way in (SQL, PYTHON, HISTORY)}
        printed.add_row(f"{SQL} / {PYTHON}: {stage}", f"{seconds[SQL] / seconds[PYTHON]:.2f}")
        printed.add_row(f"{SQL} / {HISTORY}: {stage}", f"{seconds[SQL] / seconds[HISTORY]:.2f}")
        for way, median in seconds.items():
            printed.add_row(f"{way}: {stage}", f"{median:.2f} s")
    Console().print(printed)


if __name__ == "__main__":
    main()
