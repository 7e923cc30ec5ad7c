"""Statistics are true, whatever the rows (FORMAT.md section 8)."""

from __future__ import annotations

import json
import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from filestore.files.statistics import StatisticsBuilder
from tests.filestore.arrays import data_types, values

LONG = st.text(st.sampled_from("ab\U0010ffffé"), max_size=140)


def stats_of(*tables: pa.Table) -> dict[str, Any]:
    builder = StatisticsBuilder(tables[0].schema)
    for table in tables:
        builder.add(table)
    text = builder.to_json()
    assert "\n" not in text
    return json.loads(text, parse_constant=lambda word: pytest_fail(word))  # type: ignore[no-any-return]


def pytest_fail(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


def plain(value: Any) -> Any:
    """A value as a reader compares it with a bound."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value


@given(st.data(), data_types())
def test_bounds_and_counts_are_true(data: st.DataObject, kind: pa.DataType) -> None:
    rows = data.draw(st.lists(values(kind), max_size=8))
    schema = pa.schema([("c", kind)])
    table = pa.table([pa.array(rows, kind)], schema=schema)
    stats = stats_of(table.slice(0, 3), table.slice(3))
    assert stats["numRecords"] == len(rows)
    if not pa.types.is_struct(kind):
        assert stats["nullCount"] == {"c": table.column("c").null_count}
    low, high = stats["minValues"].get("c"), stats["maxValues"].get("c")
    assert (low is None) == (high is None)
    for value in table.column("c").to_pylist():
        if value is not None and low is not None:
            assert low <= plain(value) <= high


@given(st.lists(LONG, min_size=1))
@example(["b" * 65])
@example(["a" * 64 + "\U0010ffff" + "b"])
def test_long_texts_are_cut_and_bounds_stay_true(texts: list[str]) -> None:
    stats = stats_of(pa.table({"c": texts}))
    low, high = stats["minValues"]["c"], stats["maxValues"]["c"]
    assert all(low.encode() <= text.encode() <= high.encode() for text in texts)
    assert len(low) <= 64
    assert len(high) <= 65 or high[64] == "\U0010ffff"


@given(st.lists(st.floats(), min_size=1))
@example([1.0, 2.0, math.nan])
@example([1.0, 2.0, -math.inf, 3.0])
def test_a_nan_or_an_infinity_leaves_no_bounds(numbers: list[float]) -> None:
    stats = stats_of(pa.table({"c": numbers[:2]}), pa.table({"c": pa.array(numbers[2:], pa.float64())}))
    assert ("c" in stats["minValues"]) == ("c" in stats["maxValues"]) == all(map(math.isfinite, numbers))


def test_only_the_first_columns_are_measured() -> None:
    stats = stats_of(pa.table({f"c{n}": [n] for n in range(40)}))
    assert len(stats["minValues"]) == len(stats["nullCount"]) == 32


def test_a_struct_has_no_count_since_readers_expect_its_fields_there() -> None:
    stats = stats_of(pa.table({"s": [{"a": 1}, None], "v": [1, None]}))
    assert stats["nullCount"] == {"v": 1}


def test_wide_decimals_have_no_bounds() -> None:
    stats = stats_of(
        pa.table({"wide": pa.array([Decimal(10) ** 20], pa.decimal128(38, 2)), "small": pa.array([Decimal("1.50")])})
    )
    assert stats["minValues"] == {"small": 1.5}


@given(st.lists(st.none() | st.sampled_from([0.0, -0.0, 1.0, -1.0]), min_size=1))
def test_bounds_hold_for_a_reader_that_sorts_a_negative_zero_first(numbers: list[float | None]) -> None:
    """They are exact: Delta answers ``SELECT min(c)`` by them."""
    stats = stats_of(doubles(numbers[:1]), doubles(numbers[1:]))
    present = sorted((n for n in numbers if n is not None), key=lambda n: (n, math.copysign(1, n)))
    found = [stats[bound].get("c") for bound in ("minValues", "maxValues")]
    assert list(map(repr, found)) == [repr(present[0]), repr(present[-1])] if present else found == [None, None]


def doubles(values: list[float | None]) -> pa.Table:
    return pa.table({"c": pa.array(values, pa.float64())})
