"""`follow` in each mode, from each start, through any history: its changes are exact and lead to the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.errors import InvalidRequest
from tablestore import Store, Table
from tests.bothlogs import both_logs
from tests.depth import sampled
from tests.tables import in_order
from tests.warehouses import changes, replay, rows, to_arrow, warehouse

Row = dict[str, Any]
COLUMNS = "id BIGINT, p STRING, s BIGINT, v BIGINT"
KEY = ["id", "p"]


@dataclass(frozen=True, slots=True)
class Shape:
    options: Mapping[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    keyed: bool = True

    def create(self, store: Store) -> Table:
        return store.create_table(
            "shop.t",
            COLUMNS,
            primary_key=KEY if self.keyed else [],
            partition_by=self.partition_by,
            options={"bucket": "2", **self.options},
        )


SHAPES = {
    "upserts": Shape(),
    "partitioned": Shape(partition_by=("p",)),
    "sequence": Shape({"sequence.field": "s"}),
    "lookup": Shape({"changelog-producer": "lookup"}, ("p",)),
    "merge-on-read": Shape({"write-mode": "merge-on-read"}),
    "full-compaction": Shape({"write-mode": "merge-on-read", "changelog-producer": "full-compaction"}),
    "lookup-later": Shape({"write-mode": "merge-on-read", "changelog-producer": "lookup"}, ("p",)),
    "aggregation": Shape({"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}),
    "aggregation-later": Shape(
        {
            "merge-engine": "aggregation",
            "fields.v.aggregate-function": "sum",
            "write-mode": "merge-on-read",
            "log.system": "none",
        }
    ),
    "no-log": Shape({"log.system": "none"}),
    "no-key": Shape(keyed=False, partition_by=("p",)),
}

ROW = st.fixed_dictionaries(
    {
        "id": st.integers(0, 4),
        "p": st.sampled_from("xy"),
        "s": st.integers(0, 3),
        "v": st.none() | st.integers(0, 2),
        "_kind": st.sampled_from(["+I", "+U", "-D"]),
    }
)
FEW = settings(max_examples=min(12, settings().max_examples))
"""The examples for each of many shapes."""

STEP = st.tuples(
    st.sampled_from(["write", "write", "write", "overwrite", "dynamic", "drop", "compact", "rollback", "alter"]),
    st.lists(ROW, max_size=6),
    st.integers(0, 99),
)


def do(table: Table, kind: str, drawn: list[Row], number: int) -> None:
    definition = table.definition
    if not definition.primary_key or definition.merges_values:
        drawn = [row | {"_kind": "+I"} for row in drawn]
    match kind:
        case "write" | "overwrite":
            table.write(to_arrow(table, drawn), overwrite=kind == "overwrite")
        case "dynamic" if definition.partition_by and drawn:
            table.write(to_arrow(table, drawn), overwrite="dynamic")
        case "drop" if definition.partition_by:
            table.drop_partitions([{"p": "x"}])
        case "compact":
            table.compact(full=number % 2 == 0)
        case "rollback":
            table.rollback(number % (table.filestore.state().version + 1))
        case "alter":
            table.alter(f"ADD COLUMN c{len(table.schema)} BIGINT")


def image(row: Mapping[str, Any]) -> str:
    return repr(sorted(item for item in row.items() if item[0] != "_kind"))


def shaped(table: Table, found: Iterable[Row]) -> list[Row]:
    """Returns rows of an older version with the present columns."""
    return in_order({name: row.get(name) for name in table.schema.names} for row in found)


def applied(before: Iterable[Row], reported: Iterable[Row], *, keyed: bool) -> list[Row]:
    """Applies exact changes: a row that is removed must be there, exactly so, and a row that is added must be new."""
    held: list[str] = [image(row) for row in before]
    known = {image(row): row for row in before}
    keys = {tuple(row[name] for name in KEY) for row in before}
    old: Row | None = None
    for change in reported:
        row = {name: value for name, value in change.items() if name != "_kind"}
        key = tuple(row[name] for name in KEY)
        if change["_kind"] in ("-U", "-D"):
            assert image(row) in held, f"{change} was not there"
            held.remove(image(row))
            keys.discard(key)
            old = row if change["_kind"] == "-U" else None
        else:
            assert not keyed or key not in keys, f"{change} is there already"
            if change["_kind"] == "+U":
                assert old is not None, f"{change} without the row that it replaces"
                assert [old[name] for name in KEY] == [row[name] for name in KEY], f"{change} after {old}"
                assert image(old) != image(row), "it changes nothing"
            held.append(image(row))
            known[image(row)] = row
            keys.add(key)
            old = None
    return in_order(known[name] for name in held)


def check(table: Table) -> None:
    """Follows in every mode, from every version, with and without its rows."""
    newest, keyed = rows(table), bool(table.definition.primary_key)
    logged = table.definition.options["log.system"] != "none"
    for version in range(table.filestore.state().version + 1):
        before = shaped(table, rows(table, version))
        exact = changes(table, version=version, mode="changelog")
        assert applied(before, exact, keyed=keyed) == newest, version
        assert applied([], changes(table, "full", version=version, mode="changelog"), keyed=keyed) == newest
        if logged and keyed:
            begun = [row | {"_kind": "+I"} for row in before]
            assert replay([*begun, *changes(table, version=version)], KEY) == newest
            assert replay(changes(table, "full", version=version), KEY) == newest


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("shape", sampled(SHAPES.values(), 4, test=4), ids=list(SHAPES))
@FEW
@given(history=st.lists(STEP, min_size=1, max_size=6))
def test_any_history_in_any_mode_from_any_start(shape: Shape, history: list[Any]) -> None:
    with warehouse() as store:
        table = shape.create(store)
        for kind, drawn, number in history:
            do(table, kind, drawn, number)
        check(table)


HISTORY: list[tuple[str, list[Row], int]] = [
    ("write", [{"id": n, "p": p, "s": 0, "v": n} for n in range(3) for p in "xy"], 0),
    ("write", [{"id": 1, "p": "x", "s": 1, "v": 9, "_kind": "+U"}, {"id": 2, "p": "y", "_kind": "-D"}], 0),
    ("compact", [], 0),
    ("drop", [], 0),
    ("write", [{"id": 1, "p": "x", "s": 2, "v": 7}, {"id": 0, "p": "y", "s": 2, "v": 8}], 0),
    ("dynamic", [{"id": 4, "p": "y", "s": 3, "v": 4}], 0),
    ("rollback", [], 4),
]


@pytest.mark.few(1)
@both_logs
@pytest.mark.slow
@pytest.mark.parametrize("shape", sampled(["lookup", "partitioned"], 2, test=2))
def test_one_history_in_any_mode_from_any_start(store: Store, log_options: dict[str, str], shape: str) -> None:
    """The history contains every kind of change of a table."""
    table = replace(SHAPES[shape], options={**SHAPES[shape].options, **log_options}).create(store)
    for kind, drawn, number in HISTORY:
        do(table, kind, drawn, number)
    check(table)


# ---------------------------------------------------------------------------------------------- by example


def put(table: Table, *ids: int, name: str = "a") -> int:
    return table.write(pa.table({"id": ids, "name": [name] * len(ids)})).version


def reported(table: Table, *start: str, **how: Any) -> list[tuple[str, int, str]]:
    return [(row["_kind"], row["id"], row["name"]) for row in changes(table, *start, **how)]


@both_logs
def test_an_update_comes_with_the_row_that_it_replaces_and_a_delete_with_all_of_it(orders: Table) -> None:
    put(orders, 1, 2)
    put(orders, 1, name="b")
    put(orders, 1, name="b")  # leaves the row as it was
    orders.write(pa.table({"id": [2, 9], "_kind": ["-D", "-D"]}))  # 9 was never there
    assert reported(orders, version=1, mode="changelog") == [("-U", 1, "a"), ("+U", 1, "b"), ("-D", 2, "a")]
    assert [kind for kind, *_ in reported(orders, version=1)] == ["+U", "+U", "-D", "-D"], "as the log has it"


@pytest.mark.few(3)
@both_logs
@pytest.mark.parametrize("start", ["version", "tag", "timestamp"])
def test_each_mode_begins_at_a_version_a_tag_and_a_time(orders: Table, start: str) -> None:
    put(orders, 1)
    put(orders, 2, 3)
    orders.create_tag("eod", 2)
    then = orders.filestore.snapshot(2).timestamp + timedelta(microseconds=1)
    at = {"version": 2, "tag": "eod", "timestamp": then}[start]
    put(orders, 2, name="b")
    orders.write(pa.table({"id": [3], "_kind": ["-D"]}))
    begun = [("+I", key, "a") for key in (1, 2, 3)]
    upserts = [("+U", 2, "b"), ("-D", 3, None)]
    complete = [("-U", 2, "a"), ("+U", 2, "b"), ("-D", 3, "a")]
    for mode, expected in (("upsert", upserts), ("changelog", complete)):
        assert reported(orders, **{start: at}, mode=mode) == expected
        whole = reported(orders, "full", **{start: at}, mode=mode)
        assert (sorted(whole[:3]), whole[3:]) == (begun, expected)


@both_logs
def test_change_data_come_in_pairs(store: Store, log_options: dict[str, str]) -> None:
    options = {"changelog-producer": "lookup", **log_options}
    table = store.create_table("shop.lookup", "id BIGINT, name STRING", primary_key=["id"], options=options)
    put(table, *range(4))
    put(table, *range(1, 6), name="b")
    found = reported(table, version=1, mode="changelog")
    pairs = [(kind, i, name) for i in (1, 2, 3) for kind, name in (("-U", "a"), ("+U", "b"))]
    assert found == [*pairs, ("+I", 4, "b"), ("+I", 5, "b")]


def test_what_an_overwrite_throws_away_unmerged_leaves(store: Store) -> None:
    """The overwrite's change data are those since the last fold, and do not contain rows of pending runs."""
    table = store.create_table(
        "shop.later",
        "id BIGINT, name STRING",
        primary_key=["id"],
        options={"write-mode": "merge-on-read", "changelog-producer": "lookup"},
    )
    put(table, 1)
    table.compact(full=True)
    put(table, 2)
    version = put(table, 1, name="b")
    table.write(pa.table({"id": [3], "name": ["c"]}), overwrite=True)
    assert reported(table, version=version, mode="changelog") == [("-D", 1, "b"), ("-D", 2, "a"), ("+I", 3, "c")]


def test_input_changes_are_returned_unchanged(store: Store) -> None:
    table = store.create_table(
        "shop.input", "id BIGINT, name STRING", primary_key=["id"], options={"changelog-producer": "input"}
    )
    put(table, 1)
    table.write(pa.table({"id": [1, 1], "name": ["old", "new"], "_kind": ["-U", "+U"]}))
    assert reported(table, version=1, mode="changelog") == [("-U", 1, "old"), ("+U", 1, "new")]


GONE = {
    "upserts": {},
    "input": {"changelog-producer": "input"},
    "eventual": {"log.consistency": "eventual"},
    "images": {"changelog-producer": "lookup"},
}


@pytest.mark.parametrize("options", list(GONE.values()), ids=list(GONE))
def test_a_key_that_is_gone_is_a_delete_whatever_took_it_away(store: Store, options: dict[str, str]) -> None:
    """A ``-U`` without a ``+U`` was emitted unchanged, though upserts have ``+I``, ``+U`` and ``-D`` alone."""
    table = store.create_table("shop.gone", "id BIGINT, name STRING", primary_key=["id"], options=options)
    put(table, 1, 2, 3)
    before = {"id": [1, 2, 2, 3], "name": ["a", "a", "b", "a"], "_kind": ["-U", "-U", "+U", "-D"]}
    table.write(pa.table(before))
    found = sorted((row[1], row[0]) for row in reported(table, version=1))
    assert found == [(1, "-D"), (2, "+U"), (3, "-D")]
    assert {row[0] for row in reported(table, version=1, mode="changelog")} == {"-D", "-U", "+U"}


def test_a_mode_that_is_not_known_is_refused(orders: Table) -> None:
    with pytest.raises(InvalidRequest) as caught:
        orders.follow(mode="retract")
    assert caught.value.code == "bad-result-mode"
