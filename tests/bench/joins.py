"""``python -m tests.bench.joins [--rows N] [--turns K]``: maintained joins, beside the writes that they follow.

The left table has N rows in four buckets, each with one of N / 100 keys of the right table. In turns: an upsert of a
twentieth of the left rows and the refresh after it, one changed row of the right table and its refresh, and a refresh
after a compaction, which has nothing to write. The same join is computed by Spark with ``--spark``. A second left table
has a fifth of the rows on ten keys: one changed row of its right table beside an upsert of as many left rows. As many
rows as an upsert has are inserted into a table of events, too, and added to a view that looks them up in the right one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table as Printed

import tablestore
from tablestore import Table
from tablestore.views.view import View
from tests.bench.folders import cached_folder
from tests.bench.timings import Timings

MATCHES = 100
UPSERT, ONE, EMPTY, WHOLE = "upsert of a twentieth", "one row of the right table", "nothing", "all rows"
EVENTS = "insert of as many events"
TENTH, MANY = "upsert of a tenth", "one of ten rows of the right table"
WRITE, REFRESH, SPARK, REPLACE = "the write", "the refresh", "Spark's join", "Spark's join into a Delta table"
NO_LOG = {"log.system": "none"}


class Shop:
    """Orders, planets, and the orders with their planets' names."""

    def __init__(self, store: tablestore.Store, rows: int, planets: int, name: str) -> None:
        self.rows, self.planets, self.name = rows, planets, name
        self.dice = np.random.default_rng(1)
        store.create_database(name)
        self.left = self._created(store, f"{name}.orders", "id BIGINT, planet BIGINT, amount DOUBLE, note STRING", "4")
        self.right = self._created(store, f"{name}.planets", "id BIGINT, name STRING", "1")
        self.left.write(self.orders(np.arange(rows)))
        self.right.write(self.named(np.arange(self.planets), 0))

    def _created(self, store: tablestore.Store, name: str, columns: str, buckets: str) -> Table:
        store.create_table(name, columns, primary_key=["id"], options={"bucket": buckets} | NO_LOG)
        return store.table(name)

    def orders(self, ids: np.ndarray) -> pl.DataFrame:
        return pl.DataFrame(
            {
                "id": ids,
                "planet": self.dice.integers(0, self.planets, len(ids)),
                "amount": self.dice.random(len(ids)),
                "note": [f"note {number % 1000}" for number in ids],
            }
        )

    def named(self, ids: np.ndarray, turn: int) -> pl.DataFrame:
        return pl.DataFrame({"id": ids, "name": [f"planet {number} {turn}" for number in ids]})

    def some(self, part: int = 20) -> pl.DataFrame:
        return self.orders(self.dice.choice(self.rows, self.rows // part, replace=False))

    def view(self, store: tablestore.Store) -> View:
        return store.maintain_join(
            f"{self.name}.named",
            left=f"{self.name}.orders",
            right=f"{self.name}.planets",
            on="planet",
            kind="left",
            select="l.id, l.amount, r.name",
            options=NO_LOG,
        )


def measured(shop: Shop, view: View, turns: int) -> Timings:
    """Seconds of each write and of the refresh after it; the first turn warms up."""
    timings = Timings()
    timings.take(WHOLE, REFRESH, view.refresh)
    for turn in range(turns + 1):
        taken = Timings() if turn == 0 else timings
        rows, one = shop.some(), shop.named(shop.dice.integers(0, shop.planets, 1), turn + 1)
        taken.take(UPSERT, WRITE, lambda rows=rows: shop.left.write(rows))  # type: ignore[misc]
        taken.take(UPSERT, REFRESH, view.refresh)
        taken.take(ONE, WRITE, lambda one=one: shop.right.write(one))  # type: ignore[misc]
        taken.take(ONE, REFRESH, view.refresh)
        taken.take(EMPTY, WRITE, lambda: shop.right.compact(full=True))
        taken.take(EMPTY, REFRESH, view.refresh)
    return timings


def of_events(shop: Shop, store: tablestore.Store, timings: Timings, turns: int) -> None:
    """Seconds of inserts into a table of events, and of the refresh that adds the new ones to a view."""
    events = store.create_table("shop.events", "id BIGINT, planet BIGINT, amount DOUBLE, note STRING", options=NO_LOG)
    view = store.maintain_join(
        "shop.named_events", left="shop.events", right="shop.planets", on="planet", kind="left", options=NO_LOG
    )
    for turn in range(turns + 1):
        taken, rows = Timings() if turn == 0 else timings, shop.some()
        taken.take(EVENTS, WRITE, lambda rows=rows: events.write(rows))  # type: ignore[misc]
        taken.take(EVENTS, REFRESH, view.refresh)
    assert view.examine().healthy


def with_many_matches(shop: Shop, view: View, timings: Timings, turns: int) -> None:
    """Seconds of a refresh after an upsert of a tenth of the left rows, and after one right row that as many name."""
    view.refresh()
    for turn in range(turns + 1):
        taken = Timings() if turn == 0 else timings
        shop.left.write(shop.some(10))
        taken.take(TENTH, REFRESH, view.refresh)
        shop.right.write(shop.named(shop.dice.integers(0, shop.planets, 1), turn + 1))
        taken.take(MANY, REFRESH, view.refresh)


def by_spark(shop: Shop, timings: Timings, turns: int, folder: Path) -> None:
    """Computes the view again without us: Spark's own join of the same tables, which replaces a plain Delta table.

    Beside that the join alone: one row is returned, for which all columns are read.
    """
    from tablestore.spark import spark_session

    spark = spark_session("bench", {"spark.master": "local[2]", "spark.driver.memory": "4g"})
    try:
        for turn in range(turns + 1):
            left, right = (spark.read.format("delta").load(table.location) for table in (shop.left, shop.right))
            joined = left.join(right.withColumnRenamed("id", "planet"), "planet", "left")
            read = joined.selectExpr("max(hash(id, amount, name))")
            written = joined.select("id", "amount", "name").write.format("delta").mode("overwrite")
            taken = timings if turn else Timings()
            taken.take(WHOLE, SPARK, read.collect)
            taken.take(WHOLE, REPLACE, lambda written=written: written.save(f"{folder}/by-spark"))  # type: ignore[misc]
    finally:
        spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--spark", action="store_true", help="compare with Spark's join, which takes a minute more")
    given = parser.parse_args()
    with cached_folder("joins") as path, tablestore.connect(path) as store:
        shop = Shop(store, given.rows, max(1, given.rows // MATCHES), "shop")
        view = shop.view(store)
        timings = measured(shop, view, given.turns)
        if given.spark:
            by_spark(shop, timings, given.turns, path)
        of_events(shop, store, timings, given.turns)
        crowded = Shop(store, given.rows // 5, 10, "crowded")
        with_many_matches(crowded, crowded.view(store), timings, given.turns)
        assert all(looked_at.view(store).examine().healthy for looked_at in (shop, crowded))
    report(timings, given.rows)


def report(timings: Timings, rows: int) -> None:
    def ratio(one: float | None, other: float | None) -> str:
        return f"{one / other:.2f}" if one and other else "-"

    refresh = {stage: timings.median(stage, REFRESH) for stage in (UPSERT, ONE, EMPTY, WHOLE, TENTH, MANY)}
    beyond = (refresh[ONE] or 0) - (refresh[EMPTY] or 0)
    read, replaced = (timings.median(WHOLE, who) for who in (SPARK, REPLACE))
    printed = Printed("", "measured", "asked", title=f"maintained joins, {rows:,} rows")
    printed.add_row("refresh / its upsert", ratio(refresh[UPSERT], timings.median(UPSERT, WRITE)), "≤ 3")
    printed.add_row("one right row beyond an empty refresh", f"{beyond:.2f} s", "≤ 1 s")
    printed.add_row("all rows / one right row", ratio(refresh[WHOLE], refresh[ONE]), "")
    printed.add_row(f"{REPLACE} / one right row", ratio(replaced, refresh[ONE]), "≥ 20")
    printed.add_row("Spark's join, not written / one right row", ratio(read, refresh[ONE]), "")
    printed.add_row(f"refresh / {EVENTS}", ratio(timings.median(EVENTS, REFRESH), timings.median(EVENTS, WRITE)), "")
    printed.add_row(f"{MANY} / {TENTH}", ratio(refresh[MANY], refresh[TENTH]), "")
    for stage, seconds in refresh.items():
        printed.add_row(f"refresh: {stage}", f"{seconds or 0:.2f} s", "")
    Console().print(printed)


if __name__ == "__main__":
    main()
