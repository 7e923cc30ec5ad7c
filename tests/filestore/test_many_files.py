"""Tables of many small files: what a scan reads together, and what it finds by key, is what file after file holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.errors import Corrupt, NotFound
from filestore.files import footers, row_groups
from filestore.files.live_rows import read_file
from filestore.files.parquet import ParquetReader
from filestore.model.change_text import parse_changes
from filestore.operations.alter import alter
from filestore.reading.scan import plan_scan, scan, scan_table
from filestore.rows.frames import polars_schema
from filestore.storage.local import LocalFile, LocalStorage
from filestore.table import FileStore
from tablestore.reading.scan import Scan
from tests.folders import memory_folder
from tests.model.model import tiny_row_groups
from tests.tables import create, define, paths, write

COLUMNS = (
    "id BIGINT, p STRING, v INT, s STRING, b BINARY, d DECIMAL(9,2), t TIMESTAMP, tags ARRAY<STRING>, "
    "m MAP<STRING, INT>, r STRUCT<a: STRING, q: INT NOT NULL>"
)
ROW = st.fixed_dictionaries(
    {
        "id": st.integers(0, 12),
        "p": st.sampled_from(["a", "b c", "%/ü"]),
        "v": st.none() | st.integers(-3, 3),
        "s": st.none() | st.sampled_from(["", "short", "longer than a view keeps inline"]),
        "b": st.none() | st.sampled_from([b"", b"\x00", b"\xff" * 20]),
        "d": st.none() | st.sampled_from([Decimal("0.00"), Decimal("1.50")]),
        "tags": st.none() | st.lists(st.none() | st.just("a"), max_size=2),
        "m": st.none() | st.just([("k", 1)]),
        "r": st.none() | st.fixed_dictionaries({"a": st.none() | st.just("a"), "q": st.just(1)}),
    }
)
CHANGES = ["ADD COLUMN w STRING FIRST", "RENAME COLUMN v TO u", "ALTER COLUMN d TYPE DECIMAL(12,2)", "DROP COLUMN s"]
CONDITIONS = [
    "id = 3 AND p = 'a'",
    "id IN (1, 3, 5, 99) AND p IN ('a', 'b c', '')",
    "id IN (0, 2, 7) AND p = 'b c' AND d > 0",
    "p = 'a' AND id = 4 AND p = 'b c'",
    "id > 6",
    "d = 1.5",
]


def slowly(store: FileStore) -> pa.Table:
    """All live rows, file after file as a scan has them, decoded by pyarrow."""
    state = store.state()
    table = store.table_files(state)
    parts = [rows for file in state.files for rows in read_file(table, file)]
    return pa.concat_tables([state.definition.schema.to_arrow().empty_table(), *parts])


def renamed(row: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """The row for a table with those columns."""
    known = row | {"u": row["v"], "w": "w"}
    return {name: known[name] for name in names if name in known}


def wanted(rows: pa.Table, where: str) -> list[dict[str, Any]]:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    mask = frame.select(pl.sql_expr(where).fill_null(False).alias("wanted")).to_series()
    return rows.filter(mask.to_arrow()).to_pylist()


@st.composite
def histories(draw: st.DrawFn) -> list[list[dict[str, Any]] | str]:
    """Writes, with changes of the columns between them."""
    steps: list[list[dict[str, Any]] | str] = []
    changes = draw(st.lists(st.sampled_from(CHANGES), unique=True))
    for _ in range(draw(st.integers(1, 8))):
        steps.append(draw(st.lists(ROW, max_size=5)))
        if changes and draw(st.booleans()):
            steps.append(changes.pop())
    return steps


@pytest.mark.deep
@pytest.mark.slow
@given(
    steps=histories(),
    key=st.sampled_from([("p", "id"), ()]),
    partition_by=st.sampled_from([("p",), ()]),
    rows=st.sampled_from([3, 1000]),
)
def test_a_scan_gives_what_each_file_holds_in_its_order(
    steps: list[list[dict[str, Any]] | str], key: tuple[str, ...], partition_by: tuple[str, ...], rows: int
) -> None:
    with tiny_row_groups(), memory_folder() as folder:
        options = {"schema_evolution__mode": "metadata", "row__group_rows": rows, "bucket": 2, "bucket__key": "id"}
        store = create(folder / "t", define(COLUMNS, key, partition_by, **options))
        for step in steps:
            if isinstance(step, str):
                alter(store, parse_changes([step]), lambda *_: pytest.fail("metadata only"), lambda _: None)
            else:
                write(store, [renamed(row, store.state().definition.schema.names) for row in step])
        state, every = store.state(), slowly(store)
        for _ in range(2):  # also by what the first scan has left in the cache
            found = scan_table(store.table_files(state), plan_scan(state))
            assert found.schema.equals(every.schema)
            assert found.to_pylist() == every.to_pylist()
            for where in CONDITIONS:
                some = scan_table(store.table_files(state), plan_scan(state, None, where))
                assert some.to_pylist() == wanted(every, where), where
                assert some.column("id") == scan_table(
                    store.table_files(state), plan_scan(state, ["id"], where)
                ).column("id")
        for where in (None, *CONDITIONS):
            read = Scan(store, state, None, where)
            assert read.to_polars().schema == polars_schema(every.schema)
            assert read.to_polars().equals(pl.from_arrow(read.to_arrow()))


# ------------------------------------------------------------------------------------------------ what is done


class Counted(LocalStorage):
    """Counts the files that are opened."""

    def __init__(self) -> None:
        self.opened: Counter[str] = Counter()

    def open_read(self, path: str) -> LocalFile:
        self.opened[Path(path).name] += 1
        return super().open_read(path)


@pytest.fixture
def many(folder: Path) -> FileStore:
    """Forty files of ten rows, half of which are dead."""
    store = create(folder / "t", define("id BIGINT, v INT", ["id"]), Counted())
    for number in range(40):
        write(store, [{"id": 5 * number + n, "v": number} for n in range(10)])
    assert len(store.state().files) == 40
    return store


@pytest.fixture
def decodings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many files each decoding reads, from now on."""
    seen: list[int] = []
    decoded = row_groups._decoded

    def counted(files: Any, *rest: Any) -> pl.DataFrame:
        seen.append(len(files))
        return decoded(files, *rest)

    monkeypatch.setattr(row_groups, "_decoded", counted)
    return seen


@pytest.mark.slow
def test_small_files_are_decoded_together_and_in_bounded_numbers(many: FileStore, decodings: list[int]) -> None:
    state = many.state()
    assert scan_table(many.table_files(state), plan_scan(state)).num_rows == 205
    assert sum(decodings) == 40
    assert len(decodings) == 1
    with tiny_row_groups():
        change = "SET row-group.rows = 100"
        alter(many, parse_changes([change]), lambda *_: pytest.fail("metadata only"), lambda _: None)
        state = many.state()
        assert [rows.num_rows for rows in scan(many.table_files(state), plan_scan(state))] == [50, 50, 50, 55]


@pytest.mark.slow
def test_a_second_scan_decodes_no_footer_and_no_vector(many: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = many.storage
    assert isinstance(storage, Counted)
    state = many.state()
    for where in (None, "v = 7", "id = 77"):
        first = scan_table(many.table_files(state), plan_scan(state, None, where))
        storage.opened.clear()
        with monkeypatch.context() as patch:
            if where != "id = 77":  # a look-up opens files on its own
                patch.setattr(ParquetReader, "footer", property(lambda _: pytest.fail("a footer is decoded again")))
            assert scan_table(many.table_files(state), plan_scan(state, None, where)).equals(first)
        assert where == "id = 77" or not [name for name in storage.opened if name.endswith(".bin")]


@pytest.mark.slow
def test_a_scan_for_one_key_opens_only_files_that_may_hold_it(many: FileStore, decodings: list[int]) -> None:
    storage = many.storage
    assert isinstance(storage, Counted)
    state = many.state()
    storage.opened.clear()
    found = scan_table(many.table_files(state), plan_scan(state, None, "id = 77 AND v > 0"))
    assert found.to_pylist() == [{"id": 77, "v": 15}]
    assert len([name for name in storage.opened if name.endswith(".parquet")]) <= 2
    assert set(decodings) == {1}


@pytest.mark.slow
def test_what_is_held_is_bounded_by_the_cache(many: FileStore) -> None:
    change = "SET lookup.cache-max-memory-size = 1 b"
    alter(many, parse_changes([change]), lambda *_: pytest.fail("metadata only"), lambda _: None)
    state = many.state()
    table = many.table_files(state)
    assert scan_table(table, plan_scan(state)).num_rows == 205
    assert table.cache is not None
    assert table.cache.memory_bytes == 0


@pytest.mark.slow
def test_the_damaged_one_of_files_that_are_read_together_is_named(many: FileStore) -> None:
    state = many.state()
    scan_table(many.table_files(state), plan_scan(state))
    path = sorted(paths(state))[7]
    whole = Path(many.location, path)
    whole.write_bytes(b"x" * whole.stat().st_size)
    with pytest.raises(Corrupt, match=path) as caught:
        scan_table(many.table_files(state), plan_scan(state))
    assert caught.value.code == "checksum"


@pytest.mark.slow
def test_a_file_that_is_gone_after_a_scan_is_not_found(many: FileStore) -> None:
    state = many.state()
    scan_table(many.table_files(state), plan_scan(state))
    path = sorted(paths(state))[7]
    Path(many.location, path).unlink()
    with pytest.raises(NotFound, match=path) as caught:
        scan_table(many.table_files(state), plan_scan(state))
    assert caught.value.code == "file-not-found"
    assert "restore it from a backup, or roll the table back" in caught.value.message


def test_rows_at_one_end_of_a_row_group_are_decoded_alone(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT, v INT", ["id"]))
    write(store, [{"id": n, "v": n} for n in range(1000)])
    state = store.state()
    (file,) = state.files
    groups = row_groups.RowGroups(store.table_files(state), file)
    for rows in ([0], [999], [400, 402], [0, 999], list(range(300, 900))):
        mask = groups.every_row(0)
        mask[:] = False
        mask[rows] = True
        assert groups.read(0, ["v", "id"], mask).rows() == [(n, n) for n in rows]
    assert groups.read(0, ["id"], ~groups.every_row(0)).is_empty()


def test_a_footer_knows_the_columns_of_its_file(folder: Path) -> None:
    store = create(folder / "t", define("r STRUCT<id: INT>, id BIGINT"))
    write(store, [{"r": {"id": 1}, "id": 2}])
    (path,) = paths(store.state())
    with ParquetReader(store.storage, f"{store.location}/{path}") as parquet:
        footer = footers.Footer.of(parquet)
        assert footer.leaf("id") == parquet.leaf("id")
    assert footer.leaf("none") is None
    assert footer.starts.tolist() == [0, 1]
    assert footer.types["id"] == pa.int64()
