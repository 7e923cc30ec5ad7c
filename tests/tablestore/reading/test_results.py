"""Results in each form that users can request, with unchanged values."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest

from filestore.errors import Unsupported
from tablestore import Store, Table

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
    assert table.get([("5", "2"), ("4", "1")], columns=[]).num_rows == 1


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
