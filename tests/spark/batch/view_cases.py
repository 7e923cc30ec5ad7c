"""Views that Spark refreshes, random changes of their tables, and what holds for each of their versions."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tablestore import Store, Table
from tablestore.spark import SparkStore
from tablestore.views.view import View
from tests.tables import in_order, to_arrow
from tests.warehouses import Row, rows

__all__ = ["CASES", "Case", "assert_no_empty_update", "by_spark", "changed", "created", "keyed_rows", "values"]

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
COLUMNS = {
    "shop.orders": "id BIGINT, planet BIGINT, kind STRING, amount INT, price DOUBLE, at TIMESTAMP, "
    "tags MAP<STRING, INT>",
    "shop.planets": "id BIGINT, name STRING, star STRING",
    "shop.stars": "star STRING, mass INT",
}
VALUES: dict[str, dict[str, Callable[[random.Random], object]]] = {
    "shop.orders": {
        "id": lambda dice: dice.randrange(40),
        "planet": lambda dice: dice.choice([*range(8), None]),
        "kind": lambda dice: dice.choice(["a", "b", "c", None]),
        "amount": lambda dice: dice.choice([*range(-3, 9), None]),
        "price": lambda dice: dice.choice([0.25, 0.5, 8.0, float("nan"), None]),
        "at": lambda dice: dice.choice([None, BEGIN + timedelta(minutes=dice.randrange(300))]),
        "tags": lambda dice: dice.choice([None, {}, {"x": 1, "y": None}]),
    },
    "shop.planets": {
        "id": lambda dice: dice.randrange(8),
        "name": lambda dice: dice.choice(["Arrakis", "Caladan", "Giedi", None]),
        "star": lambda dice: dice.choice(["s1", "s2", "s3", None]),
    },
    "shop.stars": {"star": lambda dice: f"s{dice.randrange(1, 4)}", "mass": lambda dice: dice.randrange(3)},
}


@dataclass(frozen=True)
class Case:
    """A query, and how its view is made."""

    query: str
    primary_key: Sequence[str] = ()
    whole: bool = False

    @property
    def tables(self) -> list[str]:
        return [name for name in COLUMNS if name in self.query]


CASES = {
    "filter": Case("SELECT id, amount * 2 AS twice, price, tags FROM shop.orders WHERE amount > 0"),
    "groups": Case(
        "SELECT kind, count(*) AS n, sum(amount) AS total, min(price) AS low, max(amount) AS high, avg(amount) AS mean "
        "FROM shop.orders WHERE kind IS NOT NULL GROUP BY kind"
    ),
    "join": Case(
        "SELECT o.id, upper(p.name) AS name, coalesce(o.amount, 0) + length(p.name) AS number "
        "FROM shop.orders o LEFT JOIN shop.planets p ON o.planet = p.id AND p.star <> 's3'"
    ),
    "join_of_three": Case(
        "SELECT o.id, p.name, s.mass * o.amount AS weight FROM shop.orders o "
        "JOIN shop.planets p ON p.id = o.planet LEFT JOIN shop.stars s ON p.star = s.star "
        "WHERE o.amount IS DISTINCT FROM 3"
    ),
    "window": Case(
        "SELECT window.start AS begin, coalesce(kind, '-') AS kind, count(*) AS n, sum(amount) AS total "
        "FROM shop.orders GROUP BY window(at, '1 hour'), coalesce(kind, '-')"
    ),
    "sliding_window": Case(
        "SELECT window(at, '1 hour', '20 minutes').start AS start, max(amount) AS high FROM shop.orders "
        "WHERE amount >= 0 GROUP BY window(at, '1 hour', '20 minutes') HAVING max(amount) < 8"
    ),
    "distinct": Case("SELECT DISTINCT kind AS new, planet AS more FROM shop.orders", whole=True),
    "keyed_whole": Case(
        "SELECT id, amount FROM shop.orders UNION ALL SELECT id + 1000, length(name) FROM shop.planets",
        primary_key=["id"],
        whole=True,
    ),
    "groups_of_join": Case(
        "SELECT coalesce(p.name, '?') AS name, s.mass > 1 AS heavy, count(o.amount) AS n -- all\n"
        "FROM shop.orders o LEFT JOIN shop.planets p ON o.planet = p.id JOIN shop.stars s USING (star)\n"
        "GROUP BY coalesce(p.name, '?'), 2 HAVING count(*) > 1",
        primary_key=["name", "heavy"],
    ),
}


def created(store: Store, case: Case) -> list[Table]:
    for name in case.tables:
        columns = COLUMNS[name]
        key = [columns.split()[0]]
        options = {"bucket": "2"} if name == "shop.orders" else {}
        store.create_table(name, columns, primary_key=key, options=options)
    return [store.table(name) for name in case.tables]


def changed(table: Table, dice: random.Random, most: int = 12) -> None:
    """One write with deletes; one in six is an overwrite, one in eight a rollback."""
    values = VALUES[table.identifier]
    key = table.definition.primary_key[0]
    found = {row[key]: row for row in ({n: v(dice) for n, v in values.items()} for _ in range(dice.randrange(1, most)))}
    version = table.filestore.state().version
    match dice.randrange(24):
        case 0 | 1 | 2 | 3:
            table.write(to_arrow(table.definition, found.values()), overwrite=True)
        case 4 | 5 | 6 if version > 2:
            table.rollback(version - 1)
        case number:
            if number in (7, 8):
                table.compact(full=True)
            kinds = dice.choices(["+I", "-D"], [3, 1], k=len(found))
            table.write(
                to_arrow(table.definition, [r | {"_kind": k} for r, k in zip(found.values(), kinds, strict=True)])
            )


def values(found: Sequence[Any]) -> list[Row]:
    return in_order(row.asDict(recursive=True) for row in found)


def by_spark(lake: SparkStore, case: Case, versions: Mapping[str, int | None]) -> list[Row]:
    """The rows of the query, run by Spark over a version of each table."""
    query = case.query
    for name, version in versions.items():
        place = name.replace(".", "_at_")
        lake.read(name, version=version).createOrReplaceTempView(place)
        query = query.replace(name, place)
    return values(lake.spark.sql(query).collect())


def keyed_rows(view: View, version: int | None = None) -> dict[tuple[Any, ...], Row]:
    key = view.table.definition.primary_key
    return {tuple(row[name] for name in key): row for row in rows(view.table, version)} if key else {}


def assert_no_empty_update(view: View, before: dict[tuple[Any, ...], Row], version: int) -> None:
    """The change data of a refresh is exactly what differs."""
    if not before:
        return
    key = view.table.definition.primary_key
    feed = view.table.follow(mode="changelog", version=version - 1, stop=version)
    found = [row for batch in feed for row in batch.to_pylist()]
    after = keyed_rows(view, version)
    for kind, expected in (
        ("+I", [after[k] for k in after.keys() - before.keys()]),
        ("-D", [before[k] for k in before.keys() - after.keys()]),
        ("+U", [after[k] for k in after.keys() & before.keys() if repr(after[k]) != repr(before[k])]),
    ):
        got = [{n: v for n, v in row.items() if n != "_kind"} for row in found if row["_kind"] == kind]
        assert repr(in_order(got)) == repr(in_order(expected)), (kind, key)
