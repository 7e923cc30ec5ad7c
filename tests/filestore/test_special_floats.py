"""No reader misses a NaN or a -0.0, whatever it skips files and row groups by (FORMAT.md sections 7 and 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from compaction.compact import compact_table, plan_compaction
from filestore.doctor import Invariant, examine
from filestore.model.schema import Schema
from filestore.operations.fold import fold_table
from filestore.operations.rewrite import TableRewrite
from filestore.reading.overlay import pending_slots
from filestore.reading.overlay_table import overlay_location, overlay_slot
from filestore.reading.scan import plan_scan, scan_table
from filestore.table import FileStore
from tests.depth import Depth
from tests.filestore.special_floats import COLUMNS, CONDITIONS, OTHER_NAN, Row, edition_1, fill, ieee, named
from tests.folders import memory_folder
from tests.model.model import tiny_row_groups
from tests.tables import assert_healthy, create, define, paths, reopen, write

CASES = [(column, condition) for condition in CONDITIONS for column in COLUMNS]
Filled = tuple[FileStore, list[Row]]
NAN = float("nan")


@pytest.fixture(scope="module")
def filled() -> Iterator[Filled]:
    with tiny_row_groups(), memory_folder() as folder:
        yield fill(folder / "t")


def ids(found: Any) -> list[int]:
    return sorted(found["id"].to_pylist() if isinstance(found, pa.Table) else found["id"].to_list())


def ours(store: FileStore) -> Callable[[str, str], list[int]]:
    state = store.state()
    table = store.table_files(state)
    return lambda column, sql: ids(scan_table(table, plan_scan(state, ["id"], sql.format(column))))


def polars(store: FileStore) -> Callable[[str, str], list[int]]:
    frame = pl.scan_delta(store.location)
    return lambda column, sql: ids(frame.filter(pl.sql_expr(sql.format(column))).collect())


def delta_rs(store: FileStore) -> Callable[[str, str], list[int]]:
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(store.location))

    def find(column: str, sql: str) -> list[int]:
        column, _, part = column.partition(".")
        named = f"{column}['{part}']" if part else column
        return ids(pa.table(query.execute(f"SELECT id FROM t WHERE {sql.format(named)}").read_all()))

    return find


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("reader", [ours, polars, delta_rs], ids=["ours", "polars", "delta-rs"])
def test_every_condition_finds_its_rows(reader: Any, filled: Filled, depth: Depth) -> None:
    store, rows = filled
    find = reader(store)
    if reader is delta_rs:  # it compares bits: a NaN that is not that of a literal, and zeros, are not asked for
        rows = [row for row in rows if row["d"] is not OTHER_NAN and row["d"] != 0]
    asked = {row["id"] for row in rows}
    for column, condition in depth.sample(CASES, 16, deep=3):
        found = [n for n in find(column, condition.sql) if n in asked]
        assert found == named(rows, column, condition), condition.sql.format(column)


@pytest.mark.slow
def test_arrow_finds_them_by_its_own_order(filled: Filled, depth: Depth) -> None:
    """Arrow compares as IEEE 754 says: a NaN differs from all, also from itself."""
    store, rows = filled
    files = ds.dataset([f"{store.location}/{path}" for path in paths(store.state())])
    by_sign: dict[str, Callable[[Any, Any], Any]] = {
        "=": pc.equal,
        "<>": pc.not_equal,
        "<": pc.less,
        "<=": pc.less_equal,
        ">": pc.greater,
        ">=": pc.greater_equal,
    }
    compared = [c for c in CONDITIONS if c.sql.split()[0] == "{}" and c.sql.split()[1] in by_sign]
    for column, condition in depth.sample([case for case in CASES if case[1] in compared], 8, deep=3):
        _, sign, literal = condition.sql.split(maxsplit=2)
        value = float(literal.split("'")[1])
        for negated in (False, True):
            where = by_sign[sign](ds.field(*column.split(".")), pc.scalar(value))
            holds = condition.holds
            expected = [
                row["id"]
                for row in rows
                if (found := holds(_value(row, column), ieee)) is not None and found is not negated
            ]
            assert ids(files.to_table(["id"], filter=~where if negated else where)) == expected, condition.sql


def _value(row: Row, column: str) -> Any:
    first, _, part = column.partition(".")
    return row[first][part] if part else row[first]


# ------------------------------------------------------------------------------------------------- the files


def parquet_files(folder: str) -> Iterable[Path]:
    return [path for path in Path(folder).rglob("*.parquet") if "_delta_log" not in path.parts]


def skipped_by(path: Path) -> set[str]:
    """The floating-point leaves of a file that have something by which readers could skip."""
    file = pq.ParquetFile(path)
    floating = [n for n in range(len(file.schema)) if file.schema.column(n).physical_type in ("FLOAT", "DOUBLE")]
    groups = [file.metadata.row_group(group) for group in range(file.num_row_groups)]
    return {
        chunk.path_in_schema
        for group in groups
        for chunk in map(group.column, floating)
        if chunk.statistics is not None or chunk.has_column_index or chunk.has_dictionary_page
    }


def test_other_columns_keep_what_readers_skip_by(filled: Filled) -> None:
    store, _ = filled
    for path in parquet_files(store.location):
        metadata = pq.read_metadata(path)
        assert not skipped_by(path)
        for group in range(metadata.num_row_groups):
            ids = metadata.row_group(group).column(0)
            assert ids.statistics.has_min_max
            assert ids.has_column_index
    assert_healthy(store)


def special(n: int, value: float) -> Row:
    return {"id": n, "d": value, "f": value, "s": {"x": value}, "seq": value}


VALUES = [NAN, 1.0, -0.0, 5.0] * 3
WRITTEN = "id BIGINT, d DOUBLE, f FLOAT, s STRUCT<x: DOUBLE>, seq DOUBLE"


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ((), {}),
        (("id",), {}),
        (("id",), {"file_bloom__filter": "true", "changelog__producer": "lookup"}),
        (("id",), {"sequence_field": "seq"}),
        (("id",), {"write__mode": "merge-on-read"}),
        (("id",), {"write__mode": "merge-on-read", "merge__engine": "partial-update"}),
    ],
    ids=["append", "upsert", "change data", "tombstones", "runs", "merged runs"],
)
def test_no_writer_lets_readers_skip_by_floats(folder: Path, key: tuple[str, ...], options: dict[str, str]) -> None:
    store = create(folder / "t", define(WRITTEN, key, **options))
    rows = [special(n, value) for n, value in enumerate(VALUES)]
    write(store, rows)
    write(store, [special(n, value) for n, value in enumerate(reversed(VALUES))])
    if key and "merge__engine" not in options:
        write(store, [{**special(n, 9.0), "_kind": "-D"} for n in range(3)])
    state = store.state()
    for slot in pending_slots(state):
        overlay_slot(store.table_files(state), slot, overlay_location(store.table_files(state), state.version))
    fold_table(store, full=True)
    compact_table(store, full=True)
    state = store.state()
    after = replace(state.definition, schema=Schema(state.definition.schema.columns[:-1]))
    if "sequence_field" not in options:
        TableRewrite(store, state, after).write_files(state)
    write(store, [{"id": n, "d": value} for n, value in enumerate(VALUES)], overwrite=True)
    kinds = {path.relative_to(store.location).parts[0] for path in parquet_files(store.location)}
    assert kinds >= ({"_change_data"} if "changelog__producer" in options else {"bucket-00000"})
    assert {path.name: found for path in parquet_files(store.location) if (found := skipped_by(path))} == {}
    assert_healthy(store)


# ------------------------------------------------------------------------------------ files of edition 1


@pytest.mark.parametrize("key", [(), ("id",)], ids=["append", "upsert"])
@pytest.mark.parametrize(
    ("value", "column", "words"),
    [
        (NAN, "d", "a NaN in 'd' and bounds for it"),
        (NAN, "s", "a NaN in 's.x' and bounds for it"),
        (-0.0, "f", "-0.0 in 'f' and a dictionary for it"),
    ],
    ids=["NaN", "nested NaN", "negative zero"],
)
def test_files_of_edition_1_are_found_and_written_anew(
    folder: Path, key: tuple[str, ...], value: float, column: str, words: str
) -> None:
    store = create(folder / "t", define("id BIGINT, d DOUBLE, f FLOAT, s STRUCT<x: DOUBLE>", key))
    hidden = {**special(0, 1.0), column: {"x": value} if column == "s" else value}
    del hidden["seq"]
    with edition_1():
        write(store, [hidden, *({k: v for k, v in special(n, -1.0).items() if k != "seq"} for n in range(1, 6))])
    before = scanned(store)
    [found] = examine(store).problems
    assert found.code is Invariant.HIDDEN_VALUE
    assert words in found.message
    assert "a full compaction writes the file anew" in found.message
    assert scanned(store) == before
    assert plan_compaction(store.state()) == []
    assert compact_table(store, full=True) is not None
    assert_healthy(store)
    assert scanned(store) == before
    assert compact_table(store, full=True) is None


def test_files_of_edition_1_are_no_problem_without_such_values(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT, d DOUBLE, a ARRAY<DOUBLE>", ("id",)))
    with edition_1():
        write(store, [{"id": n, "d": float(n), "a": [NAN, 1.0]} for n in range(6)])
    assert {file.edition for file in reopen(store).state().files} == {1}
    assert_healthy(store)


def scanned(store: FileStore) -> list[str]:
    state = store.state()
    return [repr(row) for row in scan_table(store.table_files(state), plan_scan(state)).to_pylist()]


def test_the_doctor_says_of_a_pending_run_what_it_hides(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT, d DOUBLE", ("id",), write__mode="merge-on-read"))
    with edition_1():
        write(store, [{"id": 1, "d": NAN}, {"id": 2, "d": 1.0}], later=True)
    [found] = examine(store).problems
    assert found.code is Invariant.PENDING_RUN
    assert "has a NaN in 'd' and bounds for it" in found.message
    fold_table(store, full=True)
    assert_healthy(store)


def test_the_doctor_says_of_change_data_what_they_hide(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT, d DOUBLE", ("id",), changelog__producer="lookup"))
    write(store, [{"id": 1, "d": 1.0}, {"id": 2, "d": 1.0}])
    with edition_1():
        write(store, [{"id": 1, "d": NAN}, {"id": 2, "d": 2.0}])
    compact_table(store, full=True)
    [found] = examine(store).problems
    assert found.code is Invariant.HIDDEN_VALUE
    assert found.path is not None
    assert found.path.startswith("_change_data/")
    assert "a NaN in 'd' and bounds for it" in found.message
