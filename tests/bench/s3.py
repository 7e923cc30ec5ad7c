"""``python -m tests.bench.s3 [--rows N] [--upserts K]``: the same workload on a local disk and in S3, as ratios.

The S3 server is versitygw on this machine; if it is not built, it is moto, which is slower. The report names it.
Everything takes turns: our upserts and plain Parquet appends by Spark, in both places; our reads and Delta's own of the
same files; look-ups of 1,000 keys.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import polars as pl
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from rich.console import Console
from rich.table import Table as Printed

import tablestore
from tablestore import Table
from tablestore.jars import cache_root
from tablestore.spark import SparkStore, spark_session
from tests.bench.peers import BUCKETS
from tests.bench.timings import Timings
from tests.bench.workload import SCHEMA_SQL, Workload, workload
from tests.servers.s3 import MotoServer, NotBuilt, S3Endpoint, VersityServer

LOCAL, S3 = "local", "S3"
OURS, PARQUET, DELTA = "tablestore", "Parquet append", "Delta's own reader"
SCANS, GETS, KEYS = 6, 6, 1_000


class Place:
    """Our table and a folder of plain Parquet, on a local disk or in S3."""

    def __init__(
        self, name: str, spark: SparkSession, root: str, database: Path, reached: dict[str, str] | None
    ) -> None:
        self.name = name
        self.spark = spark
        self.plain = f"{root}/plain".replace("s3://", "s3a://")
        store = tablestore.connect(f"{root}/lake", database=f"sqlite:///{database}", storage_options=reached)
        store.create_database("bench")
        self.lake = SparkStore(spark, store)
        options = {"bucket": str(BUCKETS), "log.system": "none"}
        self.managed = store.create_table("bench.orders", SCHEMA_SQL, primary_key=["order_id"], options=options)

    def write(self, rows: DataFrame) -> None:
        self.lake.write("bench.orders", rows)

    def append(self, rows: DataFrame) -> None:
        rows.write.mode("append").parquet(self.plain)

    def ours(self) -> DataFrame:
        return self.lake.read("bench.orders")

    def deltas(self) -> DataFrame:
        return self.spark.read.format("delta").load(self.managed.location)

    def reopened(self) -> Table:
        """The table as a process sees it that has not read it yet."""
        return self.lake.store.table("bench.orders")


@contextmanager
def s3_server() -> Iterator[tuple[str, S3Endpoint]]:
    """Starts versitygw, or moto if it was not built; yields its name and itself."""
    with ExitStack() as running:
        try:
            server: VersityServer | MotoServer = running.enter_context(VersityServer())
        except NotBuilt as error:
            print(f"{error} Until then moto is measured.", file=sys.stderr)
            server = running.enter_context(MotoServer())
        yield server.name, server


def run(work: Workload, places: list[Place], console: Console) -> Timings:
    timings = Timings()
    spark = places[0].spark
    for place in places:
        rows = spark.read.parquet(str(work.base))
        timings.take(f"load, {place.name}", OURS, lambda place=place, rows=rows: place.write(rows))
        timings.take(f"load, {place.name}", PARQUET, lambda place=place, rows=rows: place.append(rows))
    for number, file in enumerate(work.upserts):
        for place in places[:: 1 if number % 2 else -1]:
            rows = spark.read.parquet(str(file))
            timings.take(f"upsert, {place.name}", OURS, lambda place=place, rows=rows: place.write(rows))
            timings.take(f"upsert, {place.name}", PARQUET, lambda place=place, rows=rows: place.append(rows))
        console.print(f"  upsert {number + 1} of {len(work.upserts)}")
    for turn in range(SCANS):
        for place in places:
            scan(timings, place, work, turn)
    for place in places:
        look_up(timings, place, work)
    return timings


def scan(timings: Timings, place: Place, work: Workload, turn: int) -> None:
    ways: list[tuple[str, Callable[[], DataFrame]]] = [(OURS, place.ours), (DELTA, place.deltas)]
    total, whole = (F.count("*"), F.sum("amount")), F.sum(F.hash("*"))
    for who, table in ways[:: 1 if turn % 2 else -1]:
        found = timings.take(f"count+sum, {place.name}", who, lambda t=table: t().agg(*total).collect()[0])
        if found[0] != work.counts[-1]:
            raise SystemExit(f"{who} on {place.name} counts {found[0]} rows instead of {work.counts[-1]}")
        timings.take(f"all columns, {place.name}", who, lambda t=table: t().select(whole).collect())


def look_up(timings: Timings, place: Place, work: Workload) -> None:
    keys = np.random.default_rng(1).integers(0, work.rows, (2 * GETS, KEYS))
    table = place.reopened()
    for number, some in enumerate(keys):
        wanted = pl.DataFrame({"order_id": some})
        stage = "1,000 keys" if number >= GETS else "1,000 keys, the first times"
        found = timings.take(f"{stage}, {place.name}", OURS, lambda wanted=wanted: table.get(wanted))
        if len(found) != wanted.unique().height:
            raise SystemExit(f"{len(found)} of {wanted.unique().height} keys were found on {place.name}")


def report(timings: Timings, server: str, console: Console) -> None:
    table = Printed("stage", "who", "runs", "median s", "worst s")
    for (stage, who), values in timings.seconds.items():
        table.add_row(stage, who, str(len(values)), f"{statistics.median(values):.3f}", f"{max(values):.3f}")
    console.print(table)
    ratios = Printed(f"ratio (S3: {server})", "local", "S3", "asked in S3")
    for name, stage, mine, theirs, asked in (
        ("upsert / Parquet append by Spark to the same place", "upsert", OURS, PARQUET, "≤ 1.5"),
        ("load / Parquet write", "load", OURS, PARQUET, ""),
        ("count+sum / Delta's own", "count+sum", OURS, DELTA, "≤ 1.2"),
        ("all columns / Delta's own", "all columns", OURS, DELTA, "≤ 1.2"),
    ):
        shown = [f"{timings.ratio(f'{stage}, {place}', mine, theirs):.2f}" for place in (LOCAL, S3)]
        ratios.add_row(name, *shown, asked)
    shown = [f"{1000 * (timings.median(f'1,000 keys, {place}', OURS) or 0):.0f} ms" for place in (LOCAL, S3)]
    ratios.add_row("1,000 keys, warm", *shown, "≤ 100 ms")
    console.print(ratios)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.s3", description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--upserts", type=int, default=10)
    parser.add_argument("--upsert-rows", type=int, default=250_000)
    arguments = parser.parse_args()
    console = Console()
    work = workload(cache_root() / "bench", arguments.rows, arguments.upserts, arguments.upsert_rows)
    small = workload(cache_root() / "bench", 20_000, 3, 2_000)
    with s3_server() as (name, server), tempfile.TemporaryDirectory(prefix="tablestore-bench-") as folder:
        os.environ.update(server.environment())
        reached = {"endpoint": server.endpoint, "region": server.region}
        settings = {
            "spark.driver.memory": "6g",
            "spark.sql.shuffle.partitions": "4",
            "spark.local.dir": f"{folder}/spark",
            "spark.sql.parquet.compression.codec": "zstd",
            "spark.hadoop.parquet.compression.codec.zstd.level": "1",
        }
        spark = spark_session("tablestore-bench-s3", settings, master="local[2]", storage_options=reached)

        def places(named: str) -> list[Place]:
            bucket = server.new_bucket()
            below = Path(folder, named)
            below.mkdir()
            return [
                Place(LOCAL, spark, str(below), below / "local.db", None),
                Place(S3, spark, f"s3://{bucket}/{named}", below / "s3.db", reached),
            ]

        console.print(f"S3 is {name}; warming up")
        run(small, places("warm"), Console(quiet=True))
        console.print("measuring")
        report(run(work, places("run"), console), name, console)
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
