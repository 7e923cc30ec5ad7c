"""``python -m tests.bench.stream_and_compact [--seconds N] [--in-writer | --no-compaction] …``: a stream, compacted.

One process commits upserts each second, another is ``tablestore compactor`` on the same table. Shown: that no conflict
reaches the writer, that the slowest commits stay near the median, and that files stay few. Exit status 1 if a
conflict surfaced, a row is wrong, or the doctor finds something; a missed ratio is shown, not hidden.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table as Printed

import tablestore
from compaction.choice import sorted_runs
from filestore.errors import Conflict
from filestore.model.snapshot import Operation
from tablestore import Table
from tests.tables import by_slot

BUCKETS = 4
TRIGGER = 5
REPORT_S = 30


@dataclass
class Seen:
    """What the writer met."""

    commit_s: list[float] = field(default_factory=list)
    late: int = 0
    conflicts: int = 0
    files: list[int] = field(default_factory=list)
    runs: list[int] = field(default_factory=list)

    def line(self, elapsed: float) -> str:
        part = 1000 * np.array(self.commit_s)
        return (
            f"{elapsed:5.0f} s: {len(part)} commits, {self.conflicts} conflicts, median {np.median(part):.0f} ms, "
            f"p99 {np.percentile(part, 99):.0f} ms, worst {part.max():.0f} ms, "
            f"{self.files[-1]} files (at most {max(self.files)}), runs of a bucket at most {max(self.runs)}"
        )


def make(folder: Path, rows: int, in_writer: bool) -> Table:
    store = tablestore.connect(str(folder / "warehouse"))
    store.create_database("bench")
    options = {
        "bucket": str(BUCKETS),
        "num-sorted-run.compaction-trigger": str(TRIGGER),
        "compaction.in-writer": str(in_writer).lower(),
    }
    columns = "id BIGINT, v BIGINT, status STRING, amount DOUBLE, note STRING"
    table = store.create_table("bench.orders", columns, primary_key=["id"], options=options)
    step = 1_000_000
    for start in range(0, rows, step):
        ids = np.arange(start, min(start + step, rows))
        table.write(batch(ids, 0))
    return table


def batch(ids: np.ndarray, number: int) -> pl.DataFrame:
    dice = np.random.default_rng(number)
    return pl.DataFrame(
        {
            "id": ids,
            "v": np.full(len(ids), number),
            "status": np.array(["OPEN", "PAID", "SENT"])[dice.integers(0, 3, len(ids))],
            "amount": dice.random(len(ids)),
            "note": pl.Series(dice.integers(0, 10**12, len(ids))).cast(pl.String),
        }
    )


def stream(table: Table, keys: np.ndarray, arguments: argparse.Namespace, console: Console) -> Seen:
    """Commits each second until the time is over; `keys` is what the table must hold: the last number by id."""
    seen, dice = Seen(), np.random.default_rng(1)
    begin = time.perf_counter()
    reported = 0.0
    number = 0
    while (elapsed := time.perf_counter() - begin) < arguments.seconds:
        number += 1
        ids = np.unique(dice.integers(0, len(keys), arguments.upsert_rows))
        rows = batch(ids, number)
        start = time.perf_counter()
        try:
            table.write(rows)
        except Conflict as error:
            seen.conflicts += 1
            console.print(f"conflict: {error}")
        else:
            keys[ids] = number
        seen.commit_s.append(time.perf_counter() - start)
        slots = by_slot(table.filestore.state())
        seen.files.append(sum(map(len, slots)))
        seen.runs.append(max(len(sorted_runs(files, table.definition)) for files in slots))
        if elapsed - reported >= REPORT_S:
            reported = elapsed
            console.print(seen.line(elapsed))
        pause = begin + number * arguments.interval - time.perf_counter()
        seen.late += pause < 0
        time.sleep(max(0.0, pause))
    return seen


@contextmanager
def compactor(folder: Path, every: float) -> Iterator[None]:
    """``tablestore compactor`` in a process of its own."""
    command = [sys.executable, "-m", "tablestore.cli", "compactor", "--every", str(every)]
    environment = os.environ | {"TABLESTORE_CATALOG": str(folder / "warehouse")}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(120)


def judge(table: Table, keys: np.ndarray, console: Console) -> bool:
    """Every row is the last one that was written, by polars' own reader; and the doctor is content."""
    found = pl.scan_delta(table.location).select("id", "v").collect().sort("id")
    right = np.array_equal(found["id"].to_numpy(), np.arange(len(keys))) and np.array_equal(found["v"].to_numpy(), keys)
    problems = table.examine().problems
    console.print(f"rows {'right' if right else 'WRONG'}, doctor: {len(problems)} problems")
    return bool(right and not problems)


def report(table: Table, seen: Seen, console: Console) -> None:
    compactions = sum(s.operation is Operation.COMPACT for s in table.snapshots())
    median, p99 = np.median(seen.commit_s), np.percentile(seen.commit_s, 99)
    shown = Printed("what", "measured", "asked")
    for row in (
        ("commits", str(len(seen.commit_s)), ""),
        ("commits that began late", str(seen.late), ""),
        ("conflicts that surfaced", str(seen.conflicts), "0"),
        ("compactions", str(compactions), "> 0"),
        ("median commit", f"{median * 1000:.0f} ms", ""),
        ("p99 / median", f"{p99 / median:.2f}", "≤ 3"),
        ("worst commit", f"{max(seen.commit_s) * 1000:.0f} ms", ""),
        (
            "files at most, and in the last tenth",
            f"{max(seen.files)}, {max(seen.files[-len(seen.files) // 10 :])}",
            "bounded",
        ),
        ("runs of a bucket at most", str(max(seen.runs)), ""),
    ):
        shown.add_row(*row)
    console.print(shown)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.stream_and_compact", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--interval", type=float, default=1.0, help="seconds from one commit to the next")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--upsert-rows", type=int, default=20_000)
    parser.add_argument("--every", type=float, default=2.0, help="how often the compactor looks")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--in-writer", action="store_true", help="the writer compacts, instead of a compactor")
    how.add_argument("--no-compaction", action="store_true", help="to compare with")
    arguments = parser.parse_args()
    console = Console(soft_wrap=True)
    folder = Path(tempfile.mkdtemp(prefix="tablestore-stream-"))
    try:
        table = make(folder, arguments.rows, arguments.in_writer)
        keys = np.zeros(arguments.rows, dtype=np.int64)
        if arguments.in_writer or arguments.no_compaction:
            seen = stream(table, keys, arguments, console)
        else:
            with compactor(folder, arguments.every):
                seen = stream(table, keys, arguments, console)
        report(table, seen, console)
        return 0 if judge(table, keys, console) and not seen.conflicts else 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
