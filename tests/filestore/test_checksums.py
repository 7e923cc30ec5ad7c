"""Every byte of a Parquet file has a checksum, and no flipped bit gives other rows (FORMAT.md section 7.1)."""

from __future__ import annotations

import importlib
import random
import re
import sys
import zlib
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import filestore
from filestore import crc
from filestore.errors import Corrupt
from filestore.files import row_groups
from filestore.files.parquet import ParquetReader
from filestore.files.row_groups import RowGroups
from filestore.files.sink import ParquetSink
from filestore.parquet.checksums import read_checksums
from filestore.parquet.ranges import Chunks, footer_range
from filestore.parquet.whole import parquet_bytes, parquet_rows
from filestore.storage.local import LocalFile, LocalStorage
from filestore.table import FileStore
from tests.depth import Depth
from tests.flips import flipped, with_flips
from tests.tables import create, define, write

ROWS = pa.table(
    {
        "id": np.arange(1200),
        "name": [f"name {n % 7}" for n in range(1200)],
        "x": np.random.default_rng(7).random(1200),
        "many": pa.array([[n, n + 1] if n % 3 else None for n in range(1200)], pa.list_(pa.int32())),
        "deep": pa.array(
            [{"a": n % 100, "b": None} for n in range(1200)], pa.struct({"a": pa.int8(), "b": pa.string()})
        ),
    }
)


@pytest.fixture
def path(folder: Path) -> Path:
    """A file with everything that Parquet has: row groups, dictionaries, filters and indexes."""
    path = folder / "f.parquet"
    how = {
        "compression": "zstd",
        "use_dictionary": ["name"],
        "column_encoding": {"id": "DELTA_BINARY_PACKED"},
        "write_page_index": True,
        "bloom_filter_options": {"id": {"ndv": 400, "fpp": 0.01}},
    }
    with ParquetSink(LocalStorage(), str(path), ROWS.schema, **how) as sink:
        sink.write(ROWS, 400)
        assert sink.close() == path.stat().st_size
    return path


def everything(path: Path) -> pa.Table:
    """All rows by our reader."""
    with ParquetReader(LocalStorage(), str(path)) as parquet:
        return pa.concat_tables([parquet.read(group) for group in range(len(parquet.group_rows))])


def test_the_pieces_are_all_bytes_and_one_for_each_chunk_and_filter(path: Path) -> None:
    footer = pq.read_metadata(path)
    with LocalFile(str(path)) as file:
        sums = read_checksums(file, str(path))
        assert sums is not None
        assert list(sums.damaged(file.view)) == []
        assert [zlib.crc32(file.read(0, end)) for end in sums.starts[1:]] == list(sums.sums[1:])
    parts = [piece for group in range(3) for piece in Chunks(footer).ranges(group)]
    chunks = [footer.row_group(group).column(0) for group in range(3)]
    parts += [(c.bloom_filter_offset, c.bloom_filter_offset + c.bloom_filter_length) for c in chunks]
    assert sums.pieces(parts) == parts
    assert sums.pieces([(start + 1, end - 1) for start, end in parts]) == parts
    assert sums.starts[-1] < footer_range(footer, sums.size)[0]


def test_other_readers_pass_over_the_block(path: Path) -> None:
    assert everything(path).equals(ROWS)
    assert pq.read_table(path, page_checksum_verification=True).equals(ROWS)
    assert pl.read_parquet(path).equals(pl.from_arrow(ROWS))
    assert pq.read_table(path, filters=[("id", "=", 777)]).num_rows == 1


def test_no_flipped_bit_of_a_file_gives_other_rows(path: Path, depth: Depth) -> None:
    good, dice = path.read_bytes(), random.Random(21)
    for number in range(depth.times(100, deep=5000)):
        path.write_bytes(flipped(good, dice, 1 + number % 2 * 2))
        try:
            assert everything(path).equals(ROWS)
        except Corrupt as error:
            assert str(path) in error.message
            continue
        with ParquetReader(LocalStorage(), str(path)) as parquet:
            assert parquet.damaged(), "what no reader has noticed is found by a look at all bytes"


def test_no_flipped_bit_of_a_bloom_filter_excludes_a_value(path: Path, depth: Depth) -> None:
    chunk = pq.read_metadata(path).row_group(0).column(0)
    start, good = chunk.bloom_filter_offset, path.read_bytes()
    for bit in depth.sample(range(8 * chunk.bloom_filter_length), 40, deep=8):
        changed = bytearray(good)
        changed[start + bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with ParquetReader(LocalStorage(), str(path)) as parquet, pytest.raises(Corrupt) as caught:
            parquet.bloom_filter(0, 0)
        assert caught.value.code == "checksum"


def test_a_damaged_block_is_not_taken_for_a_file_of_before(path: Path) -> None:
    good = path.read_bytes()
    with LocalFile(str(path)) as file:
        sums = read_checksums(file, str(path))
        assert sums is not None
    footer = footer_range(pq.read_metadata(path), len(good))[0]
    for at in range(sums.starts[-1], footer):
        changed = bytearray(good)
        changed[at] ^= 0x10
        path.write_bytes(changed)
        with pytest.raises(Corrupt, match="its bytes"):
            everything(path)


def test_a_file_of_before_is_read_and_checked_by_what_parquet_has(folder: Path) -> None:
    path = folder / "before.parquet"
    pq.write_table(ROWS, path)
    assert everything(path).equals(ROWS)
    with ParquetReader(LocalStorage(), str(path)) as parquet:
        assert parquet.checksums is None
        assert parquet.damaged() == []
    pq.write_table(ROWS, path, write_page_checksum=True, compression="none")
    changed = path.read_bytes().replace(b"name 3", b"name 9", 1)
    path.write_bytes(changed)
    with pytest.raises(Corrupt, match="CRC"):
        everything(path)
    assert pl.read_parquet(path).height == ROWS.num_rows, "polars looks at no checksum"


def test_a_file_without_rows_has_checksums(folder: Path) -> None:
    path = folder / "empty.parquet"
    with ParquetSink(LocalStorage(), str(path), ROWS.schema) as sink:
        sink.close()
    with ParquetReader(LocalStorage(), str(path)) as parquet:
        assert parquet.checksums is not None
        assert parquet.footer.num_rows == 0


def test_a_file_in_memory() -> None:
    data = parquet_bytes(ROWS)
    assert parquet_rows(data, "f").equals(ROWS)
    dice = random.Random(3)
    for _ in range(50):
        with pytest.raises((Corrupt, pa.ArrowException, OSError)):
            parquet_rows(flipped(data, dice, 1), "f")


@pytest.fixture
def table(folder: Path) -> FileStore:
    store = create(folder / "t", define("id BIGINT, v DOUBLE, s STRING", ["id"]))
    write(store, [{"id": n, "v": n / 7, "s": f"text {n % 50}"} for n in range(2000)])
    return store


@pytest.mark.parametrize("small", [0, 1 << 20], ids=["as a file", "from memory"])
def test_polars_never_decodes_damaged_bytes(
    table: FileStore, depth: Depth, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_groups, "_SMALL_BYTES", small)
    state = table.state()
    files = table.table_files(state)
    (file,) = state.files
    names = state.definition.schema.names
    groups = RowGroups(files, file)
    good = groups.read(0, names, groups.every_row(0))
    dice = random.Random(4)
    for number in range(depth.times(30, deep=1000)):
        with with_flips(Path(table.location, file.path), dice, 1 + number % 2 * 2):
            try:
                assert groups.is_read_whole == bool(small)
                fresh = RowGroups(table.table_files(state), file) if number % 3 else groups  # its footer is in memory
                assert fresh.read(0, names, fresh.every_row(0)).equals(good)
            except Corrupt as error:
                assert file.path in error.message


@pytest.mark.parametrize("small", [0, 1 << 20], ids=["as a file", "from memory"])
def test_a_reader_of_one_column_checks_that_column_only(
    table: FileStore, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_groups, "_SMALL_BYTES", small)
    state = table.state()
    (file,) = state.files
    path = Path(table.location, file.path)
    *_, (text, _) = Chunks(pq.read_metadata(path)).ranges(0)
    changed = bytearray(path.read_bytes())
    changed[text + 40] ^= 1
    path.write_bytes(changed)
    groups = RowGroups(table.table_files(state), file)
    assert groups.read(0, ["id", "v"], groups.every_row(0)).height == 2000
    with pytest.raises(Corrupt, match=f"bytes {text} to"):
        groups.read(0, ["s"], groups.every_row(0))


def test_both_ways_to_compute_a_sum_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random.Random(5).randbytes(100_000)
    assert crc.crc32(data[777:], crc.crc32(data[:777])) == zlib.crc32(data)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "isal", None)
        patch.setitem(sys.modules, "isal.isal_zlib", None)
        assert importlib.reload(crc).crc32 is zlib.crc32, "a machine for which there is no wheel"
    importlib.reload(crc)


def test_no_module_writes_parquet_in_another_way() -> None:
    root = Path(filestore.__file__).parent.parent
    packages = ("filestore", "log", "managed_table", "compaction", "catalog_service", "tablestore")
    sources = {path for package in packages for path in (root / package).rglob("*.py")}
    writing = re.compile(r"ParquetWriter\(|write_table\(|write_parquet\(|write_deltalake\(")
    found = {str(path.relative_to(root)) for path in sources if writing.search(path.read_text())}
    assert found == {
        "filestore/files/sink.py",
        "filestore/parquet/whole.py",
        "log/table/embedded/segments.py",  # Arrow's stream, which is no Parquet
        "tablestore/cli/export.py",  # a file for users
        "tablestore/demo/steps.py",  # likewise
    }
