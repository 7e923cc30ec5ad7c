"""Conditions of many terms are made flat: the same truth for each row, and a cost that grows with the terms alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.errors import InvalidRequest
from filestore.files.bounds import Bounds
from filestore.model.schema import Schema
from filestore.reading.condition_text import plain_text
from filestore.reading.normal_form import flat
from filestore.reading.predicate import Condition
from filestore.reading.pruning import may_hold
from filestore.rows.frames import frame_of, polars_schema
from tests.filestore.arrays import KEY_TYPES, key_values
from tests.tables import define

TYPES = (*KEY_TYPES, pa.float32(), pa.float64())
SCHEMA = Schema.from_arrow(pa.schema([(f"c{n}", kind) for n, kind in enumerate(TYPES)]))
POLARS_SCHEMA = pl.Schema(polars_schema(SCHEMA.to_arrow()))
NUMBERS = [n for n, kind in enumerate(TYPES) if pa.types.is_integer(kind) or pa.types.is_floating(kind)]
FLOATS = st.sampled_from([0.0, -0.0, 0.1, 1.0, float("nan"), float("inf")])
BY_ID = define("id BIGINT, s STRING, v INT", ["id"], bucket=4)


def near(kind: pa.DataType) -> st.SearchStrategy[Any]:
    return FLOATS if pa.types.is_floating(kind) else key_values(kind, few=True)


@st.composite
def terms(draw: st.DrawFn) -> pl.Expr:
    number = draw(st.integers(0, len(TYPES) - 1))
    kind, column = TYPES[number], pl.col(f"c{number}")
    value = draw(near(kind))
    literals = [pl.lit(value), pl.lit(None, frame_of(pa.table({"x": pa.array([], kind)})).schema["x"])]
    if number in NUMBERS:
        literals += [pl.lit(draw(st.sampled_from([0, 1, -2, 300, 2**40, 0.1, 1.0])))]
    literal = draw(st.sampled_from(literals))
    ways: list[Callable[[], pl.Expr]] = [
        lambda: column == literal,
        lambda: literal == column,
        lambda: column != literal,
        lambda: column.eq_missing(literal),
        lambda: column.is_in([value]),
        column.is_null,
        lambda: column >= literal,
    ]
    return draw(st.sampled_from([*ways[:2], *ways]))()


def joined(parts: st.SearchStrategy[pl.Expr]) -> st.SearchStrategy[pl.Expr]:
    lists = st.lists(parts, min_size=1, max_size=6)
    left = st.sampled_from([pl.Expr.__or__, pl.Expr.__and__, pl.Expr.__xor__])
    return st.one_of(
        st.builds(reduce, left, lists),
        st.builds(lambda join, some: reduce(lambda a, b: join(b, a), some), left, lists),
        parts.map(pl.Expr.__invert__),
    )


@st.composite
def rows(draw: st.DrawFn) -> pl.DataFrame:
    height = draw(st.integers(0, 6))
    columns = {
        f"c{n}": pa.array(draw(st.lists(st.none() | near(kind), min_size=height, max_size=height)), kind)
        for n, kind in enumerate(TYPES)
    }
    return frame_of(pa.table(columns))


@given(st.recursive(terms(), joined, max_leaves=12), rows())
def test_a_flat_condition_has_the_same_truth_for_each_row(condition: pl.Expr, given_rows: pl.DataFrame) -> None:
    try:
        wanted = given_rows.select(truth=condition)
    except pl.exceptions.PolarsError:
        return
    assert given_rows.select(truth=flat(condition, POLARS_SCHEMA)).equals(wanted)


TEXTS = st.sampled_from(
    [
        *("a = 1", "b < 2", "a BETWEEN 1 AND 2", "NOT a = 2", "b IN (1, 3)", "s = ' OR '", '"and" = 1', "s LIKE 'a%'"),
        *("a IS NULL", "-a = -1", "CASE WHEN a = 1 OR b = 2 THEN true ELSE false END"),
    ]
)
WORDS = pl.DataFrame(
    {"a": [1, 2, None, 3], "b": [2, None, 1, 3], "s": [" OR ", "a", None, "b"], "and": [1, None, 0, 2]}
)


def sentences(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    chain = st.lists(st.tuples(parts, st.sampled_from([" OR ", " and ", "\nAND\t"])), min_size=1, max_size=20)
    return st.one_of(
        chain.map(lambda pairs: "".join(part + join for part, join in pairs)[: -len(pairs[-1][1])]),
        parts.map(lambda part: f"NOT ({part})"),
        parts.map(lambda part: f"coalesce({part}, false)"),
        chain.map(lambda pairs: "CAST(" + "".join(p + j for p, j in pairs)[: -len(pairs[-1][1])] + " AS BOOLEAN)"),
    )


@given(st.recursive(TEXTS, sentences, max_leaves=60))
def test_parentheses_do_not_change_what_a_text_says(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("filestore.reading.condition_shape._FEW", 3)
        shaped = plain_text(text)
    assert WORDS.select(truth=pl.sql_expr(shaped)).equals(WORDS.select(truth=pl.sql_expr(text)))


LONG = {
    "one column": lambda n: f"id = {n}",
    "two columns": lambda n: f"id = {n} AND v = {n}",
    "texts": lambda n: f"s = '{n}'",
    "spans": lambda n: f"(id BETWEEN {n} AND {n})",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [next(iter(LONG)), *(pytest.param(k, marks=pytest.mark.deep) for k in list(LONG)[1:])])
def test_thousands_of_terms_do_not_end_the_process(kind: str) -> None:
    condition = Condition.of(" OR ".join(map(LONG[kind], range(7000))), BY_ID.schema)
    kinds = {"id": pl.Int64, "s": pl.String, "v": pl.Int32}
    frame = pl.DataFrame({"id": [3, 8000, None], "s": ["3", "x", None], "v": [3, 3, 3]}, kinds)
    assert condition.wanted(frame.select(condition.columns)).to_list() == [True, False, False]


@pytest.mark.parametrize("text", ["id" + " + id" * 5000 + " > 0", "s = 'a'" + " || 'a'" * 5000])
def test_what_cannot_be_flat_is_refused_before_it_ends_the_process(text: str) -> None:
    with pytest.raises(InvalidRequest, match="nested too deeply") as refused:
        Condition.of(text, BY_ID.schema)
    assert refused.value.code == "bad-predicate"


@pytest.mark.parametrize(
    ("text", "lists"),
    [
        (" OR ".join(f"{n} = id" for n in range(9)), 1),
        (" OR ".join(f"id = {n} OR v = 3 OR v = {n}" for n in range(9)), 2),
        (" AND ".join(f"id <> {n}" for n in range(9)), 1),
        ("NOT (s = 'a' OR s = 'b') AND v < 3", 1),
    ],
)
def test_terms_of_one_column_are_one_list(text: str, lists: int) -> None:
    assert str(Condition.of(text, BY_ID.schema).expression).count("is_in") == lists


@given(st.data())
def test_many_values_prune_no_file_that_has_one(data: st.DataObject) -> None:
    kind, name = data.draw(st.sampled_from(KEY_TYPES)), "c"  # floats have no bounds
    values = data.draw(st.lists(near(kind), min_size=3, max_size=8))
    files = data.draw(st.lists(st.lists(st.none() | near(kind), min_size=1, max_size=3), min_size=1, max_size=4))
    frames = [frame_of(pa.table({name: pa.array(file, kind)})) for file in files]
    bounds = Bounds(
        rows=pl.Series([frame.height for frame in frames]),
        low=pl.concat([frame.select(pl.all().min()) for frame in frames]),
        high=pl.concat([frame.select(pl.all().max()) for frame in frames]),
        nulls=pl.concat([frame.select(pl.all().null_count()) for frame in frames]),
        exact=frozenset(),
    )
    condition = pl.col(name).is_in(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("filestore.reading.pruning._MAX_LISTED", 1)
        possible = may_hold(condition, bounds)
    has = [bool(frame.filter(condition).height) for frame in frames]
    assert not [n for n, (found, wanted) in enumerate(zip(possible, has, strict=True)) if wanted and not found]
