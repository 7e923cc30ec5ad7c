"""``python -m tests.bench.views [--rows N] [--turns K]``: refreshes of views here, in Spark, and as a whole.

Orders have N rows; each names one of N / 100 items, of which 500 kinds are. Some views are kept four times: computed in
this process, by Spark in the way that it chooses, by Spark from what changed, and by Spark as a whole, which replaces
all rows. After each change of a table all are refreshed, and compared with each other at the end.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table as Printed

import tablestore
from tablestore import Store
from tablestore.spark import SparkStore, spark_session
from tablestore.views.view import View
from tests.bench.folders import cached_folder
from tests.bench.timings import Timings

HERE, SPARK, KEYS, WHOLE = "here", "Spark", "by keys", "whole"
BY_SPARK = {"view.setting.spark.sql.maxPlanStringLength": "1000"}
"""A setting that changes nothing, and that is not known without Spark."""
WAYS: dict[str, dict[str, str]] = {
    HERE: {},
    SPARK: BY_SPARK,
    KEYS: BY_SPARK | {"view.whole-size": "0"},
    WHOLE: BY_SPARK,
}
NO_LOG = {"log.system": "none"}
QUERIES = {
    "60 groups": "SELECT g, count(*) AS n, avg(v) AS a, sum(m) AS t FROM shop.orders WHERE g IS NOT NULL GROUP BY g",
    "join": "SELECT o.id, o.v, i.name, coalesce(i.kind, -1) AS kind FROM shop.orders AS o LEFT JOIN shop.items AS i ON "
    "o.item = i.id",
    "exact groups": "SELECT g, count(*) AS n, sum(m) AS t FROM shop.orders WHERE g IS NOT NULL GROUP BY g",
    "500 groups": "SELECT coalesce(i.kind, -1) AS kind, count(*) AS n, sum(o.m) AS t FROM shop.orders AS o "
    "LEFT JOIN shop.items AS i ON o.item = i.id GROUP BY coalesce(i.kind, -1)",
}


class Shop:
    """Orders and items."""

    def __init__(self, store: Store, rows: int) -> None:
        self._rows, self._items = rows, max(1, rows // 100)
        self._dice = np.random.default_rng(1)
        store.create_database("shop")
        columns = "id BIGINT NOT NULL, g INT, v DOUBLE, item BIGINT, m BIGINT"
        options = {"bucket": "2"} | NO_LOG
        self.orders = store.create_table("shop.orders", columns, primary_key=["id"], options=options)
        columns = "id BIGINT NOT NULL, name STRING, kind INT"
        self.items = store.create_table("shop.items", columns, primary_key=["id"], options=options)
        self.orders.write(self._orders(np.arange(rows)))
        self.items.write(self._named(np.arange(self._items)))

    def changes(self) -> dict[str, Callable[[], object]]:
        """Returns the changes that are made in turns."""
        return {
            "50 orders": lambda: self.orders.write(self._orders(self._some(50))),
            "1 order": lambda: self.orders.write(self._orders(self._some(1))),
            "1 item": lambda: self.items.write(self._named(self._dice.integers(0, self._items, 1))),
        }

    def _some(self, count: int) -> np.ndarray:
        return np.unique(self._dice.integers(0, self._rows, count))

    def _orders(self, ids: np.ndarray) -> pa.Table:
        count = len(ids)
        return pa.table(
            {
                "id": ids,
                "g": (ids % 60).astype("int32"),
                "v": self._dice.random(count),
                "item": self._dice.integers(0, self._items + 10, count),
                "m": self._dice.integers(0, 1000, count),
            }
        )

    def _named(self, ids: np.ndarray) -> pa.Table:
        kinds = self._dice.integers(0, 500, len(ids)).astype("int32")
        return pa.table({"id": ids, "name": [f"item {number}" for number in ids], "kind": kinds})


def created(lake: SparkStore, name: str, query: str) -> dict[str, View]:
    """Creates a view once for each way."""
    found = {}
    for number, (who, own) in enumerate(WAYS.items()):
        options = own | NO_LOG
        view = lake.create_materialized_view(f"shop.{name}_{number}", query, options=options)
        found[who] = view
    return found


def measured(shop: Shop, views: dict[str, dict[str, View]], turns: int) -> Timings:
    """Returns the seconds of each refresh; the first turn warms up."""
    timings = Timings()
    for kept in views.values():
        for view in kept.values():
            view.refresh()
    for turn in range(turns + 1):
        taken = timings if turn else Timings()
        for change, make in shop.changes().items():
            make()
            for query, kept in views.items():
                if "items" not in kept[HERE].query and change == "1 item":
                    continue
                for who, view in kept.items():
                    taken.take(f"{query}, {change}", who, view.rebuild if who == WHOLE else view.refresh)
    return timings


def check(views: dict[str, dict[str, View]]) -> None:
    """Compares each view with its query; it is Spark that computes it for all but one."""
    for kept in views.values():
        for view in kept.values():
            assert view.compare() == [], view


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    spark: SparkSession = spark_session("bench", {"spark.master": "local[2]", "spark.driver.memory": "4g"})
    with cached_folder("views") as path, tablestore.connect(path) as store:
        shop, lake = Shop(store, given.rows), SparkStore(spark, store)
        views = {query: created(lake, f"v{number}", text) for number, (query, text) in enumerate(QUERIES.items())}
        timings = measured(shop, views, given.turns)
        check(views)
    spark.stop()
    report(timings, given.rows)


def report(timings: Timings, rows: int) -> None:
    title = f"refreshes of views, {rows:,} rows: here, in Spark as it chooses, by keys, as a whole"
    printed = Printed("", *WAYS, "whole / here", "Spark / whole", title=title)
    for stage in dict.fromkeys(stage for stage, _ in timings.seconds):
        seconds = (f"{timings.median(stage, who) or 0:.2f} s" for who in WAYS)
        ratios = (timings.ratio(stage, WHOLE, HERE), timings.ratio(stage, SPARK, WHOLE))
        printed.add_row(stage, *seconds, *(f"{ratio:.1f}" for ratio in ratios))
    Console().print(printed)


if __name__ == "__main__":
    main()
