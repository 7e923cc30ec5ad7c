"""Maintained joins whose refreshes are Spark jobs: each version equals Spark's own join of the versions it names."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from filestore.errors import NotFound
from tablestore import Store
from tablestore.spark import SparkStore
from tablestore.views.opening import drop_view
from tablestore.views.view import View
from tests.depth import Depth
from tests.tables import assert_healthy, in_order, to_arrow
from tests.tablestore.views.view_join import join_of_view
from tests.warehouses import Row, rows

pytestmark = pytest.mark.slow


def filled(store: Store, dice: random.Random) -> None:
    left = store.create_table("shop.l", "k BIGINT, x BIGINT", primary_key=["k"], options={"bucket": "3"})
    right = store.create_table("shop.r", "id BIGINT, y STRING", primary_key=["id"])
    for _ in range(2):
        changed(store, dice)
    assert left.filestore.state().version + right.filestore.state().version >= 2


def changed(store: Store, dice: random.Random) -> None:
    """One write of each table, with deletes; one in four is an overwrite."""
    for name, keys, values in (("shop.l", range(60), range(12)), ("shop.r", range(10), "abc")):
        table = store.table(name)
        key, value = table.schema.names
        some: list[Row] = [
            {key: dice.choice(keys), value: dice.choice([*values, None])} for _ in range(dice.randrange(1, 30))
        ]
        if dice.random() < 0.25:
            table.write(to_arrow(table.definition, some), overwrite=True)
        else:
            kinds = dice.choices(["+I", "-D"], [4, 1], k=len(some))
            table.write(to_arrow(table.definition, [r | {"_kind": k} for r, k in zip(some, kinds, strict=True)]))


def by_spark(lake: SparkStore, view: View) -> list[Row]:
    """Spark's join of the versions that the view names."""
    lag = view.lag()
    left, right = (lake.read(name, version=lag[name].version) for name in ("shop.l", "shop.r"))
    joined = left.join(right, left["x"] == right["id"], join_of_view(view).kind.value).select("k", "x", "y")
    return in_order(row.asDict() for row in joined.collect())


@pytest.mark.parametrize("kind", ["left", pytest.param("inner", marks=pytest.mark.deep)])
def test_each_refresh_is_what_spark_joins(lake: SparkStore, store: Store, kind: str, depth: Depth) -> None:
    for seed in range(depth.times(1, deep=10)):
        refreshed_often(lake, store, kind, random.Random(f"{kind} {seed}"), rounds=depth.times(2, deep=4))
        drop_view(store, "shop.v")
        for name in ("shop.l", "shop.r"):
            store.drop_table(name)


def refreshed_often(lake: SparkStore, store: Store, kind: str, dice: random.Random, rounds: int) -> None:
    filled(store, dice)
    view = lake.maintain_join("shop.v", left="shop.l", right="shop.r", on="x", kind=kind, select="l.k, l.x, r.y")
    for _ in range(rounds):
        done = view.refresh()
        assert done is not None
        assert (
            in_order(row.asDict() for row in lake.read("shop.v").collect()) == rows(view.table) == by_spark(lake, view)
        )
        changed(store, dice)
    assert lake.maintained_view("shop.v").refresh() is not None
    assert view.refresh() is None
    assert_healthy(view.table.filestore)


def test_a_task_that_fails_changes_nothing_and_leaves_nothing(lake: SparkStore, store: Store) -> None:
    filled(store, random.Random(1))
    view = lake.maintain_join("shop.v", left="shop.l", right="shop.r", on="x", kind="left", select="l.k, l.x, r.y")
    view.refresh()
    before, files = view.table.filestore.state().version, data_files(view)
    store.table("shop.l").write(to_arrow(store.table("shop.l").definition, [{"k": 1, "x": 99}]))
    lost = max(Path(store.table("shop.l").location).glob("bucket-*/*.parquet"), key=lambda p: p.stat().st_mtime)
    kept = lost.read_bytes()
    lost.unlink()
    with pytest.raises(NotFound):
        view.refresh()
    assert (view.table.filestore.state().version, data_files(view)) == (before, files)
    lost.write_bytes(kept)
    assert view.refresh() is not None
    assert rows(view.table) == by_spark(lake, view)


@pytest.mark.parametrize("right", ["small", pytest.param("large", marks=pytest.mark.deep)])
def test_events_are_looked_up_by_jobs(
    lake: SparkStore, store: Store, right: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each refresh has more than one task, which get what they need without the driver."""
    monkeypatch.setattr("tablestore.views.events.event_work._TASK_BYTES", 1)
    if right == "large":
        monkeypatch.setattr("tablestore.reading.keyed_rows.SMALL_BYTES", 1)
    events = store.create_table("shop.e", "n INT, x BIGINT")
    names = store.create_table("shop.r", "id BIGINT, y STRING", primary_key=["id"])
    view = lake.maintain_join("shop.v", left="shop.e", right="shop.r", on="x", kind="left", options={"bucket": "2"})
    wanted: list[Row] = []
    for number in range(2):
        names.write([{"id": key, "y": f"{key} at {number}"} for key in range(20)])
        for half in range(2):
            some = [{"n": number, "x": key} for key in range(half * 15, half * 15 + 15)]
            events.write(to_arrow(events.definition, some))
            wanted += [row | {"y": f"{row['x']} at {number}" if row["x"] < 20 else None} for row in some]
        done = view.refresh()
        assert done is not None
        assert done.whole is (number == 0)
        assert rows(view.table) == in_order(wanted)
    assert in_order(row.asDict() for row in lake.read("shop.v").collect()) == in_order(wanted)
    assert lake.examine("shop.v").findings == ()


def data_files(view: View) -> set[str]:
    return {str(path) for path in Path(view.table.location).rglob("*.parquet")}
