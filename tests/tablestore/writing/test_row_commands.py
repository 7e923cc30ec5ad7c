"""DELETE and UPDATE without Spark do what a loop over a dict's rows does, in each kind of table."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from filestore.errors import TableStoreError
from filestore.storage.local import LocalStorage
from tablestore import Store, Table
from tests.depth import Depth
from tests.faults import Call, FaultyStorage
from tests.opened import again
from tests.warehouses import Row, assert_whole, changes, rows

COLUMNS = "id BIGINT, p STRING, n INT NOT NULL, v DOUBLE, amount DECIMAL(9,2), tags ARRAY<STRING>, at BIGINT"
TABLES: dict[str, tuple[list[str], list[str], dict[str, str]]] = {
    "plain": (["id"], [], {"bucket": "2"}),
    "partitions": (["id", "p"], ["p"], {}),
    "merge on read": (["id"], [], {"write-mode": "merge-on-read"}),
    "looked up": (["id"], [], {"changelog-producer": "lookup"}),
    "as they arrive": (["id"], [], {"changelog-producer": "input"}),
    "ordered": (["id"], [], {"sequence.field": "at", "log.system": "none"}),
    "eventual": (["id"], [], {"log.consistency": "eventual"}),
}
CONDITIONS: list[tuple[str | pl.Expr, Callable[[Row], bool]]] = [
    ("id < 5", lambda row: row["id"] < 5),
    ("n = 3 AND p = 'a'", lambda row: row["n"] == 3 and row["p"] == "a"),
    ("v IS NULL", lambda row: row["v"] is None),
    ("id IN (3, 7, 99)", lambda row: row["id"] in (3, 7, 99)),
    ("id = 99", lambda row: row["id"] == 99),
    (pl.col("n") % 2 == 0, lambda row: row["n"] % 2 == 0),
]
UPDATES: list[tuple[dict[str, Any], Callable[[Row], Row]]] = [
    ({"n": 7}, lambda row: {"n": 7}),
    ({"n": pl.col("n") + 1, "v": None}, lambda row: {"n": row["n"] + 1, "v": None}),
    ({"v": pl.col("n").cast(pl.Float64) / 2}, lambda row: {"v": row["n"] / 2}),
    ({"amount": Decimal("1.25"), "tags": ["x", None]}, lambda row: {"amount": Decimal("1.25"), "tags": ["x", None]}),
    ({"n": pl.col("n") + 1, "v": pl.col("n") * 1.0}, lambda row: {"n": row["n"] + 1, "v": float(row["n"])}),
    ({"n": pl.sql_expr("n * 2"), "amount": 3}, lambda row: {"n": row["n"] * 2, "amount": Decimal("3.00")}),
]


def made(store: Store, kind: str) -> Table:
    key, partitions, options = TABLES[kind]
    table = store.create_table("shop.t", COLUMNS, primary_key=key, partition_by=partitions, options=options)
    assert isinstance(table, Table)
    return table


def by_id(found: Row) -> int:
    return int(found["id"])


def row(number: int) -> Row:
    values = {"v": None if number % 3 else 0.5, "amount": Decimal(number), "tags": [str(number)], "at": number}
    return {"id": number, "p": "ab"[number % 2], "n": number % 4, **values}


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", TABLES)
def test_rows_are_those_of_a_loop(store: Store, kind: str, depth: Depth) -> None:
    table, chosen = made(store, kind), random.Random(random.getrandbits(32))
    expected = {number: row(number) for number in range(12)}
    table.write(list(expected.values()))
    for _ in range(depth.times(6, deep=25)):
        where, selects = chosen.choice(CONDITIONS)
        selected = [key for key, found in expected.items() if selects(found)]
        if chosen.random() < 0.4:
            snapshot = table.delete(where)
            expected = {key: found for key, found in expected.items() if key not in selected}
        else:
            values, changed = chosen.choice(UPDATES)
            snapshot = table.update(values, where)
            expected |= {key: expected[key] | changed(expected[key]) for key in selected}
        assert (snapshot is None) == (not selected)
        assert sorted(table.scan(), key=by_id) == sorted(expected.values(), key=by_id)
        if len(expected) < 6:
            table.write(new := [{**row(number), "at": 100} for number in range(12)])
            expected = {found["id"]: found for found in new}
    if table.definition.options["log.system"] != "none":
        assert_whole(table)


@pytest.mark.parametrize("producer", ["lookup", "input"])
def test_changes_have_the_rows_before(store: Store, producer: str) -> None:
    table = store.create_table(
        "shop.t", "id BIGINT, n INT", primary_key=["id"], options={"changelog-producer": producer}
    )
    table.write([{"id": number, "n": 10 * number} for number in range(3)])
    table.update({"n": 11}, "id = 1")
    table.delete("id = 2")
    found = [(row["_kind"], row["id"], row["n"]) for row in changes(table, version=1, mode="changelog")]
    assert found == [("-U", 1, 10), ("+U", 1, 11), ("-D", 2, 20)]


@pytest.mark.parametrize("kind", ["plain", "merge on read", "ordered"])
def test_a_row_that_changes_meanwhile_is_read_again(store: Store, kind: str) -> None:
    table = made(store, kind)
    table.write([row(number) for number in range(8)])
    storage, done = FaultyStorage(LocalStorage()), list[Call]()
    slow = again(table, storage=storage)

    def overtaken(call: Call) -> None:
        if call.operation == "write_new" and call.path.endswith("/00000000000000000002.json") and not done:
            done.append(call)
            again(table).write([{**row(1), "n": 40, "at": 50}, {**row(3), "n": 1, "at": 50}])

    storage.hook = overtaken
    snapshot = slow.update({"n": pl.col("n") + 1}, "n = 3 OR id = 1")
    assert done
    assert snapshot is not None
    found = {each["id"]: each["n"] for each in rows(table)}
    assert (found[1], found[3], found[7]) == (41, 1, 4), "row 3 is not selected any more"


def refused(run: Callable[[], object]) -> str:
    with pytest.raises(TableStoreError) as caught:
        run()
    return caught.value.code


def test_what_is_refused_changes_nothing(store: Store) -> None:
    table = made(store, "partitions")
    table.write([row(number) for number in range(4)])
    cases: Mapping[str, Callable[[], object]] = {
        "key-changed": lambda: table.update({"p": "c"}, "id = 1"),
        "unknown-column": lambda: table.update({"nn": 1}, "id = 1"),
        "bad-value": lambda: table.update({"n": "x"}, "id = 1"),
        "bad-predicate": lambda: table.update({"n": pl.col("n").sum()}, "id = 1"),
        "null-value": lambda: table.update({"n": None}, "id = 1"),
    }
    for code, run in cases.items():
        assert refused(run) == code
    assert refused(lambda: table.update({"n": pl.col("tags") + 1}, "id = 1")) == "bad-value"
    assert refused(lambda: table.update({"amount": Decimal("1.234")}, "id = 1")) == "bad-value"
    assert refused(lambda: table.delete("idd = 1")) == "unknown-column"
    assert refused(lambda: table.delete("id")) == "bad-predicate"
    assert table.version == 1
    plain = store.create_table("shop.plain", "id BIGINT")
    assert refused(lambda: plain.delete("id = 1")) == "no-primary-key"
    summed = store.create_table(
        "shop.sums", "id BIGINT, n INT", primary_key=["id"], options={"merge-engine": "aggregation"}
    )
    assert refused(lambda: summed.delete("id = 1")) == "merge-engine"
    assert refused(lambda: summed.update({"n": 1}, "id = 1")) == "merge-engine"


def test_each_value_is_one_of_the_row_as_it_was(store: Store) -> None:
    """A later column was worked out from what an earlier one had become."""
    table = store.create_table("shop.t", "id BIGINT, a INT, b INT", primary_key=["id"])
    table.write([{"id": 1, "a": 1, "b": 2}])
    table.update({"a": pl.col("b"), "b": pl.col("a")}, "id = 1")
    assert rows(table) == [{"id": 1, "a": 2, "b": 1}]
