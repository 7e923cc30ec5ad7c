"""Found while reviewing users' rows: values that were silently dropped or changed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from filestore.errors import InvalidRequest
from filestore.model.definition import TableDefinition
from filestore.model.schema import Schema
from tablestore.incoming.conform import conform
from tablestore.incoming.files.row_file import RowFile
from tablestore.incoming.given import arrow_rows
from tests.tables import define

ORDERS = define("id BIGINT, name STRING", ["id"])


def refused(rows: Any, definition: Any = ORDERS) -> str:
    with pytest.raises(InvalidRequest) as caught:
        conform(rows, definition)
    return caught.value.code


def test_rows_are_taken_while_another_thread_imports_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", ModuleType("pandas"))  # as far as the import has come
    assert arrow_rows([{"id": 1, "name": "a"}], ORDERS.schema.to_arrow()).num_rows == 1


def test_two_columns_of_one_name_are_refused() -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    assert refused(twice) == "duplicate-column"


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (pa.list_(pa.field("element", pa.int64(), nullable=False)), [1], [None]),
        (pa.struct([pa.field("x", pa.int64(), nullable=False)]), {"x": 1}, {"x": None}),
        (pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)), [("a", 1)], [("a", None)]),
        (pa.list_(pa.struct([pa.field("x", pa.int64(), nullable=False)])), [{"x": 1}], [{"x": None}]),
    ],
    ids=["array", "struct", "map", "array-of-structs"],
)
def test_inner_values_that_are_not_null_are_checked(kind: pa.DataType, good: Any, bad: Any) -> None:
    schema = Schema.from_arrow(pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", kind)]))
    definition = TableDefinition.of(schema, ["id"])
    loose = pa.map_(pa.string(), pa.int64()) if pa.types.is_map(kind) else None

    def given(*values: Any) -> pa.Table:
        return pa.table({"id": range(len(values)), "v": pa.array(values, loose)})

    conform(given(good, None, good), definition)
    assert refused(given(good, None, bad), definition) in ("null-value", "bad-value")
    conform(given(bad, good, None).slice(1), definition)


@pytest.mark.parametrize("item", [pa.int32(), pa.int64()])
def test_a_map_whose_entries_begin_within_an_array_has_its_own_keys(item: pa.DataType) -> None:
    """Another program may pass such an array; its maps got the entries before their own where a cast was needed."""
    kind = pa.map_(pa.string(), item)
    whole = pa.array([[("w", 0)], [("x", 1), ("y", 2)], [("z", 3)]], kind)
    offsets = pa.array([0, 2, 3], pa.int32()).buffers()[1]
    part = pa.Array.from_buffers(kind, 2, [None, offsets], children=[whole.values.slice(1)])
    definition = define("id BIGINT, m MAP<STRING, INT>", ["id"])
    found = conform(pa.table({"id": [1, 2], "m": part}), definition).select(["m"])
    assert pl.from_arrow(found).to_dicts() == [{"m": {"x": 1, "y": 2}}, {"m": {"z": 3}}]


def test_a_field_of_a_struct_that_the_table_lacks_is_not_dropped() -> None:
    nested = define("id BIGINT, places ARRAY<STRUCT<x: INT>>, kv MAP<STRING, STRUCT<x: INT>>", ["id"])
    assert refused(pa.table({"id": [1], "places": [[{"x": 1, "z": 2}]]}), nested) == "unknown-column"
    kind = pa.map_(pa.string(), pa.struct({"x": pa.int32(), "z": pa.int32()}))
    values = pa.array([[("k", {"x": 1, "z": 2})]], kind)
    assert refused(pa.table({"id": [1], "kv": values}), nested) == "unknown-column"


def test_a_value_in_json_that_is_spelled_like_a_column_makes_no_column(tmp_path: Path) -> None:
    """Rows such as `{"id": 1, "name": "_kind"}` had a column of kinds, all of them null."""
    file = tmp_path / "rows.json"
    file.write_text('{"id": 1, "name": "_kind"}\n')
    rows = RowFile.of(file).rows(ORDERS.schema.to_arrow())
    assert conform(pa.Table.from_batches(rows.to_batches(), rows.schema), ORDERS).to_pylist() == [
        {"id": 1, "name": "_kind"}
    ]
