"""Fingerprints of streams of rows: equal for the same rows in any order and in any pieces, and else different."""

from __future__ import annotations

import random

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tablestore.views.events.fingerprint import Fingerprint

ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, 0, 1]),
        st.sampled_from([None, "", "a"]),
        st.sampled_from([None, [], [None], [1]]),
        st.sampled_from([None, 0.0, -0.0, 1.5]),
    ),
    max_size=6,
)
SCHEMA = {"n": pl.Int64, "t": pl.String, "l": pl.List(pl.Int64), "f": pl.Float64}


def frame(rows: list[tuple[object, ...]]) -> pl.DataFrame:
    return pl.DataFrame(rows, SCHEMA, orient="row")


def counted(rows: list[tuple[object, ...]]) -> list[str]:
    return sorted(map(repr, rows))


@given(ROWS, st.integers(0, 6), st.randoms(use_true_random=False))
def test_order_and_pieces_do_not_count(rows: list[tuple[object, ...]], cut: int, dice: random.Random) -> None:
    mixed = dice.sample(rows, len(rows))
    assert Fingerprint.of([frame(rows)]) == Fingerprint.of([frame(mixed[:cut]), frame(mixed[cut:])])


@given(ROWS, ROWS)
def test_rows_count_as_often_as_they_occur(one: list[tuple[object, ...]], other: list[tuple[object, ...]]) -> None:
    same = Fingerprint.of([frame(one)]) == Fingerprint.of([frame(other)])
    assert same == (counted(one) == counted(other))


def test_no_row_and_no_column() -> None:
    assert Fingerprint.of([]) == Fingerprint.of([frame([])]) == Fingerprint(0, (0, 0))
