"""Flipped bits: of all files of a table, for all readers, nothing is silently wrong (FORMAT.md section 7.1)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import tablestore
from tests.depth import Depth
from tests.folders import memory_folder
from tests.tablestore.flip_trials import TABLES, Trial, TrialProcess, faults, files_of, filled


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    """A warehouse to copy and to damage."""
    with memory_folder() as folder:
        yield filled(folder / "lake")


@pytest.fixture(scope="module")
def trials(base: Path) -> Iterator[TrialProcess]:
    process = TrialProcess(base)
    yield process
    process.close()


def kinds(base: Path) -> dict[tuple[str, str], list[str]]:
    """Returns the files of each table by kind."""
    with tablestore.connect(base) as store:
        named = {name: files_of(store.table(f"shop.{name}")) for name in TABLES}
    return {(name, kind): files for name, kinds in named.items() for kind, files in kinds.items()}


def test_there_is_each_kind_of_file(base: Path) -> None:
    assert {kind for _, kind in kinds(base)} == {
        "data", "vector", "run", "tombstones", "change data", "checkpoint", "last checkpoint", "entry", "log",
        "log.json",
    }  # fmt: skip


@pytest.mark.slow
def test_every_flipped_bit_is_harmless_or_reported(base: Path, trials: TrialProcess, depth: Depth) -> None:
    counts: Counter[str] = Counter()
    failures = []
    for (table, kind), files in kinds(base).items():
        for number in range(depth.times(2, deep=150)):
            dice = random.Random(f"{table} {kind} {number}")
            trial = Trial(table, kind, dice.choice(files), 1 + number % 2 * 2, dice.randrange(1 << 32))
            verdicts = trials.run(trial)
            counts.update(f"{kind}: {reader}: {verdict}" for reader, verdict in verdicts.items())
            failures += [(trial, fault) for fault in faults(trial, verdicts)]
    print("\n".join(f"{count:6} {what}" for what, count in sorted(counts.items())))
    assert failures == []
