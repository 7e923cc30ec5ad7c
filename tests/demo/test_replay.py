"""The demo's own checks can fail: a lost, doubled or wrong change is noticed."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tablestore.demo.replay import fingerprint, out_of_turn, replayed

SCHEMA = {"key": pl.Int32, "value": pl.Int32, "_kind": pl.String}

Change = tuple[int, int, str]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Change], dict[int, int]]:
    """Changes as a table with one writer logs them, and the rows they lead to."""
    rows: dict[int, int] = {}
    changes = []
    for number, (key, deletes) in enumerate(draw(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1))):
        if deletes and key not in rows:
            continue
        changes.append((key, number, "-D" if deletes else "+U" if key in rows else "+I"))
        if deletes:
            del rows[key]
        else:
            rows[key] = number
    return changes, rows


def frame(changes: Sequence[Change]) -> pl.DataFrame:
    return pl.DataFrame(changes, SCHEMA, orient="row")


@given(histories())
def test_changes_lead_to_the_rows(history: tuple[list[Change], dict[int, int]]) -> None:
    changes, rows = history
    assert dict(replayed(frame(changes), ["key"]).rows()) == rows
    assert out_of_turn(frame(changes), ["key"]) == 0


@given(histories(), st.data())
def test_a_doubled_appearance_or_deletion_is_noticed(
    history: tuple[list[Change], dict[int, int]], data: st.DataObject
) -> None:
    changes = history[0]
    candidates = [i for i, change in enumerate(changes) if change[2] != "+U"]
    if candidates:
        at = data.draw(st.sampled_from(candidates))
        assert out_of_turn(frame([*changes[: at + 1], *changes[at:]]), ["key"]) > 0


def test_a_lost_appearance_and_a_lost_deletion_are_noticed() -> None:
    whole = [(1, 0, "+I"), (1, 1, "-D"), (1, 2, "+I")]
    assert out_of_turn(frame(whole), ["key"]) == 0
    assert out_of_turn(frame(whole[1:]), ["key"]) == 1
    assert out_of_turn(frame([whole[0], whole[2]]), ["key"]) == 1


def test_a_fingerprint_is_of_the_rows_alone() -> None:
    rows = pl.DataFrame({"a": [1, 2, None], "b": ["x", None, "z"]})
    same = pl.concat([rows[2:], rows[:2]]).with_columns(pl.col("a").cast(pl.Int16)).select("b", "a")
    assert fingerprint(rows) == fingerprint(same)
    for other in (
        rows.with_columns(a=pl.col("a").fill_null(0)),
        rows.with_columns(b=pl.col("b").reverse()),
        pl.concat([rows, rows[:1]]),
        rows[:2],
    ):
        assert fingerprint(rows) != fingerprint(other)
