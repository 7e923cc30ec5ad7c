"""``python -m tests.bench [--rows N] [--upserts K] [--loads K] [--merges K] [--memory-rows N …] [--growth-rows N …]``.

Absolute times on a busy machine are noise, so peers take turns within one run and ratios of medians are printed
beside what is asked of them. Exit status 1 if an answer is wrong; a missed ratio is shown, not hidden.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import statistics
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np
import polars as pl
import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from rich.console import Console
from rich.table import Table

from compaction.compact import compact_table
from filestore.ambient import system_ambient
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tablestore.jars import cache_root
from tablestore.spark import spark_session
from tablestore.spark.batch.compaction import spark_compaction
from tests.bench.peers import BUCKETS, LATER, LOGGED, OURS, WAYS, Merge, Ours, Parquet, Peer
from tests.bench.timings import Timings
from tests.bench.workload import Workload, workload

DELTA = "Delta's own reader"
LATER_FIRST, FOLDED_FIRST = f"tablestore, {LATER}, first read", "tablestore, first read"
SCANS = 8
PENDING = 4
REWRITE, SPARK_COMPACTION, LOCAL_COMPACTION = "Spark's rewrite", "SparkStore.compact", "table.compact"
COMPACTIONS = 3
GETS = 5


def session(folder: Path) -> SparkSession:
    return spark_session(
        "tablestore-bench",
        {
            "spark.master": "local[2]",
            "spark.driver.memory": "6g",
            "spark.sql.shuffle.partitions": "4",
            "spark.local.dir": str(folder / "spark"),
            "spark.sql.parquet.compression.codec": "zstd",
            "spark.hadoop.parquet.compression.codec.zstd.level": "1",
        },
    )


def run(spark: SparkSession, work: Workload, folder: Path, loads: int, merges: int, console: Console) -> Timings:
    """All stages on fresh tables; peers take turns at every load, upsert and scan."""
    timings = Timings()
    read = spark.read.parquet
    for number in range(loads):
        below = folder / f"load-{number}"
        ours = Ours(spark, below)
        ways = {what: Ours(spark, below, what, options) for what, options in WAYS.items()}
        peers: list[Peer] = [Parquet(below), ours, *ways.values(), *([Merge(spark, below)] if merges else [])]
        for peer in peers:
            timings.take("load", peer.name, lambda peer=peer: peer.load(read(str(work.base))))
        console.print(line(f"load {number + 1} of {loads}", timings, "load", peers))
    for number, file in enumerate(work.upserts):
        turn = [peer for peer in peers if number < merges or not isinstance(peer, Merge)]
        if number == len(work.upserts) - PENDING:
            timings.take("fold", LATER, lambda: ways[LATER].lake.compact("bench.orders", full=True))
        for peer in turn:
            timings.take("upsert", peer.name, lambda peer=peer, file=file: peer.upsert(read(str(file))))
        console.print(line(f"upsert {number + 1} of {len(work.upserts)}", timings, "upsert", turn))
    readers = {
        peer.name: Reader(peer.table, merges if isinstance(peer, Merge) else len(work.upserts))
        for peer in peers
        if not isinstance(peer, Parquet)
    }
    delta = spark.read.format("delta")
    readers[DELTA] = Reader(lambda: delta.load(ours.managed.location), len(work.upserts))
    readers[LATER_FIRST] = Reader(ways[LATER].table, len(work.upserts), ways[LATER].forget_overlay)
    unseen = Unseen(ours.managed.location, folder / "unseen")
    readers[FOLDED_FIRST] = Reader(lambda: delta.load(unseen.location), len(work.upserts), unseen.renew)
    scans(timings, readers, work)
    local_reads(timings, ours, work)
    compactions(timings, spark, ours, folder, work)
    many_keys(timings, ours, work)
    return timings


def line(what: str, timings: Timings, stage: str, peers: Sequence[Peer]) -> str:
    return f"  {what}: " + ", ".join(f"{p.name} {timings.last(stage, p.name):.2f} s" for p in peers)


@dataclass(frozen=True)
class Reader:
    """Gives the current rows, after that many upserts; before each read, something is done that is not timed."""

    table: Callable[[], DataFrame]
    upserts: int
    before: Callable[[], object] = lambda: None


@dataclass
class Unseen:
    """The same files below another path each time: a version that Delta has not read, as after each commit."""

    source: str
    folder: Path
    number: int = 0

    @property
    def location(self) -> str:
        return str(self.folder / str(self.number))

    def renew(self) -> None:
        self.number += 1
        shutil.copytree(self.source, self.location, copy_function=os.link)


def scans(timings: Timings, readers: Mapping[str, Reader], work: Workload) -> None:
    order = deque(readers.items())
    for turn in range(SCANS):
        order.rotate()  # whoever comes first pays for what the others left in the heap
        for who, reader in order:
            table, key = reader.table, work.point_keys[turn]
            reader.before()
            row = timings.take("count+sum", who, lambda t=table: t().agg(F.count("*"), F.sum("amount")).collect()[0])
            check(who, row[0], row[1], work.counts[reader.upserts], work.sums[reader.upserts])
            reader.before()
            timings.take("all columns", who, lambda t=table: t().select(F.sum(F.hash("*"))).collect())
            reader.before()
            timings.take("point", who, lambda t=table, k=key: t().where(F.col("order_id") == k).collect())


def local_reads(timings: Timings, ours: Ours, work: Workload) -> None:
    table, location = ours.managed, ours.managed.location
    done = len(work.upserts)
    for _ in range(3):
        rows = timings.take("local all columns", "table.scan", lambda: table.scan().to_arrow())
        frame = pl.from_arrow(rows.select(["amount"]))
        check("table.scan", len(frame), frame["amount"].sum(), work.counts[done], work.sums[done])
        timings.take("local all columns", "polars.scan_delta", lambda: pl.scan_delta(location).collect())
    for key in work.point_keys:
        where = f"order_id = {key}"
        timings.take("local point", "table.scan", lambda where=where: table.scan(where=where).to_arrow())
        timings.take(
            "local point",
            "polars.scan_delta",
            lambda key=key: pl.scan_delta(location).filter(pl.col("order_id") == key).collect(),
        )


def compactions(timings: Timings, spark: SparkSession, ours: Ours, folder: Path, work: Workload) -> None:
    """Full compactions of the table with all upserts, beside reading its rows and writing them as plain Parquet."""
    for turn in range(COMPACTIONS):
        order = deque([REWRITE, SPARK_COMPACTION, LOCAL_COMPACTION])
        order.rotate(turn)
        for who in order:
            copy = folder / "compacted"
            shutil.copytree(ours.managed.location, copy)
            store = FileStore.open(LocalStorage(), str(copy), system_ambient())
            plain = spark.read.format("delta").load(str(copy))
            ways: dict[str, Callable[[], object]] = {
                REWRITE: lambda plain=plain: plain.write.parquet(str(folder / "rewritten")),
                SPARK_COMPACTION: lambda store=store: compact_table(store, full=True, runner=spark_compaction(spark)),
                LOCAL_COMPACTION: lambda store=store: compact_table(store, full=True),
            }
            timings.take("compaction", who, ways[who])
            if who != REWRITE:
                found = pl.scan_delta(str(copy)).select(pl.len(), pl.sum("amount")).collect().row(0)
                check(who, *found, work.counts[-1], work.sums[-1])
                if (files := len(store.state().files)) > BUCKETS * 2:
                    raise SystemExit(f"{who} leaves {files} files")
            shutil.rmtree(copy)
            shutil.rmtree(folder / "rewritten", ignore_errors=True)


def many_keys(timings: Timings, ours: Ours, work: Workload) -> None:
    """1,000 keys at a time: in a process that has not asked before, and once it asks again and again."""
    location = ours.managed.location
    keys = np.random.default_rng(1).integers(0, work.rows, (GETS, 1000))
    frames = pl.DataFrame({"order_id": keys[0]})
    timings.take("1,000 keys, cold", "table.get", lambda: ours.reopened().get(frames))
    table = ours.reopened()
    for some in keys:
        table.get(pl.DataFrame({"order_id": some}))
    for some in keys:
        found = timings.take("1,000 keys", "table.get", lambda some=some: table.get(pl.DataFrame({"order_id": some})))
        wanted = timings.take(
            "1,000 keys",
            "polars.scan_delta",
            lambda some=some: pl.scan_delta(location).filter(pl.col("order_id").is_in(some)).collect(),
        )
        if not found.to_polars().sort("order_id").equals(wanted.sort("order_id")):
            raise SystemExit("table.get gives other rows than polars")


def check(who: str, count: int, total: float, wanted: int, wanted_total: float) -> None:
    if count != wanted or not math.isclose(total, wanted_total, rel_tol=1e-9):
        raise SystemExit(f"{who} gives {count} rows and sum {total}, it must be {wanted} and {wanted_total}")


def worker_memory_mb() -> int:
    """The largest peak of a living Python worker of Spark, in MiB (VmHWM; Linux)."""
    peaks = [0]
    for child in psutil.Process().children(recursive=True):
        try:
            if any("pyspark" in part for part in child.cmdline()) and "java" not in child.name():
                status = Path(f"/proc/{child.pid}/status").read_text()
                peaks += [int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmHWM")]
        except (psutil.NoSuchProcess, FileNotFoundError):
            continue
    return max(peaks)


def growth(timings: Timings, spark: SparkSession, work: Workload, folder: Path, sizes: Sequence[int]) -> None:
    """Merge-on-read commits on tables of several sizes: what one costs must not depend on what is there."""
    base = spark.read.parquet(str(work.base))
    tables = {}
    for size in sizes:
        table = tables[size] = Ours(spark, folder / f"growth-{size}", LATER, WAYS[LATER])
        parts = [base.withColumn("order_id", F.col("order_id") + k * work.rows) for k in range(-(-size // work.rows))]
        table.load(reduce(DataFrame.unionByName, parts).where(F.col("order_id") < size))
    for file in work.upserts:
        for size, table in tables.items():
            rows = spark.read.parquet(str(file))
            timings.take("commit", f"on {size:,} rows", lambda table=table, rows=rows: table.upsert(rows))


def memory(spark: SparkSession, work: Workload, folder: Path, rows: int) -> int:
    """Loads `rows` rows (the base again and again under other keys) and upserts once; the workers' peak."""
    peer = Ours(spark, folder / f"memory-{rows}", LOGGED, WAYS[LOGGED])
    base = spark.read.parquet(str(work.base))
    parts = [base.withColumn("order_id", F.col("order_id") + k * work.rows) for k in range(rows // work.rows)]
    table = parts[0]
    for part in parts[1:]:
        table = table.unionByName(part)
    peer.load(table)
    peer.upsert(spark.read.parquet(str(work.upserts[0])))
    return worker_memory_mb()


def report(timings: Timings, peaks: dict[int, int], console: Console) -> None:
    table = Table("stage", "who", "runs", "median s", "worst s")
    for (stage, who), values in timings.seconds.items():
        table.add_row(stage, who, str(len(values)), f"{statistics.median(values):.3f}", f"{max(values):.3f}")
    console.print(table)
    ours, floor, merge = OURS, Parquet.name, Merge.name
    logged, imaged, updated, summed, later = (f"tablestore, {what}" for what in WAYS)
    asked = [
        ("upsert / Parquet append", timings.ratio("upsert", ours, floor), "≤ 1.5"),
        ("upsert with embedded log / Parquet append", timings.ratio("upsert", logged, floor), ""),
        ("upsert with lookup changelog / upsert without", timings.ratio("upsert", imaged, ours), "≤ 2"),
        ("partial-update upsert / upsert", timings.ratio("upsert", updated, ours), "≤ 2.5"),
        ("aggregation upsert / upsert", timings.ratio("upsert", summed, ours), "≤ 2.5"),
        ("merge-on-read commit / upsert", timings.ratio("upsert", later, ours), ""),
        *(
            (f"{stage} with {PENDING} pending runs / folded{when}", timings.ratio(stage, overlaid, folded), "≤ 2")
            for stage in ("count+sum", "all columns")
            for when, overlaid, folded in (("", later, ours), (", first read of each", LATER_FIRST, FOLDED_FIRST))
        ),
        ("Delta MERGE / upsert", timings.ratio("upsert", merge, ours), "≥ 5"),
        ("load / Parquet write", timings.ratio("load", ours, floor), "≤ 1.5"),
        ("load with embedded log / Parquet write", timings.ratio("load", logged, floor), ""),
        ("count+sum / Delta's own on the same files", timings.ratio("count+sum", ours, DELTA), "≤ 1.2"),
        ("all columns / Delta's own on the same files", timings.ratio("all columns", ours, DELTA), "≤ 1.2"),
        (
            "local scan / polars on the same files",
            timings.ratio("local all columns", "table.scan", "polars.scan_delta"),
            "",
        ),
        ("local point / polars on the same files", timings.ratio("local point", "table.scan", "polars.scan_delta"), ""),
        ("1,000 keys / polars on the same files", timings.ratio("1,000 keys", "table.get", "polars.scan_delta"), ""),
    ]
    asked += [
        (f"{who} of all upserts / plain rewrite", timings.ratio("compaction", who, REWRITE), "≤ 1.5")
        for who in (SPARK_COMPACTION, LOCAL_COMPACTION)
    ]
    commits = [who for stage, who in timings.seconds if stage == "commit"]
    asked += [
        (f"commit {who} / {commits[0]}", timings.ratio("commit", who, commits[0]), "0.8 to 1.2") for who in commits[1:]
    ]
    ratios = Table("ratio", "measured", "asked")
    for name, value, wanted in asked:
        ratios.add_row(name, "-" if math.isnan(value) else f"{value:.2f}", wanted)
    if (keys := timings.median("1,000 keys", "table.get")) is not None:
        ratios.add_row("1,000 keys", f"{keys * 1000:.0f} ms", "≤ 50 ms")
    for rows, peak in peaks.items():
        ratios.add_row(f"peak of a Python worker at {rows:,} rows", f"{peak} MiB", "≤ 1024 MiB")
    console.print(ratios)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--upserts", type=int, default=10)
    parser.add_argument("--upsert-rows", type=int, default=250_000)
    parser.add_argument("--loads", type=int, default=3)
    parser.add_argument("--merges", type=int, default=3, help="how many of the upserts MERGE takes part in")
    parser.add_argument("--memory-rows", type=int, nargs="*", default=[5_000_000, 20_000_000])
    parser.add_argument("--growth-rows", type=int, nargs="*", default=[1_000_000, 50_000_000])
    arguments = parser.parse_args()
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="tablestore-bench-"))
    try:
        console.print("making the workload (once)")
        cache = cache_root() / "bench"
        work = workload(cache, arguments.rows, arguments.upserts, arguments.upsert_rows)
        small = workload(cache, 20_000, 3, 2_000)
        spark = session(folder)
        console.print("warming up")
        run(spark, small, folder / "warm", 1, min(arguments.merges, 1), Console(quiet=True))
        console.print("measuring")
        timings = run(spark, work, folder / "run", arguments.loads, arguments.merges, console)
        peaks = {}
        if arguments.memory_rows:
            spark.stop()  # workers that have kept columns of the tables before would count those, too
            spark = session(folder)
        for rows in arguments.memory_rows:
            console.print(f"memory at {rows:,} rows")
            peaks[rows] = memory(spark, work, folder, rows)
        if arguments.growth_rows:
            console.print("commits on tables of " + ", ".join(f"{rows:,}" for rows in arguments.growth_rows) + " rows")
            growth(timings, spark, work, folder, arguments.growth_rows)
        report(timings, peaks, console)
        spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
