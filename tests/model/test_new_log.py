"""A new log begins while writers are at work, and whoever makes it dies at any of its calls."""

from __future__ import annotations

import random
import shutil

import pytest

from filestore.checks.report import Invariant
from filestore.errors import NotFound, TableStoreError
from log.table.systems import open_log
from tablestore import Table
from tablestore.following.gaps import truncates
from tests.depth import Depth
from tests.faults import Killed
from tests.folders import memory_folder
from tests.model.suspending import (
    EVENTUAL,
    KINDS,
    Deed,
    Kind,
    Process,
    World,
    overwritten,
    upserted,
    world,
)
from tests.warehouses import Row, replay, rows

BOTH = pytest.mark.parametrize("options", [{}, EVENTUAL], ids=["transactional", "eventual"])
REFUSALS = {"metadata-changed", "fenced"} | {
    f"log-{what}" for what in ("not-found", "replaced", "behind", "transaction", "unavailable")
}
"""The codes of writes that find no log, or another one under them, or lose a race against the new one."""


def renewed(process: Process) -> Deed:
    return lambda table: table.new_log()


def two_versions(made: World) -> None:
    for name in ("first", "second"):
        upserted(Process(made, name))(Process(made, name).table)


def lose(made: World) -> None:
    """The log is removed under everybody."""
    config = made.identity.log_config(made.maker.table.definition)
    assert config is not None
    shutil.rmtree(config.location)


def read_on(table: Table, version: int) -> list[Row]:
    """The rows of a reader that had those of a version, and goes on."""
    known = [{**row, "_kind": "+I"} for row in rows(table, version)]
    newest = table.filestore.state().version
    for batch in table.follow(version=version, on_log_gap="rescan", stop=newest):
        known = [] if truncates(batch) else known
        known += batch.to_pylist()
    return replay(known, ["id"])


def check(made: World, outcomes: dict[str, object]) -> None:
    """The table is whole, each reader goes on or gets a gap, and a writer's rows are there once or not at all."""
    Process(made, "repeater").table.new_log()
    last = Process(made, "last").table
    assert last.new_log() is None, "it has its log"
    last.write([{"id": 9, "v": "last"}])
    last.recover()
    assert [f for f in last.examine().findings if f.code is not Invariant.ORPHAN] == [], "the dead leave orphans"
    found, state = rows(last), last.filestore.state()
    for version in range(state.version + 1):
        assert read_on(last, version) == found, version
        exact = [
            row
            for batch in last.follow(version=version, mode="changelog", stop=state.version)
            for row in batch.to_pylist()
        ]
        known = [{**row, "_kind": "+I"} for row in rows(last, version)]
        assert replay(known + exact, ["id"]) == found, version
    with pytest.raises(NotFound, match=r"scan=\"full\"") as caught:
        list(last.follow(version=0, stop=state.version))
    assert caught.value.code == "log-gap"
    snapshots = [s.commit_id for s in last.snapshots()]
    for name, outcome in outcomes.items():
        made_by = getattr(outcome, "commit_id", None)
        if made_by is not None:
            assert snapshots.count(made_by) == 1, (name, outcome)
        else:
            assert outcome is None or isinstance(outcome, Killed) or outcome.code in REFUSALS, (name, outcome)
    config = last.opened.log_config()
    assert config is not None
    with open_log(config, made.maker.ambient) as log:
        assert config.eventual or log.open_transactions() == []


@pytest.mark.slow
@pytest.mark.few(1)
@BOTH
def test_whoever_makes_it_dies_at_any_call_and_another_one_repeats_it(options: dict[str, str], depth: Depth) -> None:
    died = 0
    for call in depth.counting(8):
        with memory_folder() as folder, world(folder, **options) as made:
            two_versions(made)
            lose(made)
            dying = Process(made, "dying", call)
            outcome = made.begin(dying, renewed(dying)).finish()
            check(made, {"dying": outcome})
            if not isinstance(outcome, Killed):
                break
            died += 1
    assert died


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_a_writer_that_stands_still_meanwhile(kind: Kind, options: dict[str, str], depth: Depth) -> None:
    """It has begun with the log that was lost: it commits before the new one begins, begins again, or fails."""
    committed = refused = 0
    for call in depth.counting(14):
        with memory_folder() as folder, world(folder, **options) as made:
            two_versions(made)
            writer = Process(made, "writer")
            task = made.begin(writer, kind(writer))
            task.until(call)
            if task.done:
                break
            lose(made)
            renewed(made.maker)(Process(made, "maker 2").table)
            outcome = task.finish()
            committed += not isinstance(outcome, TableStoreError)
            refused += isinstance(outcome, TableStoreError)
            assert Process(made, "repeater").table.new_log() is None, "the writer has left the new log sound"
            check(made, {"writer": outcome})
    assert committed


def in_some_order(seed: int, options: dict[str, str]) -> None:
    """Lets writers and makers of a new log take turns, and loses the log at some time."""
    dice = random.Random(seed)
    with memory_folder() as folder, world(folder, seed, **options) as made:
        two_versions(made)
        deeds = [upserted, overwritten, upserted, renewed, renewed]
        processes = [Process(made, f"p{n}", dice.choice([None, None, dice.randrange(1, 60)])) for n in range(5)]
        tasks = {p.name: made.begin(p, deed(p)) for p, deed in zip(processes, deeds, strict=True)}
        lost = False
        while left := [task for task in tasks.values() if not task.done]:
            chosen = dice.choice(left)
            chosen.until(chosen.process.calls + dice.choice([1, 3, 10, 40]))
            if not lost and dice.random() < 0.2:
                lose(made)
                lost = True
        if not lost:
            lose(made)
        check(made, {name: task.outcome for name, task in tasks.items()})


@pytest.mark.slow
@BOTH
def test_any_order_of_writers_and_makers(options: dict[str, str], depth: Depth) -> None:
    for seed in range(depth.times(2, deep=300)):
        in_some_order(seed, options)


@pytest.mark.slow
def test_a_log_that_is_lost_while_a_writer_compares_it() -> None:
    """The writer said that a reader's changes are gone, and to start again from a snapshot."""
    in_some_order(36, EVENTUAL)
