"""One run of the simulation: a seed, a kind of table, a number of storage calls, and the checks at the end."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tests.folders import memory_folder
from tests.model.model import tiny_row_groups
from tests.opened import again
from tests.simulation.actors import Actor, keeper, reader, retained, writer
from tests.simulation.faults import Odds, Process, World
from tests.simulation.memory import scanned_from
from tests.simulation.oracle import Oracle, raw_reader
from tests.simulation.shapes import DAY_MS, SHAPES
from tests.simulation.turns import Task, single_threaded
from tests.tables import assert_healthy, create, in_order, read_deltalake, read_polars

__all__ = ["Outcome", "SimulationFailed", "simulate"]

LOCATION = "/sim/t"
_LONGEST_WORK_MS = 20 * 3_600_000
_ODDS = (Odds(0.3, 0, 0), Odds(0.5, 1 / 300, 1 / 600), Odds(0.1, 1 / 100, 1 / 200))


class SimulationFailed(AssertionError):
    """What was wrong, in which run, and what happened before."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did.

    Attributes:
        trace: A hash of all calls and faults in their order.
        versions: How many versions it left.
        counts: How often what happened.
        operations: Commits by operation.
    """

    trace: str
    versions: int
    counts: Counter[str]
    operations: Counter[str]


def simulate(shape: str, seed: int, steps: int) -> Outcome:
    """Runs until so many storage calls were made; raises `SimulationFailed`."""
    dice = random.Random(f"{shape}/{seed}")
    world = World(dice, dice.choice(_ODDS))
    with _surroundings(world):
        run = _Run(world, shape)
        try:
            run.live(steps)
            run.end()
        except Exception as error:
            history = "\n".join(world.log)
            again = f"python -m tests.simulation --shape {shape} --seed {seed} --steps {steps}"
            raise SimulationFailed(f"{history}\n{type(error).__name__}: {error}\nagain: {again}") from error
        finally:
            world.turns.abandon()
    return Outcome(world.trace, run.oracle.newest, world.counts, run.oracle.operations)


@contextmanager
def _surroundings(world: World) -> Iterator[None]:
    """One thread, small row groups, and no word of what failed on purpose."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with ExitStack() as stack:
            stack.enter_context(tiny_row_groups())
            stack.enter_context(single_threaded())
            stack.enter_context(scanned_from(world.storage))
            yield
    finally:
        logging.disable(level)


class _Run:
    """The world, the actors and the oracle of one run."""

    def __init__(self, world: World, shape: str) -> None:
        self.world = world
        odds, world.odds = world.odds, Odds(0, 0, 0)
        made = create(LOCATION, SHAPES[shape].define(), world.storage, Process(world, "maker").ambient)
        world.odds = odds
        self.oracle = Oracle(world, SHAPES[shape], raw_reader(world, LOCATION, made.state().table_id))
        world.committed, world.removed = self.oracle.committed, self.oracle.removed
        kinds = [writer] * 3 + [keeper] * 2 + [reader] * 2
        self.actors = [Actor(world, self.oracle, f"{kind.__name__}{i}", kind) for i, kind in enumerate(kinds)]

    def live(self, steps: int) -> None:
        """Lets actors take turns."""
        dice, turns = self.world.dice, self.world.turns
        busy: dict[Actor, Task] = {}
        while self.world.counts["calls"] < steps:
            actor = dice.choice(self.actors)
            if actor not in busy:
                busy[actor] = Task(actor.step)
                turns.tasks.append(busy[actor])
            turns.resume(busy[actor])
            if busy[actor].done:
                del busy[actor]
            self._let_time_pass()
        self.world.odds = replace(self.world.odds, error=0, kill=0)
        while turns.tasks:
            turns.resume(dice.choice(turns.tasks))

    def _let_time_pass(self) -> None:
        """Seconds, and now and then hours; no work takes longer than the clean-up allows for."""
        dice = self.world.dice
        jump = dice.choice([0, 1, 60, 3600, 20 * 3600]) if dice.random() < 0.1 else 0
        began = [actor.work.began_ms for actor in self.actors if actor.work is not None]
        latest = min(began, default=self.world.now_ms) + _LONGEST_WORK_MS
        self.world.now_ms = max(self.world.now_ms, min(latest, self.world.now_ms + jump * 1000))

    def end(self) -> None:
        """Everything must be whole, and everything that is left over must be a crash's."""
        table, oracle = self.oracle.reader, self.oracle
        assert not oracle.stray, f"entries {oracle.stray} stay where nobody reads"
        for version in retained(table):
            found = in_order(table.scan(version=version).to_arrow().to_pylist())
            assert found == in_order(oracle.history[version].rows.values()), f"version {version} reads otherwise"
        report = assert_healthy(table.filestore)
        for orphan in report.orphans:
            maker = self.world.makers[f"{LOCATION}/{orphan.path}"]
            assert maker.faults, f"{maker.name} left {orphan.path}, and nothing failed"
        self.world.counts["orphans"] += len(report.orphans)
        self._clean_up()
        self._judge()

    def _clean_up(self) -> None:
        """Days later nothing is left over."""
        process = Process(self.world, "janitor")
        self.world.odds = Odds(0, 0, 0)
        table = again(self.oracle.reader, storage=process.storage, ambient=process.ambient)
        for _ in range(2):
            table.compact(full=True)
            self.world.now_ms += 10 * DAY_MS
            table.expire()
            table.remove_orphans(timedelta(days=1), dry_run=False)
        report = assert_healthy(table.filestore)
        assert not report.orphans, report.orphans
        assert not [f for f in report.findings if f.code == "foreign-file"], report.findings

    def _judge(self) -> None:
        """Readers that are not ours see what the dict has."""
        expected = in_order(self.oracle.history[self.oracle.newest].rows.values())
        with memory_folder() as folder:
            self.world.storage.copy_to(folder, LOCATION)
            assert in_order(read_polars(str(folder))) == expected
            assert in_order(read_deltalake(str(folder))) == expected
            assert_healthy(FileStore.open(LocalStorage(), str(folder), self.oracle.reader.opened.ambient))
