"""Rows found by a condition are those of a scan that is filtered, from Parquet as from the look-up cache."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.cache.columns import LookupCache
from filestore.files.writer import TableFiles
from filestore.lookup.search import search
from filestore.model.files import DataFile
from tests.folders import memory_folder
from tests.model.model import tiny_row_groups
from tests.tables import create, define, in_order, read, write

ROWS = st.lists(
    st.fixed_dictionaries(
        {"id": st.integers(0, 30), "p": st.sampled_from(["a", "b"]), "n": st.none() | st.integers(0, 5)},
        optional={"_kind": st.sampled_from(["+I", "-D"])},
    ),
    max_size=40,
)
COLUMNS = "id BIGINT, p STRING, n INT, v STRING"


def searched(table: TableFiles, files: list[DataFile], condition: pl.Expr, most: int = 7) -> list[dict[str, Any]]:
    pieces = list(search(table, files, condition, ["v", "p", "id", "n"], most))
    assert all(0 < piece.height <= most for piece in pieces)
    return in_order(row for piece in pieces for row in piece.to_dicts())


@pytest.mark.slow
@given(st.lists(ROWS, min_size=1, max_size=3), st.sets(st.integers(0, 6)), st.booleans(), st.integers(1, 9))
def test_a_search_is_a_filtered_scan(
    batches: list[list[dict[str, Any]]], wanted: set[int], by_partition: bool, group: int
) -> None:
    condition = pl.col("n").is_in(pl.Series(sorted(wanted), dtype=pl.Int32).implode())
    if by_partition:
        condition |= pl.col("p") == "a"
    with tiny_row_groups(), memory_folder() as folder:
        options: dict[str, object] = {"row__group_rows": group, "lookup_cache-max-memory-size": "1 b"}
        store = create(folder / "t", define(COLUMNS, ["id", "p"], ["p"], bucket=2, **options))
        for batch in batches:
            write(store, [row | {"v": f"v{row['id']}"} for row in batch])
        state = store.state()
        table, files = store.table_files(state), list(state.files)
        expected = [row for row in read(store) if row["n"] in wanted or (by_partition and row["p"] == "a")]
        for _ in range(4):  # read, counted, cached, and from the cache
            assert searched(table, files, condition) == expected
        if files:
            assert isinstance(table.cache, LookupCache)
            assert table.cache.disk_bytes > 0


def test_a_search_for_a_partition_reads_no_column_of_files() -> None:
    with memory_folder() as folder:
        store = create(folder / "t", define(COLUMNS, ["id", "p"], ["p"]))
        write(store, [{"id": n, "p": "ab"[n % 2], "n": n, "v": "x"} for n in range(10)])
        state = store.state()
        found = searched(store.table_files(state), list(state.files), pl.col("p") == "b")
        assert [row["id"] for row in found] == [1, 3, 5, 7, 9]


@pytest.mark.parametrize("most", [1, 3, 100])
def test_a_search_yields_pieces_of_the_given_size(most: int) -> None:
    with memory_folder() as folder:
        store = create(folder / "t", define(COLUMNS, ["id", "p"], ["p"]))
        write(store, [{"id": n, "p": "a", "n": 1, "v": "x"} for n in range(10)])
        state = store.state()
        assert len(searched(store.table_files(state), list(state.files), pl.col("n") == 1, most)) == 10
