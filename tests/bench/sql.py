"""``python -m tests.bench.sql [--rows N] [--turns K]``: SQL, `SparkStore`, Delta and plain Parquet, as ratios."""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table as Printed

import tablestore
from tablestore.spark import SparkStore, spark_session
from tests.bench.timings import Timings
from tests.bench.workload import SCHEMA_SQL

SQL, STORE, DELTA, PARQUET = "SQL", "SparkStore", "Delta", "plain Parquet"
COLUMNS = (
    "id AS order_id, id % 1000 AS customer_id, CAST(id % 77 AS INT) AS product_id, concat('S', id % 8) AS status, "
    "id * 1.5D AS amount, concat('note ', id) AS note, timestamp_seconds(1767225600 + id % 1000) AS updated_at, "
    "concat('r', id % 12) AS region"
)
READS = {
    "sum": "SELECT count(*), sum(amount) FROM {}",
    "group by": "SELECT region, count(*), avg(amount) FROM {} GROUP BY region",
    "all columns": "SELECT sum(hash(*)) FROM {}",
    "point": "SELECT * FROM {} WHERE order_id = 777777",
}


class Bench:
    """The tables, and what is measured of them."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int) -> None:
        self.spark = spark
        self.rows = rows
        self.timings = Timings()
        self.delta = f"delta.`{folder}/delta`"
        self.parquet = f"parquet.`{folder}/parquet`"
        self.store = tablestore.connect(f"{folder}/lake")
        self.lake = SparkStore(spark, self.store)
        self.spark.sql("CREATE DATABASE IF NOT EXISTS lake.bench")

    def create(self, name: str) -> None:
        self.spark.sql(f"DROP TABLE IF EXISTS lake.bench.{name}")
        self.spark.sql(
            f"CREATE TABLE lake.bench.{name} ({SCHEMA_SQL}, PRIMARY KEY (order_id) NOT ENFORCED) "
            "TBLPROPERTIES ('bucket' = '4', 'log.system' = 'none')"
        )

    def source(self, rows: int, factor: int = 1) -> str:
        return f"SELECT {COLUMNS} FROM (SELECT id * {factor} AS id FROM range({rows}))"

    def load(self, turn: int) -> None:
        """An INSERT, and the same rows by `SparkStore.write`, into empty tables."""
        rows = self.source(self.rows)
        ways: list[tuple[str, str, Callable[[], object]]] = [
            (SQL, "by_sql", lambda: self.spark.sql(f"INSERT INTO lake.bench.by_sql {rows}")),
            (STORE, "by_store", lambda: self.lake.write("bench.by_store", self.spark.sql(rows))),
        ]
        for who, table, work in ways[:: 1 if turn % 2 else -1]:
            self.create(table)
            self.timings.take("INSERT", who, work)

    def small(self, turn: int) -> None:
        rows = f"SELECT {COLUMNS} FROM range({1000 * turn}, {1000 * turn + 1000})"
        self.timings.take("INSERT of 1,000", SQL, lambda: self.spark.sql(f"INSERT INTO lake.bench.by_sql {rows}"))
        self.timings.take("INSERT of 1,000", STORE, lambda: self.lake.write("bench.by_store", self.spark.sql(rows)))

    def merge(self, turn: int) -> None:
        """A MERGE of rows of which 80 % are there, by us and by Delta; and the rows alone by `SparkStore.write`."""
        self.spark.sql(self.source(self.rows // 20, 25)).selectExpr("*").createOrReplaceTempView("changed")
        merge = (
            "MERGE INTO {} t USING changed s ON t.order_id = s.order_id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        ways: list[tuple[str, Callable[[], object]]] = [
            (SQL, lambda: self.spark.sql(merge.format("lake.bench.by_sql"))),
            (DELTA, lambda: self.spark.sql(merge.format(self.delta))),
            (STORE, lambda: self.lake.write("bench.by_store", self.spark.table("changed"))),
        ]
        for who, work in ways[:: 1 if turn % 2 else -1]:
            self.timings.take("MERGE", who, work)

    def read(self, stage: str, table: str, turn: int) -> None:
        others = [(SQL, f"lake.bench.{table}"), (PARQUET, self.parquet)]
        for name, query in READS.items():
            for who, source in others[:: 1 if turn % 2 else -1]:
                text = query.format(source)
                self.timings.take(f"{name}, {stage}", who, lambda text=text: self.spark.sql(text).collect())

    def plan(self) -> None:
        """How long a SELECT takes until it is planned, beside the same on Delta's path."""
        path = self.store.table("bench.by_sql").location
        for who, source in ((SQL, "lake.bench.by_sql"), (DELTA, f"delta.`{path}`")):
            text = f"SELECT * FROM {source} WHERE order_id = 5"
            self.timings.take("plan", who, lambda text=text: self.spark.sql(text)._jdf.queryExecution().analyzed())


def run(bench: Bench, turns: int, console: Console) -> None:
    loaded = bench.spark.sql(bench.source(bench.rows))
    loaded.write.format("delta").mode("overwrite").save(bench.delta[7:-1])
    loaded.repartition(4).write.mode("overwrite").parquet(bench.parquet[9:-1])
    for turn in range(turns):
        bench.load(turn)
        console.print(f"  load {turn + 1} of {turns}")
    bench.spark.sql("CALL lake.sys.compact('bench.by_sql', true)")
    for turn in range(2 * turns):
        bench.read("compacted", "by_sql", turn)
        bench.plan()
    for turn in range(turns):
        bench.merge(turn)
    for turn in range(2 * turns):  # each MERGE has left a file with a vector in each bucket
        bench.read("with vectors", "by_sql", turn)
    for turn in range(24):
        bench.small(turn)


def report(timings: Timings, console: Console) -> None:
    table = Printed("stage", "who", "runs", "median s", "worst s")
    for (stage, who), values in timings.seconds.items():
        table.add_row(stage, who, str(len(values)), f"{statistics.median(values):.3f}", f"{max(values):.3f}")
    console.print(table)
    ratios = Printed("ratio", "measured", "asked")
    asked = [
        ("INSERT / SparkStore.write", "INSERT", SQL, STORE, "≤ 1.1"),
        ("MERGE / Delta's MERGE", "MERGE", SQL, DELTA, "≤ 1"),
        ("MERGE / SparkStore.write of its rows", "MERGE", SQL, STORE, "≤ 2"),
        *((f"{name}, compacted / plain Parquet", f"{name}, compacted", SQL, PARQUET, "≤ 1.2") for name in READS),
        *((f"{name}, with vectors / plain Parquet", f"{name}, with vectors", SQL, PARQUET, "≤ 2") for name in READS),
    ]
    for name, stage, mine, theirs, bound in asked:
        ratios.add_row(name, f"{timings.ratio(stage, mine, theirs):.2f}", bound)
    planning = 1000 * ((timings.median("plan", SQL) or 0) - (timings.median("plan", DELTA) or 0))
    ratios.add_row("planning beyond Delta's", f"{planning:.0f} ms", "≤ 10 ms")
    for who in (SQL, STORE):
        ratios.add_row(f"1,000 rows, {who}", f"{timings.median('INSERT of 1,000', who) or 0:.2f} s", "≤ 0.3 s")
    console.print(ratios)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.sql", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="tablestore-bench-") as folder:
        settings = {
            "spark.driver.memory": "6g",
            "spark.sql.shuffle.partitions": "4",
            "spark.local.dir": f"{folder}/spark",
            "spark.sql.parquet.compression.codec": "zstd",
            "spark.hadoop.parquet.compression.codec.zstd.level": "1",
        }
        spark = spark_session("tablestore-bench-sql", settings, master="local[2]", catalogs={"lake": f"{folder}/lake"})
        console.print("warming up")
        run(Bench(spark, Path(folder), 20_000), 1, Console(quiet=True))
        console.print("measuring")
        bench = Bench(spark, Path(folder), arguments.rows)
        run(bench, arguments.turns, console)
        report(bench.timings, console)
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
