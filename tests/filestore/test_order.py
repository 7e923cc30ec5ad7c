"""Rows are sorted as Python sorts them, whatever the types of the columns; equal rows stay in their order."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from filestore.sorting.chunks import BUCKET_COLUMN
from filestore.sorting.order import in_order

COLUMNS = {
    "p": (pa.string(), st.none() | st.sampled_from(["", "a", "b", "ä"])),
    BUCKET_COLUMN: (pa.int32(), st.integers(0, 2)),
    "i": (pa.int64(), st.none() | st.integers(-3, 3)),
    "d": (pa.date32(), st.sampled_from([datetime.date(1969, 12, 31), datetime.date(2026, 1, 1)])),
    "t": (pa.string(), st.sampled_from(["", "x", "xy"])),
    "f": (pa.bool_(), st.none() | st.booleans()),
}
ORDERS = (
    [BUCKET_COLUMN],
    ["i", "d"],
    [BUCKET_COLUMN, "i"],
    ["p", BUCKET_COLUMN, "i", "d"],
    ["p", BUCKET_COLUMN, "i", "t"],
    ["f", "i", BUCKET_COLUMN, "t", "f"],
    ["t", "i"],
)
ROWS = st.lists(st.tuples(*(values for _, values in COLUMNS.values())), max_size=30)


def nulls_first(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple((value is not None, value) for value in row)


@given(rows=ROWS, by=st.sampled_from(ORDERS))
def test_the_order_is_that_of_a_stable_sort(rows: list[tuple[Any, ...]], by: list[str]) -> None:
    names = list(COLUMNS)
    table = pa.table([pa.array([r[n] for r in rows], COLUMNS[name][0]) for n, name in enumerate(names)], names=names)
    table = table.append_column("at", pa.array(range(len(rows)), pa.int64()))
    at = [names.index(name) for name in by]
    wanted = sorted(range(len(rows)), key=lambda n: nulls_first([rows[n][k] for k in at]))
    assert in_order(table, by).column("at").to_pylist() == wanted
