"""A writer in a store of objects that is given up at any call, and goes on later, commits once or not at all."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from filestore.errors import Conflict
from filestore.layout import LEASES, join
from filestore.model.snapshot import Operation
from log.table.systems import open_log
from tablestore import Table
from tests.depth import Depth
from tests.folders import memory_folder
from tests.model.suspending import (
    EVENTUAL,
    KINDS,
    LOCATION,
    Kind,
    Process,
    Running,
    World,
    overwritten,
    recovered,
    upserted,
    world,
)


def begun(made: World, kind: Kind) -> Running:
    """A writer that stands before its first call; two versions are there."""
    for name in ("first", "second"):
        upserted(Process(made, name))(Process(made, name).table)
    writer = Process(made, "writer")
    return made.begin(writer, kind(writer))


def worlds(kind: Kind, options: dict[str, str], calls: Iterator[int] | range) -> Iterator[tuple[World, Running, int]]:
    """For each call a world in which the writer stands still before it, until it has no such call."""
    for call in calls:
        with memory_folder() as folder, world(folder, **options) as made:
            writer = begun(made, kind)
            writer.until(call)
            if writer.done:
                return
            yield made, writer, call


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_a_writer_that_is_given_up_goes_on(kind: Kind, options: dict[str, str], depth: Depth) -> None:
    committed, refused = 0, 0
    for made, writer, _ in worlds(kind, options, depth.counting(2)):
        Process(made, "recoverer").table.recover()
        outcome = writer.finish()
        committed += not isinstance(outcome, Conflict)
        refused += isinstance(outcome, Conflict)
        made.check([("writer", outcome)])
    assert committed and refused


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_the_next_writer_comes_while_it_stands_still(kind: Kind, options: dict[str, str], depth: Depth) -> None:
    """It looks twice at the leases, as a writer that writes again and again does."""
    for made, writer, _ in worlds(kind, options, depth.counting(7)):
        other = Process(made, "other")
        for _ in range(3):
            upserted(other)(other.table)
            made.now_s += 61
        made.check([("writer", writer.finish())])


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("recovers", [False, True])
def test_a_writer_that_is_given_up_commits_no_files_that_went_as_orphans(recovers: bool, depth: Depth) -> None:
    """It stands still longer than orphans are kept, perhaps before its first transaction, which nobody has to abort.

    Until its commit is fenced its lease keeps its files, although it counts as dead.
    """
    for made, writer, _ in worlds(upserted, {}, depth.counting(3)):
        other = Process(made, "other").table
        for _ in range(2):
            if recovers:
                other.recover()
            made.now_s += 100_000
            other.remove_orphans(dry_run=False)
        made.check([("writer", writer.finish())])


@pytest.mark.slow
def test_a_numbered_write_that_is_given_up_twice_commits_no_files_that_went_as_orphans(depth: Depth) -> None:
    """It begins again after its fence, under the same number, and stands still once more, with newer files."""
    twice = 0
    for call in depth.counting(3):
        with memory_folder() as folder, world(folder) as made:
            writer = Process(made, "writer")
            task = made.begin(writer, lambda table: table.write([{"id": 1, "v": "n"}], app=("job", 7)))
            task.past("log.prepare")
            other = Process(made, "other").table
            other.recover()
            first = writer.calls
            task.until(first + call)
            if task.done:
                break
            for _ in range(2):
                made.now_s += 100_000
                other.recover()
                other.remove_orphans(dry_run=False)
            task.finish()
            made.check([("writer", task.outcome)])
            twice += len([s for s in other.snapshots() if s.operation is Operation.FENCE]) > 1
    assert twice


def lost(made: World) -> str:
    """Writes a version whose log transaction is aborted before anybody has ended it; returns the transaction's id."""
    writer = Process(made, "unlucky")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tablestore.recovering.recovery.Recovery.commit_transactions", lambda *_: None)
        upserted(writer)(writer.table)
    config = writer.table.opened.log_config()
    assert config is not None
    with open_log(config, made.maker.ambient) as log:
        [aborted] = log.abort_unnamed(lambda ids: ids)
    return aborted


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("dies", [True, False], ids=["the second dies behind its abort", "both go on"])
def test_a_lost_transaction_is_published_once_whoever_is_given_up(dies: bool, depth: Depth) -> None:
    """Whoever publishes it writes under the former commit's id, and others do so after the fence of that id."""
    fenced = 0
    for call in depth.counting(1):
        with memory_folder() as folder, world(folder) as made:
            unlucky, first, second = lost(made), Process(made, "first"), Process(made, "second")
            sleeper = made.begin(first, recovered(first))
            sleeper.until(call)
            if sleeper.done:
                break
            other = made.begin(second, recovered(second))
            while not other.done and not (dies and "log.end_hanging" in made.history[-1]):
                other.step()
            assert not isinstance(sleeper.finish(), Exception), "it begins again, or finds nothing left to do"
            last = Process(made, "last").table
            last.recover()
            snapshots = last.snapshots()
            assert [list(s.republished) for s in snapshots if s.republished] == [[unlucky]]
            assert last.examine().findings == ()
            assert not made.storage.list_tagged(join(LOCATION, LEASES))
            fenced += any(s.fenced for s in snapshots)
    assert fenced


@pytest.mark.deep
def test_a_recoverer_dies_at_any_of_its_calls(depth: Depth) -> None:
    """Between the fence and the abort, too: another one does all of it again."""
    points = itertools.product(range(12, 45), range(1, 60))
    for at, dies_at in depth.sample(list(points), 60):
        with memory_folder() as folder, world(folder) as made:
            writer = begun(made, upserted)
            writer.until(at)
            dying = Process(made, "dying", dies_at)
            made.begin(dying, recovered(dying)).finish()
            Process(made, "recoverer").table.recover()
            made.check([("writer", writer.finish())])


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("options", [{}, EVENTUAL], ids=["transactional", "eventual"])
def test_any_order_of_writers_and_recoverers(options: dict[str, str], depth: Depth) -> None:
    """Two writers and two recoverers, each of which stands still for as long as it takes to be given up, or not."""
    for seed in range(depth.times(6, deep=400)):
        dice = random.Random(seed)
        with memory_folder() as folder, world(folder, seed, **options) as made:
            writers = [begun(made, dice.choice([upserted, overwritten])) for _ in range(2)]
            others = [Process(made, f"recoverer {n}") for n in range(2)]
            tasks = [*writers, *(made.begin(other, recovered(other)) for other in others)]
            while left := [task for task in tasks if not task.done]:
                chosen = dice.choice(left)
                chosen.until(chosen.process.calls + dice.choice([1, 3, 10, 40]))
                made.now_s += dice.choice([0, 0, 61])
            assert all(not isinstance(task.outcome, Exception) for task in tasks[2:]), seed
            made.check([(f"seed {seed}", task.outcome) for task in writers])


@pytest.mark.parametrize("kind", [upserted, overwritten])
def test_a_writer_commits_while_others_fence_it(folder: Path, kind: Kind) -> None:
    """They have looked at the history before: it is its entry before the fence that counts."""
    with world(folder) as made:
        writer, other = begun(made, kind), Process(made, "recoverer")
        writer.before("write_new /_delta_log")
        recoverer = made.begin(other, recovered(other))
        recoverer.before("write_new /_delta_log")
        writer.step()
        recoverer.finish()
        fences = [s for s in other.table.snapshots() if s.operation is Operation.FENCE]
        assert len(fences) == 1
        assert getattr(writer.finish(), "version", None) == fences[0].version - 1
        made.check([("writer", writer.outcome)])


def test_a_writer_that_goes_on_right_after_its_transactions_were_aborted_is_refused(folder: Path) -> None:
    """The fence comes before the abort, and not only before its lease is removed."""
    with world(folder) as made:
        writer, other = begun(made, upserted), Process(made, "recoverer")
        writer.past("log.prepare")
        recoverer = made.begin(other, recovered(other))
        recoverer.before("log.end_hanging")
        assert isinstance(writer.finish(), Conflict)
        recoverer.finish()
        made.check([("writer", writer.outcome)])


def test_a_writer_whose_records_expired_while_they_counted_as_strays_is_refused(folder: Path) -> None:
    """The commit that repaired the log fences it, so that it does not look for records that retention has taken."""
    with world(folder, **EVENTUAL) as made:
        writer, other = begun(made, overwritten), Process(made, "other")
        writer.past("log.prepare")
        upsert = made.begin(other, upserted(other))
        upsert.past("list_tagged")
        made.now_s += 61
        assert getattr(upsert.finish(), "fenced", None), "it repaired the log and fenced the writer in one version"
        expire_records(made, other.table)
        assert isinstance(writer.finish(), Conflict)
        assert "fences commit" in str(writer.outcome)


def expire_records(made: World, table: Table) -> None:
    """Removes all records from the log's files, as retention does."""
    config = table.opened.log_config()
    assert config is not None
    with open_log(config, made.maker.ambient) as log:
        log.trim(log.end_offsets())


def test_two_recoverers_at_once_write_one_fence(folder: Path) -> None:
    with world(folder) as made:
        writer = begun(made, upserted)
        writer.past("log.prepare")
        recoverers = [Process(made, f"recoverer {n}") for n in range(2)]
        tasks = [made.begin(process, recovered(process)) for process in recoverers]
        for task in tasks:
            task.before("write_new /_delta_log")
        for task in reversed(tasks):
            assert task.finish() is not None
        made.check([("writer", writer.finish())])
        fences = [s for s in recoverers[0].table.snapshots() if s.operation is Operation.FENCE]
        assert [s.fenced for s in fences] == [(_commit_of(writer),)]


def _commit_of(writer: Running) -> str:
    assert isinstance(writer.outcome, Conflict)
    return writer.outcome.message.partition(" fences commit ")[2].partition(":")[0]


def test_a_numbered_write_begins_again_and_is_committed_once(folder: Path) -> None:
    with world(folder) as made:
        writer = Process(made, "writer")
        task = made.begin(writer, lambda table: table.write([{"id": 1, "v": "n"}], app=("job", 7)))
        task.past("log.prepare")
        Process(made, "recoverer").table.recover()
        task.finish()
        made.check([("writer", task.outcome)])
        assert getattr(task.outcome, "version", None) == 2
        assert [s.operation for s in writer.table.snapshots()][-3:] == [
            Operation.WRITE,
            Operation.FENCE,
            Operation.CREATE,
        ]


def test_a_living_writer_is_fenced_by_nobody(folder: Path) -> None:
    """Its lease is renewed meanwhile: those who look leave it alone."""
    with world(folder) as made:
        writer = begun(made, upserted)
        writer.past("log.prepare")
        other = Process(made, "other")
        for beat in range(4):
            upserted(other)(other.table)
            made.now_s += 40
            _renew(made, beat)
        assert not isinstance(writer.finish(), Conflict)
        made.check([("writer", writer.outcome)])
        assert Operation.FENCE not in [s.operation for s in other.table.snapshots()]


def _renew(made: World, beat: int) -> None:
    [(path, _)] = [(p, d) for p, d in made.storage.files.items() if "/leases/" in p]
    made.storage.put(path, b'{"since_ms": %d}' % beat)
