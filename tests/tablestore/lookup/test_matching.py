"""`KeyIndex`: rows with equal keys, as SQL compares them, whatever the types."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestore.lookup import matching
from tablestore.lookup.matching import KeyIndex, Matches, in_order_of_probes
from tablestore.lookup.timeline import BEFORE, Timeline

FLOATS = st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf, None])
TEXTS = st.sampled_from(["", "a", "b", "é", None])
NUMBERS = st.none() | st.integers(-2, 2)


def pairs(found: Matches) -> list[tuple[int, int]]:
    return list(zip(found.probes.tolist(), found.rows["n"].to_list(), strict=True))


def equal(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return all(
        a is not None and b is not None and (a == b or (a != a and b != b)) for a, b in zip(one, other, strict=True)
    )


def frame(keys: list[tuple[Any, ...]]) -> pl.DataFrame:
    schema = {"f": pl.Float64, "t": pl.String, "i": pl.Int64}
    return pl.DataFrame(keys, schema=schema, orient="row")


KEYS = st.lists(st.tuples(FLOATS, TEXTS, NUMBERS), max_size=12)


@given(stored=KEYS, asked=KEYS, on=st.sampled_from([("f",), ("t",), ("i",), ("f", "t"), ("t", "i", "f")]))
def test_matches_are_those_of_sql(
    stored: list[tuple[Any, ...]], asked: list[tuple[Any, ...]], on: tuple[str, ...]
) -> None:
    rows, probes = frame(stored), frame(asked)
    found = KeyIndex(rows.with_row_index("n"), on).matches([probes[name] for name in on])
    left, right = probes.select(on).rows(), rows.select(on).rows()
    wanted = [(p, n) for p, one in enumerate(left) for n, other in enumerate(right) if equal(one, other)]
    assert pairs(found) == wanted


def test_keys_of_one_hash_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_hashes", lambda columns: pl.Series(np.zeros(len(columns[0]), np.uint64)))
    index = KeyIndex(pl.DataFrame({"k": [3, 1, 2, 1], "n": range(4)}), ["k"])
    assert pairs(index.matches([pl.Series([1, 5, 3])])) == [(0, 1), (0, 3), (2, 0)]


def test_nulls_are_no_candidates() -> None:
    """Each null of the rows was paired with each one of the table, which took the memory of all pairs."""
    nothing = pl.Series("k", [None] * 3, dtype=pl.Int64)
    index = KeyIndex(pl.DataFrame([nothing, pl.Series("n", range(3))]), ["k"])
    probes, places = index._candidates(matching._hashes([nothing]).to_numpy())
    assert (len(probes), len(places)) == (0, 0)


@given(st.lists(st.lists(st.integers(0, 50), unique=True), max_size=4))
def test_parts_are_in_order_of_the_rows(parts: list[list[int]]) -> None:
    made = [
        Matches(np.array(sorted(p), dtype=np.int64), pl.DataFrame({"n": sorted(p)}, {"n": pl.Int64})) for p in parts
    ]
    found = in_order_of_probes(made, pl.DataFrame(schema={"n": pl.Int64}))
    assert found.probes.tolist() == sorted(n for p in parts for n in p) == found.rows["n"].to_list()


@given(
    times=st.lists(st.integers(0, 20), unique=True, min_size=1).map(sorted),
    asked=st.lists(st.integers(-2, 25)),
    first=st.integers(0, 5),
)
def test_a_time_means_the_newest_version_at_or_before_it(times: list[int], asked: list[int], first: int) -> None:
    versions = np.arange(first, first + len(times))
    found = Timeline(versions, np.array(times), from_first=first == 0).versions_at(np.array(asked, dtype=np.int64))
    wanted = [
        max((v for v, t in zip(versions.tolist(), times, strict=True) if t <= moment), default=BEFORE)
        for moment in asked
    ]
    assert found.tolist() == wanted
