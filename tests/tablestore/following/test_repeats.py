"""Repeats in an eventual log are left out: compared with a reader that returns every record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestore.following.repeats import Repeats

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("n", pa.int64()), ("_kind", pa.string())])
KEY = ["a", "b"]
Record = tuple[int, int | None]
"""A key and the row's value, or None for a delete."""


def rows_of(records: Sequence[Record]) -> pa.Table:
    found = [
        {"a": key % 2, "b": str(key), "n": value, "_kind": "-D" if value is None else "+U"} for key, value in records
    ]
    return pa.Table.from_pylist(found, SCHEMA)


def records_of(rows: pa.Table) -> list[Record]:
    return [(int(row["b"]), row["n"]) for row in rows.to_pylist()]


@dataclass
class Reader:
    """Collects one bucket's rows."""

    repeats: Repeats

    def __post_init__(self) -> None:
        self.state: dict[int, int | None] = {}
        self.taken: list[Record] = []

    def take(self, writer: str, records: Sequence[Record]) -> None:
        self.taken = records_of(self.repeats.without_repeats(0, f"table/{writer}", rows_of(records)))
        apply(self.state, self.taken)


def apply(state: dict[int, int | None], records: Sequence[Record]) -> None:
    for key, value in records:
        state.pop(key, None)
        if value is not None:
            state[key] = value


RECORDS = st.lists(st.tuples(st.integers(0, 1), st.sampled_from([None, 0, 1])), min_size=1, max_size=3)
WRITERS = st.sampled_from(["x/0.0", "x/0.1", "y/0.0", "y/0.1"])
HISTORIES = st.lists(st.tuples(WRITERS, RECORDS), min_size=20, max_size=40)


@given(HISTORIES, st.integers(1, 12) | st.just(1000), st.integers(1, 6), st.integers(0, 40))
def test_a_reader_without_the_repeats_has_the_same_rows_at_any_time(
    history: list[tuple[str, list[Record]]], most_rows: int, most_transactions: int, overwritten: int
) -> None:
    """It holds for any records in any order, and however few of them the reader remembers."""
    reader = Reader(Repeats(KEY, 1, most_rows, most_transactions))
    reported_all: dict[int, int | None] = {}
    for number, (writer, records) in enumerate(history):
        if number == overwritten:
            reader.repeats.forget(0)
            reader.state.clear()
            reported_all.clear()
        reader.take(writer, records)
        apply(reported_all, records)
        assert reader.state == reported_all
        left = iter(records)
        assert all(record in left for record in reader.taken), "in the log's order"


def test_an_equal_record_of_another_commit_is_no_repeat() -> None:
    reader = Reader(Repeats(KEY, 1))
    reader.take("x/0.0", [(1, 7)])
    reader.take("y/0.0", [(2, 7)])
    reader.take("y/0.1", [(1, 7), (2, 7)])
    assert reader.taken == [(1, 7)], "only the second record is one of this commit"


@st.composite
def retries(draw: st.DrawFn) -> tuple[list[Record], list[tuple[str, list[Record]]]]:
    """Draws a task's records, and those that its attempts log in turn: each logs a part, in batches of any size."""
    keys = draw(st.lists(st.integers(0, 40), unique=True, max_size=12))
    task = [(key, draw(st.none() | st.integers(0, 2))) for key in keys]
    reported: list[tuple[str, list[Record]]] = []
    for attempt in range(draw(st.integers(2, 4))):
        reported += [(f"x/3.{attempt}", part) for part in parts(draw, task[: draw(st.integers(0, len(task)))])]
    return task, [*reported, *(("x/order.7-u", part) for part in parts(draw, task))]


def parts(draw: st.DrawFn, records: list[Record]) -> Iterator[list[Record]]:
    while records:
        size = draw(st.integers(1, len(records)))
        yield records[:size]
        records = records[size:]


@given(retries(), st.lists(st.tuples(st.sampled_from(["y/0.0", "z/3.1"]), st.integers(50, 60)), max_size=6))
def test_records_that_attempts_repeat_are_returned_once_beside_those_of_other_keys(
    reported: tuple[list[Record], list[tuple[str, list[Record]]]], beside: list[tuple[str, int]]
) -> None:
    task, events = reported
    reader, found = Reader(Repeats(KEY, 1)), list[Record]()
    for number, (writer, records) in enumerate(events):
        reader.take(writer, records)
        found += reader.taken
        for other, key in beside[number : number + 1]:
            reader.take(other, [(key, number)])
            assert reader.taken == [(key, number)]
    assert found == task


def test_what_another_logged_in_between_is_corrected() -> None:
    reader = Reader(Repeats(KEY, 1))
    reader.take("x/0.0", [(1, 1), (2, 1), (3, None)])
    reader.take("y/0.0", [(1, 2), (3, 2)])
    reader.take("x/0.1", [(1, 1), (2, 1), (3, None)])
    assert reader.taken == [(1, 1), (3, None)]


def test_what_comes_last_in_one_batch_comes() -> None:
    reader = Reader(Repeats(KEY, 1))
    reader.take("x/0.0", [(1, 1)])
    reader.take("x/0.1", [(1, 2), (1, 1)])
    assert reader.taken == [(1, 2), (1, 1)]


def test_what_another_logged_counts_when_it_is_forgotten_itself() -> None:
    reader = Reader(Repeats(KEY, 1, most_rows=4))
    reader.take("x/0.0", [(1, 1), (2, 1)])
    reader.take("y/0.0", [(1, 2), (3, 2)])
    reader.take("x/0.1", [(4, 1)])  # there is no room for it until y's records are forgotten
    reader.take("x/0.2", [(1, 1), (2, 1)])
    assert reader.taken == [(1, 1)]


def test_what_a_larger_commit_logged_counts_though_it_is_not_remembered() -> None:
    reader = Reader(Repeats(KEY, 1, most_rows=2))
    reader.take("x/0.0", [(1, 1), (2, 1), (3, 1)])
    reader.take("y/0.0", [(4, 2)])
    reader.take("x/0.0", [(4, 1)])
    reader.take("y/0.1", [(4, 2)])
    assert reader.taken == [(4, 2)]


def test_other_commits_and_one_attempt_may_say_the_same_again() -> None:
    reader = Reader(Repeats(KEY, 1))
    for writer in ("x/0.0", "x/0.0", "y/0.0"):
        reader.take(writer, [(1, 1)])
        assert reader.taken == [(1, 1)]


def test_buckets_are_apart() -> None:
    repeats, rows = Repeats(KEY, 2), rows_of([(1, 1)])
    assert repeats.without_repeats(0, "table/x/0.0", rows).num_rows == 1
    assert repeats.without_repeats(1, "table/x/0.1", rows).num_rows == 1
    repeats.forget(1)
    assert repeats.without_repeats(0, "table/x/0.1", rows).num_rows == 0
    assert repeats.without_repeats(1, "table/x/0.0", rows).num_rows == 1


def test_of_a_larger_commit_repeats_are_passed_on_and_the_next_is_remembered_again() -> None:
    reader, many = Reader(Repeats(KEY, 1, most_rows=8)), [(key, 1) for key in range(9)]
    for writer, records, taken in (
        ("y/0.0", [(0, 0)], [(0, 0)]),
        ("x/0.0", many[:5], many[:5]),
        ("x/0.1", many[:6], many[5:6]),
        ("x/0.1", many[6:], many[6:]),
        ("x/0.2", many[:1], many[:1]),
        ("y/0.1", [(0, 0)], [(0, 0)]),
        ("y/0.2", [(0, 0)], []),
    ):
        reader.take(writer, records)
        assert reader.taken == taken


VALUES: Sequence[tuple[pa.DataType, Any, Any]] = [
    (pa.int32(), 1, 2),
    (pa.float64(), 0.5, None),
    (pa.bool_(), True, False),
    (pa.binary(), b"", None),
    (pa.decimal128(38, 2), Decimal("1.00"), Decimal("0.01")),
    (pa.timestamp("us", "UTC"), datetime(2026, 1, 1, tzinfo=UTC), datetime(1969, 1, 1, tzinfo=UTC)),
    (pa.list_(pa.string()), ["a", None], ["a"]),
    (pa.struct([("x", pa.map_(pa.string(), pa.int32()))]), {"x": [("a", 1)]}, {"x": [("a", 2)]}),
    (pa.map_(pa.string(), pa.list_(pa.int32())), [("a", [1])], [("a", [])]),
]


@pytest.mark.parametrize(("kind", "value", "other"), VALUES, ids=[str(kind) for kind, _, _ in VALUES])
def test_values_of_all_types_are_distinguished(kind: pa.DataType, value: Any, other: Any) -> None:
    repeats = Repeats(["a"], 1)
    schema = pa.schema([("a", pa.int64()), ("v", kind), ("_kind", pa.string())])

    def left(attempt: int, row: Any, how: str = "+I") -> int:
        rows = pa.Table.from_pylist([{"a": 1, "v": row, "_kind": how}], schema)
        return repeats.without_repeats(0, f"table/x/0.{attempt}", rows).num_rows

    assert [left(0, value), left(1, value, "+U"), left(2, other), left(3, other)] == [1, 0, 1, 0]
    assert [left(4, other, "-D"), left(5, None, "-U"), left(6, None)] == [1, 0, 1]
