"""Rows of large column chunks are read by page: they are those of the whole chunk, whoever wrote the file."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from filestore.errors import Corrupt, NotFound
from filestore.files import page_rows, writer
from filestore.files.row_groups import RowGroups
from filestore.files.rows_at import RowsAt
from filestore.model.changes import AddColumn, Change, RenameColumn, WidenColumn
from filestore.model.evolution import evolve
from filestore.parquet import checksums
from filestore.parquet.pages import PageIndex, Pages
from filestore.storage.local import LocalFile
from filestore.table import FileStore
from tests.depth import Depth
from tests.tables import create, define, write

ROWS = 600
GROUP = 250
RNG = np.random.default_rng(3)
NUMBERS = RNG.integers(-(1 << 50), 1 << 50, ROWS)


def maybe(values: list[object], kind: pa.DataType) -> pa.Array:
    """The values, of which every fifth is null."""
    return pa.array([None if n % 5 == 0 else value for n, value in enumerate(values)], kind)


COLUMNS = {
    "text": maybe([RNG.bytes(int(n)).hex() for n in RNG.integers(0, 90, ROWS)], pa.string()),
    "bytes": maybe([RNG.bytes(int(n)) for n in RNG.integers(0, 90, ROWS)], pa.binary()),
    "repeated": maybe([f"a text {n % 9}" for n in range(ROWS)], pa.string()),
    "number": maybe(NUMBERS.tolist(), pa.int64()),
    "small": pa.array(np.arange(ROWS) % 100, pa.int16()),
    "x": maybe(RNG.random(ROWS).tolist(), pa.float64()),
    "flag": maybe([bool(n % 3) for n in range(ROWS)], pa.bool_()),
    "price": maybe([Decimal(int(n)) / 100 for n in NUMBERS], pa.decimal128(20, 2)),
    "day": maybe([n % 9999 for n in range(ROWS)], pa.date32()),
    "at": maybe(NUMBERS.tolist(), pa.timestamp("us", "UTC")),
    "local": maybe(NUMBERS.tolist(), pa.timestamp("us")),
    "vector": maybe([RNG.random(n % 7).tolist() for n in range(ROWS)], pa.list_(pa.float32())),
    "words": maybe([[RNG.bytes(9).hex(), None] * (n % 4) for n in range(ROWS)], pa.list_(pa.string())),
    "one": maybe([{"a": RNG.bytes(9).hex()} for _ in range(ROWS)], pa.struct({"a": pa.string()})),
    "two": maybe([{"a": n, "b": "b"} for n in range(ROWS)], pa.struct({"a": pa.int64(), "b": pa.string()})),
}
TABLE = pa.table(COLUMNS)
WITH_PARTS = {"two"}
WRITERS: dict[str, dict[str, object]] = {
    "plain": {"use_dictionary": False},
    "dictionaries": {"use_dictionary": True, "dictionary_pagesize_limit": 2000},
    "pages of the second version": {"data_page_version": "2.0", "compression": "lz4"},
    "uncompressed": {"compression": "none", "write_statistics": False},
    "packed": {"use_dictionary": False, "column_encoding": {"number": "DELTA_BINARY_PACKED", "x": "BYTE_STREAM_SPLIT"}},
}


def file_of(rows: pa.Table, **how: object) -> bytes:
    target = io.BytesIO()
    defaults = {"compression": "zstd", "write_page_index": True, "write_batch_size": 8, "data_page_size": 400}
    pq.write_table(rows, target, row_group_size=GROUP, **defaults | how)
    return target.getvalue()


def pages_of(data: bytes, index: PageIndex, footer: pq.FileMetaData, group: int, column: str) -> Pages:
    start, end = index.place(group, column) or (0, 0)
    chunk = footer.row_group(group).column(next(n for n in range(99) if path(footer, n).split(".")[0] == column))
    first = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
    whole = (first, first + chunk.total_compressed_size)
    found = Pages.parse(data[start:end], whole, footer.row_group(group).num_rows)
    assert found is not None
    return found


def path(footer: pq.FileMetaData, leaf: int) -> str:
    return str(footer.schema.column(leaf).path)


@pytest.mark.few(4)
@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize("how", WRITERS.values(), ids=WRITERS)
def test_a_file_of_some_pages_has_the_rows_of_the_whole_chunk(how: dict[str, object], *, required: bool) -> None:
    rows = TABLE
    if required:
        whole = [name for name in TABLE.column_names if TABLE.column(name).null_count == 0]
        rows = pa.table(TABLE.columns, pa.schema([f.with_nullable(f.name not in whole) for f in TABLE.schema]))
    data = file_of(rows, **how)
    footer = pq.read_metadata(io.BytesIO(data))
    index = PageIndex(footer)
    several = 0
    for group in range(footer.num_row_groups):
        stored = rows.slice(group * GROUP, GROUP)
        for name in set(rows.column_names) - WITH_PARTS:
            pages = pages_of(data, index, footer, group, name)
            several += len(pages.starts) > 1
            for chosen in some_rows(stored.num_rows):
                excerpt = pages.around(chosen)
                file = index.file_of(group, name, excerpt, [data[start:end] for start, end in excerpt.ranges])
                places = pa.array(excerpt.places(chosen))
                wanted = stored.column(name).take(pa.array(chosen))
                assert pq.read_table(pa.BufferReader(file)).column(0).take(places).equals(wanted), name
                assert pl.read_parquet(file)[:, 0][places.to_numpy()].equals(pl.Series(name, wanted)), name
    assert several, "there are chunks of several pages"


def test_a_chunk_with_a_page_without_values_is_read_whole() -> None:
    """Arrow writes one behind some arrays; such files were called damaged."""
    rows = pa.table({"v": pa.array([[i, i + 1] for i in range(GROUP)])})
    data = file_of(rows, data_page_size=100, write_batch_size=1)
    footer = pq.read_metadata(io.BytesIO(data))
    start, end = PageIndex(footer).place(0, "v") or (0, 0)
    assert Pages.parse(data[start:end], (0, start), GROUP) is None


def some_rows(count: int) -> Iterator[npt.NDArray[np.int64]]:
    yield np.array([0])
    yield np.array([count - 1])
    yield np.unique(RNG.integers(0, count, 5))
    yield np.arange(count)


def test_a_column_with_parts_or_without_a_page_index_has_no_place() -> None:
    index = PageIndex(pq.read_metadata(io.BytesIO(file_of(TABLE))))
    assert [name for name in TABLE.column_names if index.place(0, name) is None] == list(WITH_PARTS)
    without = PageIndex(pq.read_metadata(io.BytesIO(file_of(TABLE, write_page_index=False))))
    assert [name for name in TABLE.column_names if without.place(0, name) is not None] == []


@given(st.data())
def test_rows_are_found_in_their_pages(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=8))
    count = sum(sizes)
    first = np.cumsum([0, *sizes])
    starts = np.arange(len(sizes), dtype=np.int64) * 10 + 4
    pages = Pages((4, 4 + 10 * len(sizes)), starts, starts + 10, first)
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1))))
    excerpt = pages.around(rows)
    held = np.concatenate([np.arange(first[page], first[page + 1]) for page in excerpt.chosen])
    assert held[excerpt.places(rows)].tolist() == rows.tolist()
    assert excerpt.rows == len(held)
    assert all(set(range(first[page], first[page + 1])) & set(rows.tolist()) for page in excerpt.chosen)


# ------------------------------------------------------------------------------------------------ tables

WIDE = 4096


@pytest.fixture
def store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FileStore:
    """A table of one file whose wide columns have many pages."""
    monkeypatch.setattr(writer, "_PAGE_BYTES", 16 << 10)
    monkeypatch.setattr(checksums, "_CUT_BYTES", 4 << 10)
    monkeypatch.setattr(page_rows, "_LARGE_BYTES", 64 << 10)
    columns = "id BIGINT, n INT, wide STRING, vector ARRAY<DOUBLE>"
    store = create(folder, define(columns, ["id"], bucket="1", schema_evolution__mode="metadata"))
    write(store, wide_rows(400))
    return store


def wide_rows(count: int) -> pa.Table:
    return pa.table(
        {
            "id": np.arange(count),
            "n": pa.array(np.arange(count), pa.int32()),
            "wide": [RNG.bytes(WIDE // 2).hex() for _ in range(count)],
            "vector": [RNG.random(64).tolist() for _ in range(count)],
        }
    )


def opened(store: FileStore) -> RowGroups:
    state = store.state()
    (file,) = state.files
    return RowGroups(store.table_files(state), file)


def data_file(store: FileStore) -> Path:
    (file,) = store.state().files
    return Path(store.location, file.path)


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of bytes of each look at a local file."""
    sizes: list[int] = []
    view = LocalFile.view

    def counted(self: LocalFile, start: int, end: int) -> memoryview:
        sizes.append(end - start)
        return view(self, start, end)

    monkeypatch.setattr(LocalFile, "view", counted)
    return sizes


NAMES = ["n", "wide", "id", "vector"]


@given(rows=st.sets(st.integers(0, 399), min_size=1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_at_positions_are_those_of_the_whole_file(store: FileStore, rows: set[int]) -> None:
    groups = opened(store)
    everything = groups.read(0, NAMES, groups.every_row(0))
    positions = np.array(sorted(rows))
    found = pl.concat(RowsAt(groups, positions, NAMES).frames())
    assert found.equals(everything[positions])
    assert found.columns == NAMES


def test_few_rows_are_read_by_page_and_many_as_a_chunk(store: FileStore, read_bytes: list[int]) -> None:
    size = data_file(store).stat().st_size
    groups = opened(store)
    few, many = np.array([7, 200]), np.arange(0, 400, 3)
    list(RowsAt(groups, few, NAMES).frames())
    assert sum(read_bytes) < size / 8
    read = RowsAt(groups, few, NAMES).rows_read()
    assert read["wide"] < 40
    assert read["n"] == 400
    assert RowsAt(groups, many, NAMES).rows_read()["wide"] == 400


def test_a_file_that_has_gone_is_called_missing(store: FileStore) -> None:
    groups = opened(store)
    list(RowsAt(groups, np.array([7]), NAMES).frames())
    data_file(store).unlink()
    with pytest.raises(NotFound, match="if its version has expired, read a newer one"):
        list(RowsAt(groups, np.array([300]), NAMES).frames())


def test_a_file_without_a_page_index_is_read_by_chunk(store: FileStore) -> None:
    rows = pq.read_table(data_file(store))
    pq.write_table(rows, data_file(store))
    groups = opened(store)
    assert RowsAt(groups, np.array([3]), NAMES).rows_read() == dict.fromkeys(NAMES, 400)
    assert pl.concat(RowsAt(groups, np.array([3]), ["id", "wide"]).frames()).rows() == [(3, rows["wide"][3].as_py())]


def test_columns_that_were_renamed_widened_and_added_since(store: FileStore) -> None:
    state = store.state()
    changes: list[Change] = [AddColumn("later", "STRING"), WidenColumn("n", "BIGINT"), RenameColumn("wide", "text")]
    definition = evolve(state.definition, changes, iter("abcdef").__next__).definition
    (file,) = state.files
    groups = RowGroups(replace(store.table_files(state), definition=definition), file)
    assert RowsAt(groups, np.array([5]), ["later", "n", "text"]).rows_read()["text"] < 40
    (rows,) = RowsAt(groups, np.array([5]), ["later", "n", "text"]).frames()
    assert rows.dtypes == [pl.String, pl.Int64, pl.String]
    assert rows.rows() == [(None, 5, pq.read_table(data_file(store))["wide"][5].as_py())]


def test_no_flipped_bit_of_a_page_or_of_its_index_gives_another_row(store: FileStore, depth: Depth) -> None:
    path, dice, rows = data_file(store), random.Random(5), np.array([100])
    good = pl.concat(RowsAt(opened(store), rows, NAMES).frames())
    index = PageIndex(pq.read_metadata(path))
    footer = pq.read_metadata(path)
    start, end = index.place(0, "wide") or (0, 0)
    pages = pages_of(path.read_bytes(), index, footer, 0, "wide")
    for first, last in [(start, end), *pages.around(rows).ranges]:
        for at in depth.sample(range(first, last), 12, deep=40):
            with changed_byte(path, at, 1 << dice.randrange(8)), pytest.raises(Corrupt, match="its bytes"):
                list(RowsAt(opened(store), rows, NAMES).frames())
    with changed_byte(path, int(pages.starts[0]), 1):
        assert pl.concat(RowsAt(opened(store), rows, NAMES).frames()).equals(good), "nobody looks at other pages"


@contextmanager
def changed_byte(path: Path, at: int, bits: int) -> Iterator[None]:
    good = path.read_bytes()
    path.write_bytes(good[:at] + bytes([good[at] ^ bits]) + good[at + 1 :])
    try:
        yield
    finally:
        path.write_bytes(good)


def test_a_wrong_page_index_of_a_file_without_checksums_is_damage(store: FileStore) -> None:
    path = data_file(store)
    path.write_bytes(file_of(pq.read_table(path)))
    start, _ = PageIndex(pq.read_metadata(path)).place(0, "wide") or (0, 0)
    for at in range(start, start + 12):
        with changed_byte(path, at, 0x40):
            try:
                list(RowsAt(opened(store), np.array([3]), NAMES).frames())
            except Corrupt as error:
                assert str(path) in error.message


@pytest.mark.parametrize("width", [200, 2000, 300_000])
def test_a_page_of_wide_values_has_about_half_a_megabyte(folder: Path, width: int) -> None:
    count = max(4, 4_000_000 // width)
    texts = [RNG.bytes(width // 2).hex() for _ in range(count)]
    store = create(folder, define("id BIGINT, wide STRING, words ARRAY<STRING>", ["id"], bucket="1"))
    write(store, pa.table({"id": np.arange(count), "wide": texts, "words": [[text] for text in texts]}))
    path = data_file(store)
    index, footer, data = PageIndex(pq.read_metadata(path)), pq.read_metadata(path), path.read_bytes()
    for name in ("wide", "words"):
        for group in range(footer.num_row_groups):
            pages = pages_of(data, index, footer, group, name)
            assert (np.diff(pages.rows) * width).max() <= 1.5 * (512 << 10) or np.diff(pages.rows).max() == 1
