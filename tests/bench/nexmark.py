"""``python -m tests.bench.nexmark [--events N] [--more M] [--turns K] [-k q5]``: NEXMark's queries as views.

N events come first, and then M in each turn. After each turn a view of each query is refreshed, and another one
computed by Spark as a whole, which replaces all rows. Both have the same rows, which is checked in each turn.
"""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table as Printed

import tablestore
from tablestore.spark import SparkStore, spark_session
from tablestore.views.view import View
from tests.bench.folders import cached_folder
from tests.bench.nexmark_tables import QUERIES, Nexmark
from tests.bench.timings import Timings

VIEW, WHOLE = "view", "whole"
NO_LOG = {"log.system": "none"}
IN_SPARK = {"view.local-memory": "0"}
"""Those of a view that Spark alone computes."""


def created(lake: SparkStore, number: str) -> tuple[View, View]:
    """Creates the view of a query, and the one that is computed as a whole each time."""
    query = QUERIES[number]
    view = lake.create_materialized_view(f"n.{number}", query, options=NO_LOG)
    return view, lake.create_materialized_view(f"n.{number}_whole", query, options=NO_LOG | IN_SPARK)


def check(lake: SparkStore, view: View, whole: View) -> None:
    """Compares the rows of two views; raises `AssertionError` if they differ."""
    one, other = (lake.read(each.table.identifier) for each in (view, whole))
    assert not one.exceptAll(other).count() and not other.exceptAll(one).count(), view.table.identifier


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--more", type=int, default=1_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("-k", default="", help="only the query with that number")
    given = parser.parse_args()
    spark = spark_session("bench", {"spark.master": "local[2]", "spark.driver.memory": "4g"})
    timings = Timings()
    with cached_folder("nexmark") as path, tablestore.connect(path) as store:
        events, lake = Nexmark(store), SparkStore(spark, store)
        events.write(given.events)
        views = {number: created(lake, number) for number in QUERIES if given.k in ("", number)}
        how = {number: view.explain()[0].partition(" is refreshed ")[2][:40] for number, (view, _) in views.items()}
        for turn in range(given.turns + 2):
            taken = timings if turn > 1 else Timings()  # the first turn replaces all rows, and the second one warms up
            for number, (view, whole) in views.items():
                taken.take(number, VIEW, view.refresh)
                taken.take(number, WHOLE, whole.rebuild)
                check(lake, view, whole)
            events.write(given.more)
    spark.stop()
    report(timings, how, given)


def report(timings: Timings, how: dict[str, str], given: argparse.Namespace) -> None:
    title = f"NEXMark's queries as views, {given.events:,} events, and {given.more:,} in each turn"
    printed = Printed("", "refresh", "by Spark as a whole", "refresh / whole", "how", title=title)
    for number, words in how.items():
        seconds = (f"{timings.median(number, who) or 0:.2f} s" for who in (VIEW, WHOLE))
        printed.add_row(number, *seconds, f"{timings.ratio(number, VIEW, WHOLE):.2f}", words)
    Console().print(printed)


if __name__ == "__main__":
    main()
