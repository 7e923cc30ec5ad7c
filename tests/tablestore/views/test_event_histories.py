"""Random histories of a table of events and of the table in which they are looked up, against a plain model.

The model has for each refresh the events that were inserted since the one before, and the rows of the other table at
the version that the refresh names, or that was there at the time of the event. Rows count as often as they occur.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import tablestore
from filestore.errors import Unavailable
from filestore.storage.local import LocalStorage
from tablestore import Table
from tablestore.views.view import View
from tests.depth import Depth
from tests.faults import FailAt, FaultyStorage, Killed
from tests.opened import again
from tests.tables import assert_healthy, to_arrow
from tests.tablestore.views.view_join import join_of_view
from tests.warehouses import Row, rows, warehouse

KEYS = range(6)
STARS = ("x", "y")


@dataclass(frozen=True)
class Shape:
    """How the tables and the view of a history are made."""

    kind: str = "left"
    at: str | None = None
    events_first: bool = True
    select: str | None = "l.n, l.k, r.name AS called"
    events: str = "n INT, k BIGINT, ts TIMESTAMP"
    other: str = "id BIGINT, name STRING"
    key: tuple[str, ...] = ("id",)
    on: tuple[str, ...] = ("k",)
    partition_by: tuple[str, ...] = ()
    events_options: dict[str, str] = field(default_factory=dict)
    other_options: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)


SHAPES = {
    "left": Shape(),
    "inner": Shape(kind="inner"),
    "events on the right": Shape(kind="inner", events_first=False, select="r.n, l.name, k AS key"),
    "event time": Shape(at="ts", select=None),
    "key of two columns": Shape(
        events="n INT, k BIGINT, star STRING, ts TIMESTAMP",
        other="id BIGINT, star STRING, name STRING",
        key=("id", "star"),
        on=("k", "star"),
        select="l.*, r.name",
        options={"bucket": "3", "bucket-key": "n"},
    ),
    "partitions that are dropped": Shape(
        kind="inner",
        at="ts",
        events="n INT, k BIGINT, ts TIMESTAMP, day STRING",
        partition_by=("day",),
        select="l.n, day, r.*",
        events_options={"bucket": "2"},
        other_options={"write-mode": "merge-on-read", "bucket": "2"},
        options={"view.removed-events": "keep"},
    ),
    "no column of the other": Shape(kind="inner", select="l.n"),
}


def counted(found: Iterable[Row]) -> Counter[tuple[tuple[str, Any], ...]]:
    return Counter(tuple(sorted(row.items())) for row in found)


class History:
    """Both tables, the view, and what happens to them."""

    def __init__(self, store: tablestore.Store, shape: Shape, dice: random.Random) -> None:
        self.store, self.shape, self.dice = store, shape, dice
        self.events = store.create_table(
            "shop.e", shape.events, partition_by=shape.partition_by, options=shape.events_options
        )
        self.other = store.create_table("shop.o", shape.other, primary_key=shape.key, options=shape.other_options)
        self.number = 0
        self.fresh: list[Row] = []  # events that no refresh has read
        self.model: Counter[tuple[tuple[str, Any], ...]] = Counter()

    def open(self, storage: FaultyStorage | None = None) -> View:
        """Opens the view as a process does that knows nothing yet."""
        names = ("shop.e", "shop.o") if self.shape.events_first else ("shop.o", "shop.e")
        view = self.store.maintain_join(
            "shop.v",
            left=names[0],
            right=names[1],
            on=self.shape.on,
            kind=self.shape.kind,
            select=self.shape.select,
            at=self.shape.at,
            options=self.shape.options,
        )
        if storage is None:
            return view
        table, *inputs = (again(table, storage=storage) for table in (view.table, self.events, self.other))
        return View(table, inputs)

    def step(self) -> None:
        does: list[tuple[int, Callable[[], object]]] = [
            (6, self._events),
            (6, self._others),
            (1, lambda: self.other.write(to_arrow(self.other.definition, self._rows(self.other, 4)), overwrite=True)),
            (1, lambda: self.other.rollback(self.dice.randrange(0, self.other.filestore.state().version + 1))),
            (1, lambda: self.events.compact(full=True)),
            (1, lambda: self.other.compact(full=True)),
            (1, lambda: self.open().table.compact(full=True)),
            (1, lambda: self.events.alter(f"ADD COLUMN extra_{self.number} STRING")),
            (1, lambda: self.other.alter(f"ADD COLUMN extra_{self.number} STRING")),
        ]
        if self.shape.partition_by:
            does.append((2, lambda: self.events.drop_partitions([{"day": self.dice.choice("ab")}])))
        weights, acts = zip(*does, strict=True)
        self.dice.choices(acts, weights)[0]()
        self.number += 1

    def _events(self) -> None:
        some = self._rows(self.events, self.dice.choice([0, 1, 7]))
        some += self.dice.choices(some, k=2) if some else []  # equal events
        self.events.write(to_arrow(self.events.definition, some))
        self.fresh += some

    def _others(self) -> None:
        some = [row | {"_kind": self.dice.choice(["+I", "+I", "-D"])} for row in self._rows(self.other, 3)]
        self.other.write(to_arrow(self.other.definition, some))

    def _rows(self, table: Table, count: int) -> list[Row]:
        return [self._row(table) for _ in range(count)]

    def _row(self, table: Table) -> Row:
        self.number += 1
        times = [snapshot.timestamp for snapshot in self.other.snapshots()]
        values = {
            "n": self.dice.randrange(3),
            "k": self.dice.choice([*KEYS, None]),
            "id": self.dice.choice(KEYS),
            "star": self.dice.choice(STARS if table is self.other else [*STARS, None]),
            "name": self.dice.choice([f"n{self.number}", None]),
            "day": self.dice.choice("ab"),
            "ts": self.dice.choice([*times, times[-1] - timedelta(days=9), None]),
        }
        return {name: value for name, value in values.items() if name in table.schema.names}

    def take(self, version: int, right: int) -> None:
        """Adds to the model what a refresh has to add, and compares."""
        known = {at: rows(self.other, at) for at in range(right + 1)}
        times = {at: self.other.filestore.snapshot(at).timestamp for at in known}
        for event in self.fresh:
            at = right if self.shape.at is None else self._version(event[self.shape.at], times)
            for found in self._matches(event, known.get(at, []) if at is not None else []):
                self.model[tuple(sorted(found.items()))] += 1
        self.fresh = []
        assert counted(rows(self.open().table, version)) == self.model

    @staticmethod
    def _version(time: datetime | None, times: dict[int, datetime]) -> int | None:
        early = [at for at, committed in times.items() if time is not None and committed <= time]
        return max(early, default=None)

    def _matches(self, event: Row, others: list[Row]) -> list[Row]:
        query = join_of_view(self.open())
        wanted = [event[name] for name, _ in query.on]
        found: list[Row] = [row for row in others if None not in wanted and [row[key] for _, key in query.on] == wanted]
        if not found and query.kind == "left":
            found = [{}]
        return [
            {c.name: event.get(c.source) if c.side == "l" else row.get(c.source) for c in query.columns}
            for row in found
        ]


def lived(shape: Shape, seed: int, rounds: int) -> None:
    """Runs a history; the process that refreshes is a new one each time, and is sometimes killed."""
    dice = random.Random(seed)
    with warehouse() as store:
        history = History(store, shape, dice)
        for _ in range(rounds):
            for _ in range(dice.randrange(5)):
                history.step()
            if dice.random() < 0.4:
                attempt(history, dice)
            view = history.open()
            newest = history.events.filestore.state().version
            version = view.table.filestore.state().version if (done := view.refresh()) is None else done.version
            lag = view.lag()
            assert lag["shop.e"].version == newest
            assert lag["shop.o"].version is not None
            history.take(version, lag["shop.o"].version)
            assert view.refresh() is None
        assert_healthy(history.open().table.filestore)
        assert [found for found in store.examine("shop.v").findings if found.code.startswith("view")] == []


def attempt(history: History, dice: random.Random) -> None:
    """A refresh whose process is killed, or whose storage fails, at one of its calls; it may have committed."""
    error: BaseException = dice.choice([Killed(), Unavailable("injected")])
    failing = FailAt(dice.randrange(1, 50), error, dice.random() < 0.5)
    before = history.open().table.filestore.state().version
    try:
        history.open(FaultyStorage(LocalStorage(), failing)).refresh()
    except (Killed, Unavailable):
        assert failing.fired
    view = history.open()
    read = view.lag()["shop.o"].version
    if view.table.filestore.state().version > before and read is not None:
        history.take(view.table.filestore.state().version, read)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", SHAPES)
def test_each_event_is_added_once(name: str, depth: Depth) -> None:
    for seed in range(depth.times(1, deep=34)):
        lived(SHAPES[name], seed, rounds=depth.times(6, deep=12))


def test_the_model_has_a_time_before_all_versions() -> None:
    assert History._version(datetime(2020, 1, 1, tzinfo=UTC), {0: datetime(2021, 1, 1, tzinfo=UTC)}) is None
