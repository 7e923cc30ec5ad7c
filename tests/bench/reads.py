"""``python -m tests.bench.reads [--rows N] [--turns K]``: local reads of tables with many small files, beside polars.

The table is loaded and upserted without Spark and without compaction until it has 44 and 208 files, nearly all with
dead rows, and is compacted once. A full scan in each form and polars' scan of the same files take turns, then a scan
for one key and `get`. Wall time is printed beside processor time, which others on the machine change less.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table as Printed

import tablestore
from tablestore import Table
from tablestore.jars import cache_root
from tests.bench.workload import SCHEMA_SQL, Workload, workload

FILES = (4, 44, 208)
BUCKETS = 4
ASKED_SCAN, ASKED_POINT_MS = 1.2, 30.0
PEERS = {"to_polars": "polars", "to_arrow": "polars, in Arrow", "to_batches": "polars, in Arrow"}
"""What each form of a result is compared with: the same rows in the same form."""
Timings = Mapping[str, Sequence[tuple[float, float]]]


def build(store: tablestore.Store, work: Workload, files: int) -> Table:
    """A table of the load and of upserts, so many that it has that many files; of four if it is compacted."""
    upserts = files // BUCKETS - 1 or 10
    table = store.create_table(
        f"bench.files_{files}",
        SCHEMA_SQL,
        primary_key=["order_id"],
        options={"bucket": str(BUCKETS), "log.system": "none"},
    )
    for path in (work.base, *work.upserts[:upserts]):
        table.write(pq.read_table(path))
    if files == BUCKETS:
        table.compact(full=True)
    if (found := len(table.files())) != files:
        raise SystemExit(f"{files} files were to be made, and {found} are there")
    return table


def in_turns(ways: Mapping[str, Callable[[int], int]], turns: Sequence[int]) -> Timings:
    """Seconds and processor seconds of each way; all must count the same rows. The first turn warms up."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for turn in turns:
        counts = set()
        for name, way in ways.items():
            begin, processor = time.perf_counter(), time.process_time()
            counts.add(way(turn))
            found[name].append((time.perf_counter() - begin, time.process_time() - processor))
        if len(counts) != 1:
            raise SystemExit(f"{', '.join(ways)} count {counts} rows")
    return {name: times[1:] for name, times in found.items()}


def median(times: Sequence[tuple[float, float]], which: int) -> float:
    return statistics.median(pair[which] for pair in times)


def report(printed: Printed, files: int, work: Workload, table: Table, turns: int) -> None:
    location = table.location
    full = in_turns(
        {
            "polars": lambda _: len(pl.scan_delta(location).collect()),
            "polars, in Arrow": lambda _: pl.scan_delta(location).collect().to_arrow().num_rows,
            "to_polars": lambda _: len(table.scan().to_polars()),
            "to_arrow": lambda _: len(table.scan().to_arrow()),
            "to_batches": lambda _: sum(rows.num_rows for rows in table.scan().to_batches()),
        },
        range(turns + 1),
    )
    for name, peer in PEERS.items():
        wall, processor = (median(full[name], n) / median(full[peer], n) for n in (0, 1))
        printed.add_row(
            f"{files} files", f"full scan, {name} / {peer}", f"{wall:.2f}", f"{processor:.2f}", f"≤ {ASKED_SCAN}"
        )
    point = in_turns(
        {
            "scan": lambda key: len(table.scan(where=f"order_id = {key}").to_arrow()),
            "get": lambda key: len(table.get([key])),
        },
        work.point_keys,
    )
    for name, asked in (("scan", f"≤ {ASKED_POINT_MS:.0f} ms"), ("get", "")):
        wall, processor = (f"{median(point[name], n) * 1000:.1f} ms" for n in (0, 1))
        printed.add_row(f"{files} files", f"one key, {name}", wall, processor, asked)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.reads", description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--upsert-rows", type=int, default=50_000)
    parser.add_argument("--turns", type=int, default=7)
    arguments = parser.parse_args()
    work = workload(cache_root() / "bench", arguments.rows, max(FILES) // BUCKETS - 1, arguments.upsert_rows)
    printed = Printed("table", "what", "wall", "processor", "asked")
    with tempfile.TemporaryDirectory(prefix="tablestore-bench-") as folder:
        store = tablestore.connect(str(Path(folder, "store")))
        store.create_database("bench")
        for files in FILES:
            report(printed, files, work, build(store, work, files), arguments.turns)
    Console().print(printed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
