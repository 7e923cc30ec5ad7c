"""``python -m tests.integration.soak [--seconds N] [--rate N] [--kill-every S]``: a table under load and kills.

A writer commits changes each second, a reader follows and stores them; writer, broker and reader are killed
in turn and started again. At the end the table has what was written, the reader's changes lead to it exactly (each
``-U`` and ``-D`` is the row that was there), the topic's records do so, too, and the doctor finds nothing.

What the writer writes is a function of a number, and each commit contains its number: a restarted writer goes on with
the next one. The reader stores the changes between two versions as one file, named by both: a restarted one goes on
behind its last file.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from rich.console import Console

import tablestore
from filestore.errors import Unavailable
from filestore.model.rowkind import KIND_COLUMN
from log.table.systems import open_log
from tablestore import Table
from tests.servers.kafka import KafkaBroker
from tests.servers.system import die_with_the_parent
from tests.waiting import until

BUCKETS, KEYS = 4, 200_000
APP = "soak"
COLUMNS = "id BIGINT, number BIGINT, note STRING"
PATIENCE_S = 120.0


# --------------------------------------------------------------------------------------------- what is written


def batch(number: int, rate: int) -> pl.DataFrame:
    """Returns the changes of one commit, each of another key; one in eight is a delete."""
    dice = np.random.default_rng(number)
    ids = dice.choice(KEYS, rate, replace=False)
    kinds = np.where(dice.random(rate) < 0.125, "-D", "+U")
    notes = [f"{number} of {key}" for key in ids.tolist()]
    return pl.DataFrame({"id": ids, "number": np.full(rate, number), "note": notes, KIND_COLUMN: kinds})


def expected(batches: int, rate: int) -> pl.DataFrame:
    """Returns the table's rows after so many commits."""
    changes = pl.concat([batch(number, rate) for number in range(batches)])
    last = changes.group_by("id", maintain_order=True).last()
    return last.filter(pl.col(KIND_COLUMN) != "-D").drop(KIND_COLUMN).sort("id")


def written(table: Table) -> int:
    """Returns how many commits the table has."""
    return table.filestore.state().app_versions.get(APP, -1) + 1


def table_of(warehouse: str) -> Table:
    return tablestore.connect(warehouse).table("soak.rows")


# ------------------------------------------------------------------------------------------- who writes and reads


def write(warehouse: str, rate: int, stop: Path) -> None:
    """Commits once each second, until the file `stop` exists."""
    table = table_of(warehouse)
    begin = time.monotonic() - written(table)
    while not stop.exists():
        number = written(table)
        time.sleep(max(0.0, begin + number - time.monotonic()))
        with contextlib.suppress(Unavailable):  # the loop writes the same number again
            table.write(batch(number, rate), app=(APP, number))


def read(warehouse: str, kept: Path) -> None:
    """Stores changes as they arrive, until it is killed."""
    table = table_of(warehouse)
    while True:
        with contextlib.suppress(Unavailable):
            follow(table, kept)


def follow(table: Table, kept: Path) -> None:
    at = since = max((last for _, last in spans(kept)), default=0)
    with table.follow(version=at, mode="changelog") as changes:
        held: list[pa.RecordBatch] = []
        for some in changes:
            if (done := changes.progress.version) != since:
                if held:
                    keep(kept, at, done, held)
                    at, held = done, []
                since = done
            held.append(some)


def keep(kept: Path, after: int, until_version: int, held: list[pa.RecordBatch]) -> None:
    new = kept / ".new"
    pl.from_arrow(pa.Table.from_batches(held)).write_ipc(new)  # type: ignore[union-attr]
    new.rename(kept / f"{after:09d}-{until_version:09d}.arrow")


def spans(kept: Path) -> list[tuple[int, int]]:
    """Returns the versions before and after each stored file."""
    names = sorted(path.stem.split("-") for path in kept.glob("*.arrow"))
    return [(int(first), int(last)) for first, last in names]


# ------------------------------------------------------------------------------------------------- who judges


def exact(changes: pl.DataFrame) -> pl.DataFrame:
    """Returns the rows to which a changelog leads; fails if a change does not fit the row that was there."""
    by_key = changes.with_row_index("at").sort("id", "at")
    row = pl.struct("number", "note")
    adds = pl.col(KIND_COLUMN).is_in(["+I", "+U"])
    checked = by_key.with_columns(
        before=row.shift(1).over("id"), present=adds.shift(1).over("id").fill_null(False), adds=adds, row=row
    )
    fits = pl.when("adds").then(~pl.col("present")).otherwise(pl.col("present") & (pl.col("row") == pl.col("before")))
    wrong = checked.filter(~fits)
    assert wrong.is_empty(), f"{len(wrong)} changes do not fit: {wrong.head(5).to_dicts()}"
    last = by_key.group_by("id", maintain_order=True).last()
    return last.filter(adds).select("id", "number", "note").sort("id")


def kept_changes(kept: Path) -> pl.DataFrame:
    found = spans(kept)
    for (_, end), (begin, _) in itertools.pairwise(found):
        assert end == begin, f"the reader's files leave out or repeat versions: {found}"
    return pl.concat([pl.read_ipc(path) for path in sorted(kept.glob("*.arrow"))])


def logged(table: Table) -> pl.DataFrame:
    """Reads what the log holds of all snapshots, in their order."""
    config = table.opened.required_log()
    with open_log(config, table.opened.ambient) as log:
        transactions = [t for snapshot in reversed(table.snapshots()) for t in snapshot.transactions]
        return pl.concat([pl.from_arrow(b.rows) for b in log.read(transactions)])  # type: ignore[type-var]


# --------------------------------------------------------------------------------------------------- the soak


@dataclass
class Player:
    """A process that is killed and started again."""

    name: str
    arguments: list[str]
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "tests.integration.soak", self.name, *self.arguments]
        self.process = subprocess.Popen(command, env=environment, preexec_fn=die_with_the_parent)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def check(self) -> None:
        """Asserts that the process runs, or that the writer has stopped because it was asked to."""
        assert self.process is not None
        assert self.process.poll() in (None, 0), f"the {self.name} ended with {self.process.returncode}"


@dataclass(frozen=True, slots=True)
class Reported:
    """The result of a soak without errors.

    Attributes:
        deaths: How often each process was killed.
        commits: How many commits the writer made.
        records: How many records of these commits the log has.
        kept: How many changes the reader stored.
    """

    deaths: Mapping[str, int]
    commits: int
    records: int
    kept: int


def soak(folder: Path, seconds: float, rate: int, kill_every: float, say: Console) -> Reported:
    """Runs everything; an AssertionError says what went wrong.

    Args:
        folder: An empty folder.
        seconds: How long the processes work in all; restarts are not counted, so that slow machines have as many.
        rate: Changes in each second.
        kill_every: About so many seconds are between two deaths.
        say: The console to which each death is printed.
    """
    warehouse, kept, stop = folder / "warehouse", folder / "kept", folder / "stop"
    kept.mkdir()
    died: Counter[str] = Counter()
    with KafkaBroker(folder / "broker") as broker:
        table = make(warehouse, broker)
        writer = Player("writer", [str(warehouse), str(rate), str(stop)])
        reader = Player("reader", [str(warehouse), str(kept)])
        try:
            writer.start()
            reader.start()
            for pause, victim in deaths(seconds, kill_every):
                work(table, kept, pause, (writer, reader))
                say.print(f"{written(table)} commits, {len(spans(kept))} files; the {victim} dies")
                died[victim] += 1
                if victim == "broker":
                    broker.kill()
                    broker.restart()
                else:
                    player = writer if victim == "writer" else reader
                    player.kill()
                    player.start()
            stop.touch()
            assert writer.process is not None
            assert writer.process.wait(PATIENCE_S) == 0
            version = finish(table, rate)
            until(lambda: spans(kept) and spans(kept)[-1][1] >= version, PATIENCE_S, "that the reader has everything")
        finally:
            for player in (writer, reader):
                if player.process is not None:
                    player.kill()
        reported = judge(table, kept, rate, died)
    counts = f"{reported.commits} commits, {reported.records:,} records, {reported.kept:,} changes kept"
    say.print(f"{counts}: none lost, none doubled")
    return reported


def work(table: Table, kept: Path, seconds: float, players: Sequence[Player]) -> None:
    """Waits so long, and until writer and reader have made progress: a dead process must not stop the others."""
    commits, files = written(table), len(spans(kept))

    def further() -> bool:
        for player in players:
            player.check()
        return len(spans(kept)) > files and written(table) > commits

    time.sleep(seconds)
    until(further, PATIENCE_S, "that writer and reader go on")


def make(warehouse: Path, broker: KafkaBroker) -> Table:
    store = tablestore.connect(str(warehouse))
    store.create_database("soak")
    return store.create_table(
        "soak.rows",
        COLUMNS,
        primary_key=["id"],
        options={
            "bucket": str(BUCKETS),
            "changelog-producer": "lookup",
            "compaction.in-writer": "true",
            "snapshot.num-retained.min": "100000",
            "log.system": "kafka",
            "log.kafka.bootstrap.servers": broker.bootstrap,
        },
    )


def deaths(seconds: float, every: float) -> Iterator[tuple[float, str]]:
    """Yields the process to kill and the seconds before that; the last one dies at the end."""
    dice, left = random.Random(seconds), seconds
    for victim in itertools.cycle(("writer", "broker", "reader")):
        pause = min(every * (0.5 + dice.random()), left)
        if pause <= 0:
            return
        left -= pause
        yield pause, victim


def finish(table: Table, rate: int) -> int:
    """Commits twice, so that the reader knows that it has all of the first; returns the first's version."""
    return min(committed(table, rate) for _ in range(2))


def committed(table: Table, rate: int) -> int:
    """Commits once more and returns the version; this commit has to repair whatever dead processes left."""
    number = written(table)
    while True:
        with contextlib.suppress(Unavailable):
            return table.write(batch(number, rate), app=(APP, number)).version


def judge(table: Table, kept: Path, rate: int, died: Mapping[str, int]) -> Reported:
    commits = written(table)
    held = pl.from_arrow(table.scan().to_arrow()).sort("id")  # type: ignore[union-attr]
    assert held.equals(expected(commits, rate)), "the table is not what was written"
    last = spans(kept)[-1][1]
    before = pl.from_arrow(table.scan(version=last).to_arrow()).sort("id")  # type: ignore[union-attr]
    changes = kept_changes(kept)
    assert exact(changes).equals(before), "what the reader kept is not the table"
    records = logged(table)
    assert exact(records).equals(held), "the log's records are not the table"
    problems = table.examine().problems
    assert not problems, problems
    return Reported(dict(died), commits, len(records), len(changes))


def main() -> int:
    if len(sys.argv) > 1 and sys.argv[1] == "writer":
        write(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
        return 0
    if len(sys.argv) > 1 and sys.argv[1] == "reader":
        read(sys.argv[2], Path(sys.argv[3]))
        return 0
    parser = argparse.ArgumentParser(prog="python -m tests.integration.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="without what revivals take")
    parser.add_argument("--rate", type=int, default=5000, help="changes a second")
    parser.add_argument("--kill-every", type=float, default=20, help="seconds between two deaths, about")
    parser.add_argument("--s3", action="store_true", help="a whole deployment: tests.integration.deployed_soak")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tablestore-soak-"))
    folder.chmod(0o755)  # PostgreSQL does not run as root
    if arguments.s3:
        from tests.integration import deployed_soak  # imported here, because it needs S3 and Spark

        rate = min(arguments.rate, 1000)  # of each writer; a commit is a few requests to S3
        deployed_soak.run(folder, arguments.seconds, rate, arguments.kill_every, Console())
    else:
        soak(folder, arguments.seconds, arguments.rate, arguments.kill_every, Console())
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
