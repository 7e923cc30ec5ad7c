"""Keys as text keep value and order."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.rows.keys import ascending, changes, decode_key, encode_key, key_at
from tests.filestore.arrays import KEY_TYPES, key_values


@pytest.mark.parametrize("kind", KEY_TYPES, ids=str)
def test_a_key_survives_its_text(kind: pa.DataType) -> None:
    @given(key_values(kind))
    def survives(value: Any) -> None:
        table = pa.table({"k": pa.array([value], kind)})
        key = key_at(table, ["k"], 0)
        text = encode_key(key)
        assert "\n" not in text
        assert json.loads(text)
        back = decode_key(text, [kind])
        assert back == key
        assert pa.array([back[0]], kind).equals(table.column("k").chunk(0))

    survives()


@pytest.fixture
def new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose time zone is not UTC."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


def test_a_time_without_a_zone_is_the_same_text_on_every_machine(new_york: None) -> None:
    moment = datetime(1970, 1, 2)
    assert encode_key((moment,)) == "[86400000000]"
    assert decode_key("[86400000000]", [pa.timestamp("us")]) == (moment,)


@pytest.mark.parametrize("kind", KEY_TYPES, ids=str)
def test_decoded_keys_compare_as_columns_sort(kind: pa.DataType) -> None:
    @given(st.lists(key_values(kind), min_size=2, max_size=6))
    def same_order(values: list[Any]) -> None:
        table = pa.table({"k": pa.array(values, kind)}).sort_by("k")
        keys = [decode_key(encode_key(key_at(table, ["k"], row)), [kind]) for row in range(table.num_rows)]
        assert keys == sorted(keys)

    same_order()


@given(st.lists(st.tuples(st.none() | st.integers(0, 1), st.none() | st.sampled_from(["", "a"])), max_size=8))
def test_changes_see_nulls_as_a_value(rows: list[tuple[Any, Any]]) -> None:
    columns = list(zip(*rows, strict=True)) or [(), ()]
    table = pa.table({"a": pa.array(columns[0], pa.int64()), "b": pa.array(columns[1], pa.string())})
    chunked = pa.concat_tables([table.slice(0, 2), table.slice(2)])
    assert changes(chunked, ["a", "b"]).tolist() == [x != y for x, y in itertools.pairwise(rows)]


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["", "a", "b"])), max_size=6))
def test_ascending_is_the_order_of_tuples(rows: list[tuple[int, str]]) -> None:
    columns = list(zip(*rows, strict=True)) or [(), ()]
    table = pa.table({"a": pa.array(columns[0], pa.int64()), "b": pa.array(columns[1], pa.string())})
    assert ascending(table, ["a", "b"]).tolist() == [x < y for x, y in itertools.pairwise(rows)]
    assert ascending(table, ["a"]).tolist() == [x[0] < y[0] for x, y in itertools.pairwise(rows)]
