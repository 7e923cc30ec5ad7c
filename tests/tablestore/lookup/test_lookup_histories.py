"""Random histories of a table: look-ups in any version equal a join by the words of SQL."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from tablestore import Store, Table
from tablestore.lookup import lookups
from tablestore.lookup.kept_rows import KeptTables
from tests.depth import Depth
from tests.opened import again
from tests.tablestore.lookup.oracle import begins, joined, joined_at
from tests.warehouses import Row, rows, to_arrow, warehouse

MOMENT = timedelta(microseconds=1)
TEXTS = ["x", "y", "z"]


@dataclass(frozen=True)
class Shape:
    """How the table of a history is made, and by which columns it is looked up."""

    key: tuple[str, ...] = ("id",)
    partition_by: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    on: tuple[tuple[str, ...], ...] = (("id",), ("size",), ("name", "size"), ("id", "name"))


SHAPES = {
    "plain": Shape(),
    "buckets": Shape(options={"bucket": "3"}),
    "merged on read": Shape(options={"bucket": "2", "write-mode": "merge-on-read"}),
    "key of two columns": Shape(
        key=("id", "name"), options={"bucket": "3", "bucket-key": "id"}, on=(("id", "name"), ("id",), ("name",))
    ),
    "partitioned": Shape(
        key=("id", "name"), partition_by=("name",), options={"bucket": "2"}, on=(("name", "id"), ("id",), ("name",))
    ),
    "no key": Shape(key=(), on=(("id",), ("name", "size"))),
}


class History:
    """A table and what happens to it."""

    def __init__(self, store: Store, shape: Shape, dice: random.Random) -> None:
        self.shape, self.dice, self.number = shape, dice, 0
        self.table = store.create_table(
            "shop.t",
            "id BIGINT, name STRING, size INT",
            primary_key=shape.key,
            partition_by=shape.partition_by,
            options=shape.options,
        )

    def step(self) -> None:
        table = self.table
        acts: list[tuple[int, Callable[[], object]]] = [
            (8, lambda: table.write(to_arrow(table, self.rows(self.dice.randrange(1, 8), deletes=True)))),
            (1, lambda: table.write(to_arrow(table, self.rows(self.dice.randrange(0, 12))), overwrite=True)),
            (1, lambda: table.compact(full=self.dice.random() < 0.5)),
            (1, lambda: table.alter(f"ADD COLUMN extra_{self.number} STRING")),
        ]
        weights, chosen = zip(*acts, strict=True)
        self.dice.choices(chosen, weights)[0]()
        self.number += 1

    def rows(self, count: int, *, deletes: bool = False) -> list[Row]:
        return [self.row(deletes=deletes and bool(self.shape.key)) for _ in range(count)]

    def row(self, *, deletes: bool) -> Row:
        row: Row = {"id": self.dice.randrange(8), "name": self.dice.choice(TEXTS), "size": self.dice.randrange(4)}
        for name in ("size", "name"):
            if name not in self.shape.key and self.dice.random() < 0.2:
                row[name] = None
        return row | ({"_kind": "-D"} if deletes and self.dice.random() < 0.25 else {})

    def asked(self, on: tuple[str, ...]) -> pa.Table:
        """Rows with columns of other names, repeated keys, keys that the table lacks, nulls, and times of all kinds."""
        times = [moment + by for moment in begins(self.table).values() for by in (-MOMENT, 0 * MOMENT, MOMENT)]
        times += [datetime(2000, 1, 1, tzinfo=UTC), datetime(2900, 1, 1, tzinfo=UTC)]
        values: dict[str, list[object]] = {"id": [*range(10)], "name": [*TEXTS, "?", ""], "size": [*range(6)]}
        listed = [
            {f"my_{name}": self.dice.choice([*values[name], None]) for name in on}
            | {"n": number, "ts": self.dice.choice([*times, None])}
            for number in range(self.dice.randrange(30))
        ]
        types = {field.name: field.type for field in self.table.schema}
        own = [(f"my_{name}", types[name]) for name in on]
        return pa.Table.from_pylist(listed, pa.schema([*own, ("n", pa.int64()), ("ts", pa.timestamp("us", "UTC"))]))


def in_order(found: list[Row]) -> list[Row]:
    """The matches of one row have no order."""
    return sorted(found, key=lambda row: (row["n"], repr(sorted(row.items(), key=repr))))


def check(history: History, table: Table) -> None:
    dice, on = history.dice, history.dice.choice(history.shape.on)
    given, kind = history.asked(on), dice.choice(["left", "inner"])
    pairs = {f"my_{name}": name for name in on}
    columns = dice.sample(table.schema.names, dice.randrange(len(table.schema.names) + 1))
    version = dice.choice([None, *begins(table)])
    stored = rows(table, version)
    there = [name for name in columns if version is None or name in table.filestore.definition(version).schema.names]
    found = table.lookup(given, pairs, kind=kind, columns=there, version=version).to_pylist()
    assert in_order(found) == in_order(joined(given.to_pylist(), stored, pairs, there, kind))
    assert [row["n"] for row in found] == sorted(row["n"] for row in found)
    found = table.lookup(given, pairs, kind=kind, columns=columns, at="ts").to_pylist()
    assert in_order(found) == in_order(joined_at(given.to_pylist(), table, "ts", pairs, columns, kind))


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("memory", [-1, 1 << 30], ids=["by key", "in memory"])
@pytest.mark.parametrize("name", SHAPES)
def test_look_ups_are_joins(name: str, memory: int, monkeypatch: pytest.MonkeyPatch, depth: Depth) -> None:
    monkeypatch.setattr("tablestore.reading.keyed_rows.SMALL_BYTES", memory)
    for seed in range(depth.times(2, deep=40)):
        dice = random.Random(f"{name} {seed}")
        with warehouse() as store:
            history = History(store, SHAPES[name], dice)
            for _ in range(depth.times(5, deep=12)):
                history.step()
                check(history, history.table)
                with monkeypatch.context() as patch:
                    patch.setattr(lookups, "_KEPT", KeptTables())
                    check(history, again(history.table))
