"""`KeyIndex` and `Matches`: rows with equal keys, as SQL compares them, whatever the types."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tablestore.lookup import matching
from tablestore.lookup.matching import KeyIndex, Matches
from tablestore.lookup.timeline import BEFORE, Timeline

FLOATS = st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf, None])
TEXTS = st.sampled_from(["", "a", "b", "é", None])
NUMBERS = st.none() | st.integers(-2, 2)


def pairs(found: Matches) -> list[tuple[int, int]]:
    numbers = found.rows["n"].gather(found.places).to_list()
    return sorted(zip(found.probes.tolist(), numbers, strict=True), key=lambda pair: pair[0])


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


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5))), max_size=4), st.integers(0, 5))
def test_parts_are_joined_and_rows_left_out(parts: list[list[tuple[int, int]]], gone: int) -> None:
    rows = pl.DataFrame({"n": range(6)})

    def matches(part: list[tuple[int, int]]) -> Matches:
        probes, places = np.array(part, dtype=np.int64).reshape(-1, 2).T
        return Matches(rows, probes, places)

    found = Matches.joined([matches(part).only_matched() for part in parts], rows.clear())
    every = sorted((pair for part in parts for pair in part), key=lambda pair: pair[0])
    assert pairs(found) == every
    assert found.rows.height == len(every)
    left = found.without(pl.DataFrame({"n": [gone, 77]}))
    assert pairs(left) == [pair for pair in every if pair[1] != gone]


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
