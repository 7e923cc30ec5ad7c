"""Random histories of both sides of a maintained join: each version is the join of the versions that it names."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
from tests.tables import assert_healthy, in_order, to_arrow
from tests.tablestore.views.view_join import join_of_view
from tests.warehouses import Row, rows, warehouse

KEYS, PLANETS = range(24), range(8)


@dataclass(frozen=True)
class Shape:
    """How the tables of a history are made."""

    left: str = "id BIGINT, planet BIGINT, v INT"
    left_key: tuple[str, ...] = ("id",)
    right: str = "id BIGINT, name STRING, size INT"
    right_key: tuple[str, ...] = ("id",)
    on: tuple[str, ...] = ("planet",)
    select: str | None = None
    partition_by: tuple[str, ...] = ()
    left_options: dict[str, str] = field(default_factory=dict)
    right_options: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)


LATER = {"write-mode": "merge-on-read"}
SHAPES = {
    "plain": Shape(select="l.id, r.name AS planet, l.v"),
    "all columns": Shape(left_options={"bucket": "3"}),
    "merged on read": Shape(
        select="l.id AS k, planet AS p, r.size",
        left_options=LATER | {"bucket": "2"},
        right_options=LATER,
    ),
    "key of two columns": Shape(
        "id BIGINT, planet BIGINT, star STRING, v INT",
        right="id BIGINT, star STRING, name STRING, size INT",
        right_key=("id", "star"),
        on=("planet", "star"),
        select="l.*, r.name",
        left_options={"bucket": "2"},
    ),
    "partitioned": Shape(
        "id BIGINT, day STRING, planet BIGINT, v INT",
        left_key=("id", "day"),
        partition_by=("day",),
        select="day, l.id AS k, name, v",
        left_options={"bucket": "2"},
        options={"changelog-producer": "lookup"},
    ),
    "foreign key is the key": Shape(
        "id BIGINT, v INT", on=("id",), select="l.id, v, name", left_options={"bucket": "2"}
    ),
}


class History:
    """Two tables, their joins, and what happens to them."""

    def __init__(self, store: tablestore.Store, shape: Shape, dice: random.Random) -> None:
        self.store, self.shape, self.dice = store, shape, dice
        self.left = store.create_table(
            "shop.l",
            shape.left,
            primary_key=shape.left_key,
            partition_by=shape.partition_by,
            options=shape.left_options,
        )
        self.right = store.create_table("shop.r", shape.right, primary_key=shape.right_key, options=shape.right_options)
        self.number = 0

    def open(self, kind: str, storage: FaultyStorage | None = None) -> View:
        """Opens the view as a process does that knows nothing yet."""
        view = self.store.maintain_join(
            f"shop.{kind}",
            left="shop.l",
            right="shop.r",
            on=self.shape.on,
            kind=kind,
            select=self.shape.select,
            options=self.shape.options,
        )
        if storage is None:
            return view
        tables = (again(table, storage=storage) for table in (view.table, self.left, self.right))
        table, *inputs = tables
        return View(table, inputs)

    def step(self) -> None:
        table, some = self.dice.choice([(self.left, self._left_rows), (self.right, self._right_rows)])
        does: list[tuple[int, Callable[[], object]]] = [
            (10, lambda: table.write(to_arrow(table.definition, some(self.dice.randrange(1, 8), deletes=True)))),
            (1, lambda: table.write(to_arrow(table.definition, some(self.dice.randrange(0, 12))), overwrite=True)),
            (1, lambda: table.rollback(self.dice.randrange(0, table.filestore.state().version + 1))),
            (1, lambda: table.compact(full=self.dice.random() < 0.5)),
            (1, lambda: table.alter(f"ADD COLUMN extra_{self.number} STRING")),
        ]
        if table is self.left and self.shape.partition_by:
            does.append((1, lambda: table.drop_partitions([{"day": self.dice.choice("ab")}])))
        weights, acts = zip(*does, strict=True)
        self.dice.choices(acts, weights)[0]()
        self.number += 1

    def _left_rows(self, count: int, *, deletes: bool = False) -> list[Row]:
        return [self._row(self.left, {"id": self.dice.choice(KEYS)}, deletes) for _ in range(count)]

    def _right_rows(self, count: int, *, deletes: bool = False) -> list[Row]:
        return [self._row(self.right, {"id": self.dice.choice(PLANETS)}, deletes) for _ in range(count)]

    def _row(self, table: Table, row: Row, deletes: bool) -> Row:
        self.number += 1
        values = {
            "planet": self.dice.choice([*PLANETS, None]),
            "star": self.dice.choice("xy" if table is self.right else ["x", "y", None]),
            "day": self.dice.choice("ab"),
            "v": self.dice.randrange(3),
            "name": self.dice.choice([f"n{self.number % 5}", None]),
            "size": self.dice.randrange(3),
        }
        row |= {name: value for name, value in values.items() if name in table.schema.names}
        return row | ({"_kind": "-D"} if deletes and self.dice.random() < 0.25 else {})


def expected(view: View, left: Sequence[Row], right: Sequence[Row]) -> list[Row]:
    """Joins the rows, by the words of SQL."""
    query, found = join_of_view(view), []
    for one in left:
        wanted = [one[name] for name, _ in query.on]
        matches: list[dict[str, Any]] = [
            other for other in right if None not in wanted and [other[name] for _, name in query.on] == wanted
        ]
        if not matches and query.kind == "left":
            matches = [dict.fromkeys(name for name in query.right_columns)]
        found += [{c.name: (one if c.side == "l" else other)[c.source] for c in query.columns} for other in matches]
    return in_order(found)


def check(history: History, view: View, version: int) -> None:
    """Checks a version of the view, and that its commit wrote no row that was there already."""
    table, store = view.table, view.table.filestore
    positions = store.state(version).positions
    left, right = (positions[t.filestore.state().table_id] for t in (history.left, history.right))
    now = rows(table, version)
    assert now == expected(view, rows(history.left, left), rows(history.right, right))
    before = rows(table, version - 1)
    key = table.definition.primary_key
    old, new = ({tuple(row[name] for name in key): row for row in some} for some in (before, now))
    put = [row for name, row in new.items() if old.get(name) != row]
    metrics = store.snapshot(version).metrics
    if store.snapshot(version).operation == "write":
        assert metrics.get("rows_written", 0) == len(put)
        assert metrics.get("rows_deleted", 0) == len(old.keys() - new.keys())


def lived(shape: Shape, seed: int, rounds: int) -> None:
    """Runs a history; the process that refreshes is a new one each time, and is sometimes killed."""
    dice = random.Random(seed)
    with warehouse() as store:
        history = History(store, shape, dice)
        for _ in range(rounds):
            for _ in range(dice.randrange(4)):
                history.step()
            kind = dice.choice(["inner", "left"])
            if dice.random() < 0.4:
                attempt(history, kind, dice)
            if dice.random() < 0.2:
                history.open(kind).table.compact()
            view = history.open(kind)
            refreshed = view.refresh()
            version = view.table.filestore.state().version if refreshed is None else refreshed.version
            if refreshed is not None:
                check(history, view, version)
            assert view.refresh() is None
            assert all(lag.behind == 0 for lag in view.lag().values())
        for kind in ("inner", "left"):
            view = history.open(kind)
            view.refresh()
            assert_healthy(view.table.filestore)


def attempt(history: History, kind: str, dice: random.Random) -> None:
    """A refresh whose process is killed, or whose storage fails, at one of its calls."""
    error: BaseException = dice.choice([Killed(), Unavailable("injected")])
    failing = FailAt(dice.randrange(1, 40), error, dice.random() < 0.5)
    history.open(kind)
    try:
        history.open(kind, FaultyStorage(LocalStorage(), failing)).refresh()
    except (Killed, Unavailable):
        assert failing.fired


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_each_version_is_the_join_of_the_versions_that_it_names(name: str, depth: Depth) -> None:
    for seed in range(depth.times(1, deep=34)):
        lived(SHAPES[name], seed, rounds=depth.times(6, deep=12))
