"""Rows with odd types, years, nulls and sizes."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filestore.errors import InvalidRequest
from filestore.files.writer import DataWriter
from filestore.model.files import Slot
from filestore.model.types import TIMESTAMP
from filestore.sorting.order import sort_rows
from tests.tables import assert_healthy, create, define, paths, read, read_deltalake, read_polars, to_arrow, write


def test_keys_of_another_integer_type_are_refused(folder: Path) -> None:
    """INT and BIGINT have different hashes: the same number was written to two buckets, and the key was doubled."""
    store = create(folder / "t", define("id BIGINT", ["id"], bucket=4))
    write(store, pa.table({"id": pa.array(range(50), pa.int64())}))
    with pytest.raises(InvalidRequest, match="is int64 and the rows have int32") as caught:
        write(store, pa.table({"id": pa.array(range(50), pa.int32())}))
    assert caught.value.code == "bad-type"


@pytest.mark.parametrize(
    "values",
    [pa.array([2**62], TIMESTAMP), pa.array([-(2**62)], pa.timestamp("us")), pa.array([2**30], pa.date32())],
)
@pytest.mark.parametrize("key", [True, False])
def test_years_beyond_9999_are_refused(folder: Path, values: pa.Array, key: bool) -> None:
    """They failed with an OverflowError after files had been written."""
    kind = {"timestamp[us, tz=UTC]": "TIMESTAMP", "timestamp[us]": "TIMESTAMP_NTZ"}.get(str(values.type), "DATE")
    store = create(folder / "t", define(f"id BIGINT, t {kind}", ["t"] if key else ["id"]))
    with pytest.raises(InvalidRequest, match="years 1 to 9999"):
        write(store, pa.table({"id": [1], "t": values}))
    assert not list((folder / "t").rglob("*.parquet"))


def test_a_struct_column_has_no_null_count(folder: Path) -> None:
    """The statistics had a number where readers expect an object of the struct's fields."""
    store = create(folder / "t", define("id BIGINT, s STRUCT<a: INT>", ["id"]))
    write(store, [{"id": 1, "s": None}, {"id": 2, "s": {"a": 1}}])
    (file,) = store.state().files
    assert json.loads(file.stats)["nullCount"] == {"id": 0}
    assert read_polars(store.location) == read_deltalake(store.location) == read(store)


def test_the_upper_bound_of_a_text_of_last_characters_is_true(folder: Path) -> None:
    """The bound, 64 characters and U+10FFFF, was below a text with more of that character."""
    store = create(folder / "t", define("id BIGINT, s STRING", ["id"]))
    write(store, [{"id": 1, "s": "\U0010ffff" * 70}])
    assert_healthy(store)


def test_one_large_table_becomes_row_groups_of_the_size_that_was_asked_for(folder: Path) -> None:
    """A table of one chunk became one row group of any size: look-ups would have read all of it at once."""

    store = create(folder / "t", define("id BIGINT", ["id"], row__group_rows=1024))
    write(store, pa.table({"id": range(10_000)}))
    (path,) = paths(store.state())
    footer = pq.read_metadata(Path(store.location) / path)
    assert max(footer.row_group(n).num_rows for n in range(footer.num_row_groups)) <= 2048


@pytest.mark.filterwarnings("error")
def test_a_failed_write_closes_its_files_quietly(folder: Path) -> None:
    """pyarrow's writer stayed open on a closed file, and warned when it was collected."""
    store = create(folder / "t", define("id BIGINT, v INT NOT NULL", ["id"], row__group_rows=1024))
    rows = [{"id": n, "v": 1, "_kind": "-D" if n < 1500 else "+I"} for n in range(3000)] + [{"id": 9999, "v": None}]
    with pytest.raises(InvalidRequest):
        write(store, rows)
    gc.collect()
    assert not list((folder / "t").rglob("*.parquet"))


def test_more_text_than_an_arrow_array_holds_can_be_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table with more than 2 GB of text in a column failed: "offset overflow while concatenating arrays"."""
    definition = define("id BIGINT, s STRING, b BINARY, l ARRAY<STRING>", ["id"], bucket=2)
    rows = [{"id": n, "s": f"s{n}", "b": b"b", "l": ["x"]} for n in range(50, 0, -1)]
    table = pa.concat_tables([to_arrow(definition, rows[:20]), to_arrow(definition, rows[20:])])
    expected = sort_rows(table, definition)
    monkeypatch.setattr("filestore.sorting.order._MAX_TEXT_BYTES", 10)
    monkeypatch.setattr("filestore.sorting.order._SLICE_ROWS", 7)
    found = sort_rows(table, definition)
    assert found.schema == expected.schema
    assert found.equals(expected)


@pytest.mark.parametrize("ids", [[2, 1], [1, 1]])
def test_rows_in_another_order_than_the_formats_are_refused(folder: Path, ids: list[int]) -> None:
    """A sort by another collation would have made files in which look-ups miss keys."""
    store = create(folder / "t", define("id BIGINT", ["id"]))
    table = store.table_files(store.state())
    with pytest.raises(InvalidRequest) as caught, DataWriter(table, Slot((), 0)) as writer:
        writer.write(pa.table({"id": ids}))
    assert caught.value.code == "unsorted-rows"
