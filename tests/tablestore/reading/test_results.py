"""Results in each form that users can request, with unchanged values."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from filestore.errors import NotFound, Unsupported
from tablestore import ReadRows, Scan, Store, Table

COLUMNS = "id BIGINT, n BIGINT, x DOUBLE, amount DECIMAL(9,2), at TIMESTAMP, day DATE, name STRING, kv MAP<STRING, INT>"
FULL = {
    "id": 1,
    "n": 2**60 + 1,
    "x": 0.5,
    "amount": Decimal("1.50"),
    "at": datetime(2026, 1, 2, 3, tzinfo=UTC),
    "day": date(1, 1, 1),
    "name": "a",
    "kv": [("k", 1)],
}
EMPTY = {"id": 2, **dict.fromkeys(list(FULL)[1:])}


@pytest.fixture
def table(store: Store) -> Table:
    table = store.create_table("shop.all", COLUMNS, primary_key=["id"])
    table.write([FULL, EMPTY])
    return table


def test_rows_come_as_plain_values_and_go_back(table: Table) -> None:
    rows = sorted(table.scan().to_pylist(), key=lambda row: row["id"])
    assert rows == [FULL, EMPTY]
    table.write(rows)
    assert sorted(table.scan().to_pylist(), key=lambda row: row["id"]) == rows


def test_pandas_rounds_no_integer_and_takes_its_frames_back(table: Table) -> None:
    frame = table.scan().to_pandas().sort_values("id")
    assert {name: str(kind) for name, kind in frame.dtypes.items() if name in ("id", "n", "x")} == {
        "id": "int64",
        "n": "Int64",
        "x": "float64",
    }
    assert frame["n"].iloc[0] == 2**60 + 1
    table.write(frame)
    assert sorted(table.scan().to_pylist(), key=lambda row: row["id"]) == [FULL, EMPTY]


def test_system_tables_and_empty_scans_have_all_forms(table: Table) -> None:
    snapshots = table.system("snapshots")
    assert list(snapshots.to_pandas()["version"]) == [row["version"] for row in snapshots.to_pylist()]
    nothing = table.scan(where="id > 9")
    assert nothing.to_pylist() == []
    assert list(nothing.to_pandas().columns) == list(FULL)


def test_whatever_takes_arrow_takes_what_is_read(store: Store, table: Table) -> None:
    rows = [FULL, EMPTY]
    for read in (table.scan(), table.get([1, 2]), table.scan(where="id < 3"), table.scan(list(FULL))):
        assert isinstance(read, Scan | ReadRows)
        by_id = sorted(pa.table(read).to_pylist(), key=lambda row: row["id"])
        assert by_id == sorted(read, key=lambda row: row["id"]) == rows, "iterated, it yields the rows"
        assert pl.DataFrame(read).sort("id").equals(read.to_polars().sort("id"))
        assert read.count_rows() == 2
        assert read
    for nothing in (table.scan(where="id > 9"), table.get([9])):
        assert not nothing
        assert nothing.count_rows() == 0
        assert pa.table(nothing).schema == table.schema
    copy = store.create_table("shop.copy", COLUMNS, primary_key=["id"])
    copy.write(table.scan())
    assert sorted(copy.scan(), key=lambda row: row["id"]) == rows
    assert table.system("snapshots").count_rows() == 2
    assert len(table.get([1, 2])) == 2


def test_a_read_is_read_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """list() asks for a length first, which read everything."""
    read = list[Scan]()
    batches = Scan.to_batches
    monkeypatch.setattr(Scan, "to_batches", lambda scan: read.append(scan) or batches(scan))
    for consumer in (list, tuple, pa.table, pl.DataFrame, bool):
        read.clear()
        consumer(table.scan())  # type: ignore[operator]
        assert len(read) == 1, consumer


def test_an_error_of_a_read_stays_what_it_is_for_a_write(store: Store, table: Table) -> None:
    """Through Arrow's stream it was one of bad rows, with a stack trace in its text."""
    copy = store.create_table("shop.copy", COLUMNS, primary_key=["id"])
    scan = table.scan()
    for file in table.files():
        Path(table.location, file.path).unlink()
    with pytest.raises(NotFound):
        copy.write(scan)
    assert copy.version == 0


def test_regression_a_version_is_shown_in_one_line(store: Store) -> None:
    """It had each range of the log: thousands of characters with many buckets."""
    table = store.create_table("shop.wide", "id BIGINT", primary_key=["id"], options={"bucket": "64"})
    snapshot = table.write(pl.DataFrame({"id": range(1000)}))
    when = f"{snapshot.timestamp:%Y-%m-%d %H:%M:%S} UTC"
    metrics = "{'rows_written': 1000, 'files_added': 64}"
    assert repr(snapshot) == f"Snapshot(version=1, WRITE, {when}, metrics={metrics})"


def test_a_read_is_shown_in_one_line_and_its_first_rows_in_a_notebook(store: Store, table: Table) -> None:
    """A scan of 60 files was 24,000 characters."""
    where = table.location
    assert repr(table.scan(["id", "n"], "id > 1")) == f"Scan({where!r}, version=1, columns=['id', 'n'], where='id > 1')"
    assert repr(table.scan(where=pl.col("id") > 1)).startswith(f"Scan({where!r}, version=1, where='[(col(")
    assert repr(table.scan(version=0)) == f"Scan({where!r}, version=0)"
    assert repr(table.get([1], ["n"])) == "ReadRows(1 rows, columns=['n'])"
    assert repr(table.system("tags")) == "SystemScan(columns=['tag_name', 'version', 'commit_time', 'create_time'])"
    long = store.create_table("shop.long", "id BIGINT, name STRING")
    long.write([{"id": number, "name": "<b>"} for number in range(11)])
    shown = long.scan(where="id < 10")._repr_html_()
    assert "id &lt; 10" in shown
    assert "&lt;b&gt;" in shown
    assert "<b>" not in shown
    assert "the first" not in shown
    assert "the first 10 rows" in long.scan()._repr_html_()
    assert table.version == table.scan().state.version == 1


def test_without_pandas_the_sentence_says_what_to_do(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(Unsupported, match=r"pip install pandas.*to_polars") as caught:
        table.scan().to_pandas()
    assert caught.value.code == "no-pandas"


@pytest.mark.parametrize("partition_by", [[], ["day"]], ids=str)
@pytest.mark.parametrize("mode", ["merge-on-write", "merge-on-read"])
def test_no_columns_have_a_number_of_rows(store: Store, partition_by: list[str], mode: str) -> None:
    table = store.create_table(
        "shop.counted",
        "name STRING, day STRING, n INT",
        primary_key=["name", "day"],
        partition_by=partition_by,
        options={"write-mode": mode},
    )
    assert table.scan(columns=[]).to_arrow().num_rows == 0
    table.write([{"name": str(number), "day": str(number % 3), "n": number} for number in range(10)])
    table.write([{"name": "4", "day": "1", "_kind": "-D"}])
    counted = table.scan(columns=[])
    assert counted.to_arrow().shape == (9, 0)
    assert counted.to_polars().shape == (9, 0)
    assert counted.to_pandas().shape == (9, 0)
    assert counted.to_pylist() == [{}] * 9
    assert counted.schema == pa.schema([])
    assert table.scan(columns=[], where="n < 3").to_arrow().num_rows == 3
    assert table.scan(columns=[], where="1 = 0").to_arrow().num_rows == 0
    assert table.get([("5", "2"), ("4", "1")], columns=[]).count_rows() == 1


def test_isnan_is_true_of_nan_alone(store: Store) -> None:
    table = store.create_table("shop.floats", "id BIGINT, x DOUBLE, f FLOAT", primary_key=["id"])
    table.write(pl.DataFrame({"id": [1, 2, 3], "x": [1.0, float("nan"), None], "f": [float("nan"), 2.0, None]}))

    def ids(where: str) -> list[int]:
        return sorted(row["id"] for row in table.scan(["id"], where).to_pylist())

    assert ids("isnan(x)") == [2]
    assert ids("NOT isnan(x)") == [1]
    assert ids("ISNAN (f) OR isnan(x * 2)") == [1, 2]
    assert ids("isnan(f) AND id = 1") == [1]
    assert ids("id = 3 OR isnan(id)") == [3]
