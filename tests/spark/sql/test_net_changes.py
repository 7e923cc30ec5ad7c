"""``deduplicationMode = 'netChanges'``: what differs between the rows before and after, whatever was between."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from math import nan
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Row as SparkRow

from tablestore import Store, Table
from tests.depth import Depth, sampled
from tests.spark.sql.conftest import Sql
from tests.warehouses import Row, rows, to_arrow

pytestmark = pytest.mark.slow

FLOATS = [None, nan, 0.0, -0.0, 1.5]
KEYS = range(5)


@dataclass(frozen=True)
class Shape:
    """How the table of a history is made."""

    key: tuple[str, ...] = ("id",)
    options: dict[str, str] = field(default_factory=dict)


SHAPES = {
    "no key": Shape(()),
    "no log": Shape(options={"log.system": "none", "merge-engine": "partial-update"}),
    "input": Shape(options={"changelog-producer": "input"}),
    "merged on read": Shape(options={"write-mode": "merge-on-read"}),
    "lookup": Shape(options={"changelog-producer": "lookup", "bucket": "2"}),
    "no producer": Shape(),
}


def a_history(store: Store, shape: Shape, dice: random.Random) -> Table:
    """A table of seven or more versions, of which many put rows that are the same, or that were there before."""
    columns = "id BIGINT, d DOUBLE, s STRUCT<f: FLOAT, t: STRING>, m MAP<STRING, DOUBLE>"
    table = store.create_table("shop.t", columns, primary_key=shape.key, options=shape.options)

    def some(most: int) -> list[Row]:
        return [a_row(key, table, dice) for key in dice.choices(KEYS, k=dice.randint(1, most))]

    for number in range(7):
        match dice.choice(["put", "put", "put again", "delete", "replace", "compact"]) if number else "put":
            case "put":
                table.write(to_arrow(table, some(4)))
            case "put again":
                table.write(to_arrow(table, rows(table)[:2] or some(2)))
            case "delete" if shape.key and "partial-update" not in shape.options.values():
                table.write(to_arrow(table, [{**row, "_kind": "-D"} for row in rows(table)[:2]]))
            case "compact":
                table.compact(full=True)
            case _:
                table.write(to_arrow(table, [*rows(table)[1:], *some(2)]), overwrite=True)
        if number == 3:
            table.alter("ADD COLUMN x INT")
    return table


def a_row(key: int, table: Table, dice: random.Random) -> Row:
    few = dice.sample(FLOATS, 3)
    struct, entry = {"f": few[1], "t": dice.choice([None, "a"])}, [("k", few[2])]
    row = {"id": key, "d": few[0], "s": dice.choice([None, struct]), "m": dice.choice([None, entry])}
    return row | ({"x": dice.choice([None, 1])} if "x" in table.schema.names else {})


def plain(value: Any) -> Any:
    """A value as a text shows it, by which NaN is like itself, and 0.0 is not like -0.0."""
    match value:
        case SparkRow():
            return tuple(map(plain, value))
        case dict():
            return tuple((key, plain(one)) for key, one in value.items())
        case list():
            return tuple((key, plain(one)) for key, one in value)
        case _:
            return repr(value)


def by_oracle(table: Table, before: int, after: int, *, updates: bool) -> Counter[tuple[Any, ...]]:
    """The changes from one version's rows to another's, by a loop over rows."""
    names = table.schema.names

    def found(version: int) -> list[tuple[Any, ...]]:
        return [tuple(plain_of(row.get(name)) for name in names) for row in table.scan(version=version).to_pylist()]

    old, new = found(before), found(after)
    if not table.definition.primary_key:
        gone, come = Counter(old) - Counter(new), Counter(new) - Counter(old)
        return Counter({("delete", *row): n for row, n in gone.items()}) + Counter(
            {("insert", *row): n for row, n in come.items()}
        )
    kept, changes = {row[0]: row for row in new}, Counter[tuple[Any, ...]]()
    was = {row[0]: row for row in old}
    for key in was.keys() | kept.keys():
        one, other = was.get(key), kept.get(key)
        if one != other:
            both = updates and one is not None and other is not None
            changes.update([("update_preimage" if both else "delete", *one)] if one else [])
            changes.update([("update_postimage" if both else "insert", *other)] if other else [])
    return changes


def plain_of(value: Any) -> Any:
    return tuple(map(plain, value.values())) if isinstance(value, dict) else plain(value)


@pytest.mark.parametrize("name", sampled(list(SHAPES), fast=6, test=3))
def test_net_changes_are_those_of_the_rows_before_and_after(store: Store, sql: Sql, depth: Depth, name: str) -> None:
    """A row that was deleted and put again was a delete and an insert, and some updates were inserts."""
    for seed in range(depth.times(1, deep=3)):
        dice = random.Random(f"{name} {seed}")
        table = a_history(store, SHAPES[name], dice)
        newest = table.snapshots(1)[0].version
        pairs = [(first, last) for first in range(1, newest + 1) for last in range(first, newest + 1)]
        for first, last in [(1, newest), *dice.sample(pairs, depth.times(3, deep=6))]:
            updates = dice.random() < 0.5
            how = f"deduplicationMode = 'netChanges', computeUpdates = '{str(updates).lower()}'"
            between = f"lake.shop.t CHANGES FROM VERSION {first} TO VERSION {last} WITH ({how})"
            got = sql(f"SELECT _change_type, * EXCEPT (_change_type, _commit_timestamp) FROM {between}")
            wanted = by_oracle(table, first - 1, last, updates=updates)
            assert Counter((row[0], *map(plain, row[1:-1])) for row in got) == wanted, (seed, first, last)
            assert {row[-1] for row in got} <= {last}
        store.drop_table("shop.t")


def test_the_rows_before_must_not_have_expired(store: Store, sql: Sql) -> None:
    options = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "2", "snapshot.time-retained": "1 ms"}
    table = store.create_table("shop.t", "id BIGINT, v INT", primary_key=["id"], options=options)
    for v in range(4):
        table.write([{"id": 1, "v": v}])
    first = table.expire().first
    net = "WITH (deduplicationMode = 'netChanges', computeUpdates = 'true')"
    changes = "SELECT _change_type, v FROM lake.shop.t CHANGES FROM VERSION"
    assert sql(f"{changes} {first + 1} {net}") == [("update_postimage", 3), ("update_preimage", 2)]
    with pytest.raises(AnalysisException, match="snapshot-expired"):
        sql(f"{changes} {first} {net}")
