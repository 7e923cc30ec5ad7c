"""The queries that compare a result with stored rows, in DuckDB, against the same comparison in Python."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tablestore.views.engines.local_comparison import counted_by_key, differing

SCHEMA = pa.schema([("k", pa.int64()), ("d", pa.float64()), ("s", pa.string())])
KINDS = pa.schema([*SCHEMA, ("_kind", pa.string())])
DOUBLES = st.sampled_from([0.0, -0.0, math.nan, math.inf, None, 1.5, 1.5 + 3e-10])
ROWS = st.lists(st.tuples(st.integers(0, 3), DOUBLES, st.sampled_from(["", "a", None])), max_size=6)
STORED = ROWS.map(lambda rows: list({row[0]: row for row in rows}.values()))

Values = Sequence[tuple[Any, ...]]


def _queried(text: str, result: Values, stored: Values) -> list[tuple[Any, ...]]:
    with duckdb.connect() as database:
        for name, rows in (("result", result), ("stored", stored)):
            columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
            database.register(f"_{name}", pa.table(columns, schema=SCHEMA))
            database.execute(f"CREATE TABLE {name} AS FROM _{name}")
        return database.execute(text).fetchall()


def _bits(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(struct.pack("d", value) if isinstance(value, float) else value for value in row)


@given(STORED, STORED)
@example([(1, -0.0, "a")], [(1, 0.0, "a")])
@example([(1, math.nan, None)], [(1, math.nan, None), (2, 1.5, "")])
def test_differences_make_the_result_of_the_stored_rows(result: Values, stored: Values) -> None:
    """A row that is stored as it is may be among them only if a number in it is zero."""
    found = _queried(differing("result", "stored", SCHEMA, ["k"], listed=True), result, stored)
    rows = {row[0]: _bits(row) for row in stored}
    for *values, kind in found:
        row = tuple(values)
        if kind == "-D":
            del rows[row[0]]
        else:
            assert rows.get(row[0]) != _bits(row) or row[1] == 0.0
            rows[row[0]] = _bits(row)
    assert rows == {row[0]: _bits(row) for row in result}


def test_keys_that_are_null_are_not_deleted() -> None:
    text = differing("result", "stored", SCHEMA, ["k"], listed=False)
    assert _queried(text, [], [(None, None, None), (1, None, None)]) == [(1, None, None, "-D")]


@given(ROWS, STORED)
@example([(1, 1.5, "a"), (1, 1.5, "a")], [(1, 1.5, "a")])
def test_counts(result: Values, stored: Values) -> None:
    """Each row of the result is alone with its key, and stored with the same values."""
    [(different, results, kept)] = _queried(
        counted_by_key("result", "stored", SCHEMA, ["k"], exact=True), result, stored
    )
    assert (results, kept) == (len(result), len(stored))
    alike = Counter(row[0] for row in result)
    rows = {row[0]: _comparable(row) for row in stored}
    right = all(alike[row[0]] == 1 and rows.get(row[0]) == _comparable(row) for row in result)
    assert (different == 0) == (right and set(rows) == set(alike))


def _comparable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple("nan" if isinstance(value, float) and math.isnan(value) else value for value in row)


@pytest.mark.parametrize(("exact", "different"), [(True, 1), (False, 0)])
def test_sums_may_differ_in_their_last_digits(exact: bool, different: int) -> None:
    text = counted_by_key("result", "stored", SCHEMA, ["k"], exact=exact)
    assert _queried(text, [(1, 1.5, "a")], [(1, 1.5 + 3e-10, "a")]) == [(different, 1, 1)]
