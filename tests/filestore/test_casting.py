"""Casts of nested columns, among them nulls whose type has NOT NULL fields."""

from __future__ import annotations

import random
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.errors import InvalidRequest
from filestore.rows.casting import cast_column, cast_rows
from filestore.rows.fitting import fitted
from filestore.rows.frames import arrow_table, frame_of
from tests.filestore.arrays import data_types, stored, values

POINT = pa.struct([pa.field("a", pa.int32(), nullable=False)])
NESTED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "struct": (POINT, [None, {"a": 1}, None]),
    "struct in struct": (pa.struct([pa.field("p", POINT)]), [None, {"p": None}, {"p": {"a": 1}}]),
    "required struct": (pa.struct([pa.field("p", POINT, nullable=False)]), [None, {"p": {"a": 1}}]),
    "list": (pa.list_(pa.field("element", POINT)), [None, [], [None], [{"a": 1}, None]]),
    "map": (pa.map_(pa.string(), pa.field("value", POINT)), [None, [], [("k", None)], [("k", {"a": 1}), ("l", None)]]),
}


@pytest.mark.parametrize(("kind", "column"), NESTED.values(), ids=NESTED)
def test_a_null_struct_with_a_field_that_is_not_null_is_cast_to_its_own_type(kind: pa.DataType, column: Any) -> None:
    """Arrow's own cast fails: "field 'a' of type int32 has nulls. Can't cast to non-nullable field"."""
    array = stored(column, kind)
    schema = pa.schema([pa.field("s", kind)])
    rows = pa.table([array], schema=schema)
    assert cast_rows(rows, schema).equals(fitted(rows, schema))
    assert cast_rows(rows, schema).column("s").to_pylist() == array.to_pylist()
    assert cast_rows(rows.slice(1), schema).column("s").to_pylist() == array.to_pylist()[1:]


@given(st.data(), data_types())
def test_a_cast_keeps_values_of_any_type(data: st.DataObject, kind: pa.DataType) -> None:
    array = stored(data.draw(st.lists(values(kind), max_size=8)), kind)
    first = data.draw(st.integers(0, len(array)))
    part = array.slice(first)
    for found in (cast_column(part, kind), cast_column(pa.chunked_array([part, array]), kind).chunk(0)):
        found.validate(full=True)
        assert str(found.type) == str(kind)
        assert repr(found.to_pylist()) == repr(array.to_pylist()[first:])  # NaN is not equal to itself


@given(st.data(), data_types())
def test_a_part_of_a_frame_becomes_a_table_again(data: st.DataObject, kind: pa.DataType) -> None:
    """It failed for lists and maps of a STRUCT with a NOT NULL field: the part's offset was counted twice."""
    array = stored(data.draw(st.lists(values(kind), max_size=8)), kind)
    schema = pa.schema([("v", kind)])
    first = data.draw(st.integers(0, len(array)))
    found = arrow_table(frame_of(pa.table([array], schema=schema)).slice(first), schema)
    found.validate(full=True)
    assert repr(found.column("v").to_pylist()) == repr(array.to_pylist()[first:])


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.map_(pa.string(), pa.int32())], ids=str)
def test_rows_that_are_taken_from_several_chunks(kind: pa.DataType) -> None:
    """Arrow refused lists and maps of texts that polars had joined or sorted, if some parts of the rows had none."""
    schema = pa.schema([("n", pa.int64()), ("values", kind)])
    choices = [None, [], ["x", None]] if pa.types.is_list(kind) else [None, [], [("x", 1), ("y", None)]]
    dice = random.Random(3)
    for _ in range(200):
        sizes = [dice.randrange(1, 4) for _ in range(3)]
        rows = pa.table([range(sum(sizes)), pa.array(dice.choices(choices, k=sum(sizes)), kind)], schema=schema)
        ends = [sum(sizes[: number + 1]) for number in range(3)]
        parts = [frame_of(rows.slice(end - size, size)) for end, size in zip(ends, sizes, strict=True)]
        parts = [part.slice(dice.randrange(part.height)) for part in parts]
        frame = pl.concat(parts, rechunk=False)
        found = arrow_table(frame[frame["n"].arg_sort(descending=True)], schema)
        assert found.equals(rows.take(found.column("n")))


def test_a_null_in_a_column_that_is_not_null_is_refused() -> None:
    schema = pa.schema([pa.field("s", POINT, nullable=False)])
    with pytest.raises(pa.ArrowInvalid, match="column 's' is NOT NULL and has 1 nulls"):
        cast_rows(pa.table({"s": stored([None, {"a": 1}], POINT)}), schema)


@pytest.mark.parametrize(
    ("kind", "column", "name"),
    [
        (POINT, [{"a": 1}, {"a": None}], "a"),
        (pa.list_(pa.field("element", POINT)), [None, [{"a": None}]], "a"),
        (pa.list_(pa.field("element", pa.int32(), nullable=False)), [None, [None]], "element"),
        (pa.map_(pa.string(), pa.field("value", POINT)), [None, [("k", {"a": None})]], "a"),
        (pa.struct([pa.field("p", POINT, nullable=False)]), [None, {"p": None}], "p"),
    ],
    ids=str,
)
def test_a_field_that_is_not_null_is_checked_below_values_that_are_not_null(
    kind: pa.DataType, column: list[Any], name: str
) -> None:
    schema = pa.schema([pa.field("s", kind)])
    with pytest.raises(InvalidRequest, match=f"field '{name}' is NOT NULL and has 1 nulls") as caught:
        fitted(pa.table({"s": pa.array(column, kind)}), schema)
    assert caught.value.code == "bad-value"
