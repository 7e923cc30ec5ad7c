"""Processes that write one table at the same time, and record the result of each commit."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filestore.errors import Conflict
from tablestore import Table
from tests.integration.crashing import reach
from tests.processes import PROCESSES
from tests.warehouses import Row, to_arrow

__all__ = ["Reported", "contend", "history"]

KEYS = 200


@dataclass(frozen=True)
class Reported:
    """The result of a writer's commit: the version, or None if it lost."""

    version: int | None
    commit_id: str | None
    rows: list[Row]


def contend(table: Table, folder: Path, seed: int, writers: int, commits: int) -> list[Reported]:
    """Runs writers, each with so many commits; returns the results of all."""
    files = [folder / f"writer-{n}.json" for n in range(writers)]
    start = PROCESSES.Barrier(writers)
    running = [
        PROCESSES.Process(target=_write, args=(table.opened.identity, seed, n, commits, start, str(files[n])))
        for n in range(writers)
    ]
    for process in running:
        process.start()
    for process in running:
        process.join(800)  # less than a test may take, and far more than it does
    assert [p.exitcode for p in running] == [0] * writers
    return [Reported(**json.loads(line)) for file in files for line in file.read_text().splitlines()]


def _write(where: Any, seed: int, writer: int, commits: int, start: Any, file: str) -> None:
    dice = random.Random(f"{seed}.{writer}")
    table = reach(where)
    with open(file, "w") as reported:
        start.wait(300)
        for number in range(1, commits + 1):
            rows = _batch(dice, writer, number)
            try:
                snapshot = table.write(to_arrow(table, rows))
                answer = {"version": snapshot.version, "commit_id": snapshot.commit_id}
            except Conflict:
                answer = {"version": None, "commit_id": None}
            reported.write(json.dumps({**answer, "rows": rows}) + "\n")


def _batch(dice: random.Random, writer: int, number: int) -> list[Row]:
    rows = []
    for key in dice.sample(range(KEYS), dice.randint(1, 30)):
        put = dice.random() < 0.85
        rows.append(
            {
                "id": key,
                "writer": writer if put else None,
                "number": number if put else None,
                "at": dice.randrange(100),
                "_kind": "+U" if put else "-D",
            }
        )
    return rows


def history(reported: list[Reported]) -> list[Reported]:
    """Returns the acknowledged commits in the order of their versions, which must be all versions there are."""
    acknowledged = sorted((t for t in reported if t.version is not None), key=lambda t: t.version or 0)
    assert [t.version for t in acknowledged] == list(range(1, len(acknowledged) + 1))
    return acknowledged
