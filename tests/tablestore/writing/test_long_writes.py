"""Writes of more rows than are sorted at once: the same commit, out of sorted runs in memory and on the local disk."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tablestore
from filestore.errors import InvalidRequest
from filestore.model.changes import AddColumn, DropColumn
from filestore.storage.temporary import temporary_folder
from tablestore import Store, Table
from tablestore.writing.given_rows import GivenRows
from tests.warehouses import assert_whole, changes, rows, warehouse

Options = dict[str, str]

TABLES: dict[str, Options] = {
    "plain": {},
    "sequence": {"sequence.field": "n"},
    "partial": {"merge-engine": "partial-update"},
    "sums": {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
    "listed": {"merge-engine": "aggregation", "fields.t.aggregate-function": "last_value"},
    "first": {"merge-engine": "first-row"},
    "later": {"write-mode": "merge-on-read"},
    "images": {"changelog-producer": "lookup"},
    "logged": {"log.system": "embedded"},
    "arrived": {"changelog-producer": "input", "log.system": "embedded"},
}
ROW = st.tuples(
    st.integers(0, 9),
    st.sampled_from(["x", "y"]),
    st.none() | st.integers(0, 5),
    st.none() | st.sampled_from(["", "a", "long " * 60]),
    st.sampled_from(["+I", "+U", "-U", "-D"]),
)
PART = st.lists(ROW, max_size=12)
SCHEMA = pa.schema(
    [("id", pa.int64()), ("p", pa.string()), ("n", pa.int64()), ("t", pa.string()), ("_kind", pa.string())]
)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def table_of(store: Store, name: str, options: Options, *, key: bool, parts: bool) -> Table:
    made = store.create_table(
        f"shop.{name}",
        "id BIGINT, p STRING, n BIGINT, t STRING",
        primary_key=["id", "p"] if key else [],
        partition_by=["p"] if parts else [],
        options={"bucket": "2", **options} if key else {},
    )
    assert isinstance(made, Table)
    return made


def stream(parts: list[list[tuple[Any, ...]]], names: list[str]) -> pa.RecordBatchReader:
    schema = pa.schema([SCHEMA.field(name) for name in names])
    tables = [pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in p], SCHEMA) for p in parts]
    batches = [batch for table in tables for batch in table.select(names).to_batches()]
    return pa.RecordBatchReader.from_batches(schema, batches)


def written(table: Table, writes: list[list[list[tuple[Any, ...]]]], names: list[str]) -> Any:
    """The outcome of writes, or the first error."""
    try:
        snapshots = [table.write(stream(parts, names)) for parts in writes]
    except InvalidRequest as error:
        return error.code
    found = [dict(snapshot.metrics) for snapshot in snapshots]
    return found, table.scan().to_arrow().to_pylist(), changes(table) if table.definition.primary_key else None


@pytest.mark.few(4)
@pytest.mark.parametrize("name", TABLES)
@given(st.data())
def test_they_are_the_same_as_in_memory(name: str, data: st.DataObject) -> None:
    key = name not in ("plain", "logged") or data.draw(st.booleans())
    parts, kinds = data.draw(st.booleans()), key and name != "first" and data.draw(st.booleans())
    writes = data.draw(st.lists(st.lists(PART, min_size=1, max_size=3), min_size=1, max_size=2))
    names = SCHEMA.names if kinds else SCHEMA.names[:-1]
    with warehouse() as store:
        options = {} if name == "logged" and not key else TABLES[name]
        short = table_of(store, "short", options, key=key, parts=parts)
        size = data.draw(st.sampled_from(["128 b", "1 kb"]))
        long = table_of(store, "long", {**options, "write-buffer-size": size}, key=key, parts=parts)
        assert written(long, writes, names) == written(short, writes, names)
        assert_whole(long)


def longer(store: Store, columns: str = "id BIGINT, a BIGINT, b STRING") -> Table:
    made = store.create_table("shop.t", columns, primary_key=["id"], options={"write-buffer-size": "1 kb"})
    assert isinstance(made, Table)
    return made


def numbers(count: int, start: int = 0) -> pa.Table:
    return pa.table({"id": pa.array(range(start, start + count)), "a": pa.array(range(count))})


def test_runs_are_gone_after_a_write_and_after_an_error(store: Store, temporary: Path) -> None:
    table = longer(store)
    with GivenRows(numbers(1000)) as given_rows:
        given_rows.fitted(table.definition)
        assert len(list(temporary.glob("*/*.parquet"))) > 2
    assert list(temporary.iterdir()) == []
    table.write(numbers(1000))
    with pytest.raises(InvalidRequest):
        table.write(pa.table({"id": pa.array([None] * 1000, pa.int64())}))
    assert list(temporary.iterdir()) == []
    assert table.scan().count_rows() == 1000


def test_a_value_that_does_not_fit_is_named_by_its_row_in_the_stream(store: Store, temporary: Path) -> None:
    table = longer(store, "id BIGINT, a TINYINT")
    batches = [
        pa.record_batch([pa.array(range(n, n + 100)), pa.array([1] * 99 + [n])], ["id", "a"]) for n in (0, 100, 200)
    ]
    with pytest.raises(InvalidRequest, match=r"200 in row 299 \(the first is 0\)"):
        table.write(pa.RecordBatchReader.from_batches(batches[0].schema, batches))
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("change", [AddColumn("c", "INT"), DropColumn("b")], ids=str)
def test_rows_are_fitted_again_to_a_table_that_was_changed(store: Store, change: Any, temporary: Path) -> None:
    table = longer(store)
    with GivenRows(iter([numbers(300), numbers(300, 150)])) as given_rows:
        given_rows.fitted(table.definition)
        table.alter(change)
        table.writer().write(given_rows)
    assert {row["id"]: row["a"] for row in rows(table)} == {n: n if n < 150 else n - 150 for n in range(450)}
    assert list(temporary.iterdir()) == []


def test_a_query_of_polars_is_read_while_it_is_written(store: Store) -> None:
    table = longer(store)
    table.write(pl.LazyFrame({"id": range(500)}).with_columns(a=pl.col("id") * 2))
    assert {row["id"]: row["a"] for row in rows(table)} == {n: 2 * n for n in range(500)}
    with pytest.raises(InvalidRequest, match=r"the query of the rows failed: .*not_there"):
        table.write(pl.LazyFrame({"id": [1]}).select("not_there"))


KILLED = """
import sys, time
from filestore.storage.temporary import temporary_folder
with temporary_folder("some-", sys.argv[1]) as folder:
    open(f"{folder}/rows", "w").close()
    print(folder, flush=True)
    time.sleep(600)
"""


def test_what_a_killed_process_leaves_is_removed_by_the_next(temporary: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(temporary)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process, process.stdout:
        left = Path(process.stdout.readline().strip())
        with temporary_folder("some-", str(temporary)):
            assert (left / "rows").exists(), "it is in use"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert left.exists()
    with temporary_folder("other-", str(temporary)):
        assert left.exists(), "it may be any other program's"
    with temporary_folder("some-", str(temporary)) as mine:
        assert list(temporary.iterdir()) == [Path(mine)]


def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    make = tempfile.mkdtemp

    def taken_away(**how: Any) -> str:
        made.append(make(**how))
        if len(made) == 1:
            os.rmdir(made[0])
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", taken_away)
    with temporary_folder("some-", str(temporary)) as mine:
        assert made[1:] == [mine] and Path(mine).is_dir()


def stream_of(count: int) -> pa.RecordBatchReader:
    """Rows of about 50 bytes, made while they are asked for."""
    schema = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.string())])

    def batches() -> Iterator[pa.RecordBatch]:
        dice = np.random.default_rng(1)
        for start in range(0, count, 1 << 16):
            ids = (np.arange(start, min(count, start + (1 << 16))) * 7919) % (count + 3)
            texts = pa.array(dice.integers(0, 10**18, len(ids))).cast(pa.string())
            yield pa.record_batch([pa.array(ids), pa.array(ids), texts], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def peak(location: str, count: int) -> int:
    """The most memory of a process that writes so many rows, in MB."""
    with tablestore.connect(location) as store:
        table = store.create_table("shop.t", "id BIGINT, a BIGINT, b STRING", primary_key=["id"])
        assert isinstance(table, Table)
        table.write(stream_of(count))
        assert table.scan().count_rows() == count
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_long_write_takes_the_memory_of_a_few_buffers(tmp_path: Path) -> None:
    """12 M rows of 50 bytes took 2 GB when all were sorted at once."""
    with tablestore.connect(str(tmp_path)) as store:
        store.create_database("shop")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:  # a fresh process, to measure alone
        assert pool.submit(peak, str(tmp_path), 12_000_000).result() < 1100
