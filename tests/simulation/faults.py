"""A process: its storage calls are turns, and fail by the seed. It records its files, so that orphans have a maker."""

from __future__ import annotations

import hashlib
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from filestore.ambient import Ambient
from filestore.errors import Unavailable
from filestore.layout import DELTA_LOG
from tests.faults import Call, FaultyStorage, Killed
from tests.simulation.memory import MemoryStorage
from tests.simulation.turns import Turns

__all__ = ["Odds", "Process", "Work", "World"]

SKEW_MS = 10 * 60_000


@dataclass(frozen=True, slots=True)
class Odds:
    """How probable each event at a storage call is.

    Attributes:
        turn: Another task continues.
        error: The call fails, half of the times after it had its effect.
        kill: The process dies, half of the times after the call had its effect.
    """

    turn: float
    error: float
    kill: float


@dataclass(eq=False)
class Work:
    """One action of an actor.

    Attributes:
        name: The action and its actor.
        began_ms: When it began.
        intent: How its commit changes the rows; the oracle interprets it.
        faults: How many of its storage calls failed.
        versions: The versions that it committed.
    """

    name: str
    began_ms: int
    intent: Any = None
    faults: int = 0
    versions: list[int] = field(default_factory=list)


@dataclass
class World:
    """What all processes share: time, random numbers, the storage, and whose turn it is.

    `log` contains every call in order; `trace` is its hash.
    """

    dice: random.Random
    odds: Odds
    now_ms: int = 1_700_000_000_000
    turns: Turns = field(default_factory=Turns)
    counts: Counter[str] = field(default_factory=Counter)
    log: deque[str] = field(default_factory=lambda: deque(maxlen=400))
    makers: dict[str, Work] = field(default_factory=dict)
    committed: Callable[[Work, str], None] = lambda work, path: None
    removed: Callable[[str], None] = lambda path: None

    def __post_init__(self) -> None:
        self.storage = MemoryStorage(lambda: self.now_ms)
        self._hash = hashlib.sha256()

    def note(self, line: str) -> None:
        self.log.append(line)
        self._hash.update(line.encode())

    @property
    def trace(self) -> str:
        """A hash of all calls and events in their order."""
        return self._hash.hexdigest()

    def new_id(self) -> str:
        text = f"{self.dice.getrandbits(128):032x}"
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:]}"


class Process:
    """One program: its storage fails and its clock is wrong. Once killed, all its calls fail."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.name = name
        self.dead = False
        self.work = Work("open", world.now_ms)
        self._skew_ms = world.dice.randrange(-SKEW_MS, SKEW_MS)
        self.storage = FaultyStorage(world.storage, self._hook)
        self.ambient = Ambient(self._now_ms, world.new_id, world.dice.random, self._sleep)

    def _now_ms(self) -> int:
        self._world.now_ms += 1
        return self._world.now_ms + self._skew_ms

    def _sleep(self, seconds: float) -> None:
        self._world.now_ms += int(seconds * 1000)

    def _hook(self, call: Call) -> None:
        self.storage.calls.clear()
        if self.dead:
            raise Killed(self.name)
        if call.done:
            self._record(call)
        else:
            self._turn(call)
        self._fail(call)

    def _turn(self, call: Call) -> None:
        """Lets another task continue. An append is called inside of a library, which must not wait, but it can fail."""
        world = self._world
        if call.operation == "append":
            return
        world.counts["calls"] += 1
        world.note(f"{self.name} {call.operation} {call.path}")
        if world.turns.current is not None and world.dice.random() < world.odds.turn:
            world.turns.current.wait()

    def _record(self, call: Call) -> None:
        world = self._world
        if call.operation in ("write_new", "open_write", "replace"):
            world.makers[call.path] = self.work
        if f"/{DELTA_LOG}/" in call.path and call.path.endswith(".json"):
            if call.operation == "write_new":
                world.committed(self.work, call.path)
            elif call.operation == "delete":
                world.removed(call.path)

    def _fail(self, call: Call) -> None:
        """Fails by the seed. Each probability is halved, as there is one fault before the call and one after it."""
        world, chance = self._world, self._world.dice.random() * (10 if call.operation == "append" else 1)
        if chance < world.odds.kill / 2:
            self._note("kill", call)
            self.dead = True
            if call.operation in ("write_new", "replace") and not call.done:
                self._tear(call.path)
            raise Killed(self.name)
        if chance < (world.odds.kill + world.odds.error) / 2:
            self._note("error", call)
            raise Unavailable(f"injected at {call}", code="storage-error")

    def _note(self, what: str, call: Call) -> None:
        self.work.faults += 1
        self._world.counts[what] += 1
        self._world.note(f"{self.name} {what} {'after' if call.done else 'before'} {call.operation} {call.path}")

    def _tear(self, path: str) -> None:
        """Leaves what a local file system has after a crash: a temporary file with a part of the bytes."""
        folder, _, name = path.rpartition("/")
        temporary = f"{folder}/.{name}.{self._world.dice.getrandbits(64):016x}.tmp"
        self._world.storage.put(temporary, b"{")
        self._world.makers[temporary] = self.work
