"""Files become tables in one call, and tables are made like frames."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filestore.errors import AlreadyExists, InvalidRequest, NotFound
from tablestore import Store, Table
from tests.tablestore.incoming.test_given import Stream

SALES = "id,zip,day,amount\n1,00501,2026-01-31,9.5\n2,10001,2026-02-01,\n"


@pytest.fixture
def sales(tmp_path: Path) -> Path:
    file = tmp_path / "sales.csv"
    file.write_text(SALES)
    return file


def columns(table: Table) -> str:
    return table.definition.schema.to_sql().replace("`", "")


def rows(store: Store, name: str = "lake.sales") -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in store.table(name).scan().to_pylist())


def test_a_file_is_a_table_in_one_call_and_again_an_upsert(store: Store, sales: Path) -> None:
    table = store.load(sales, "lake.sales", primary_key=["id"])
    assert columns(table) == "id BIGINT NOT NULL, zip STRING, day DATE, amount DOUBLE"
    assert rows(store) == [(1, "00501", date(2026, 1, 31), 9.5), (2, "10001", date(2026, 2, 1), None)]
    sales.write_text("zip,id\n7,2\n8,3\n")
    store.load(str(sales), "lake.sales", primary_key=["id"])
    assert [row[:2] for row in rows(store)] == [(1, "00501"), (2, "7"), (3, "8")]
    assert table.version == 2


def test_a_load_that_fails_leaves_no_table(store: Store, sales: Path) -> None:
    for text, reason in (("id,v\n1,x\n,y\n", "null"), ("id,v\n1,x,y\n", "line 2 has 3 fields")):
        sales.write_text(text)
        with pytest.raises(InvalidRequest, match=reason):
            store.load(sales, "lake.sales", primary_key=["id"])
        with pytest.raises(NotFound):
            store.table("lake.sales")
        with pytest.raises(InvalidRequest):  # an option that no table has
            store.load(sales, "lake.sales", options={"bucket": "-1"})
    assert "lake" not in store.list_databases()
    store.create_database("lake")
    with pytest.raises(InvalidRequest):
        store.load(sales, "lake.sales", primary_key=["id"])
    assert "lake" in store.list_databases()


def test_a_table_that_exists_keeps_its_columns_key_and_options(store: Store, sales: Path) -> None:
    store.create_database("lake")
    store.create_table("lake.sales", "id STRING, zip INT, day STRING, amount DECIMAL(9,2)", primary_key=["id"])
    store.load(sales, "lake.sales")
    assert [row[:3] for row in rows(store)] == [("1", 501, "2026-01-31"), ("2", 10001, "2026-02-01")]
    with pytest.raises(AlreadyExists, match="its primary key are id, not zip"):
        store.load(sales, "lake.sales", primary_key=["zip"])
    with pytest.raises(AlreadyExists, match="its partition columns are none, not day"):
        store.load(sales, "lake.sales", partition_by=["day"])
    with pytest.raises(AlreadyExists, match="exists with other columns: `id` STRING NOT NULL, `zip` INT"):
        store.load(sales, "lake.sales", columns="zip STRING")
    with pytest.raises(AlreadyExists, match="its option bucket has another value"):
        store.load(sales, "lake.sales", options={"bucket": "7"})
    with pytest.raises(AlreadyExists, match="exists with other columns"):
        store.load(sales, "lake.sales", columns="zip INT NOT NULL")
    with pytest.raises(AlreadyExists, match="its comment is another one"):
        store.load(sales, "lake.sales", comment="sales")
    (first := sales.with_name("a.csv")).write_text("id,zip\n1,2\n")
    sales.write_text("id,zipp\n1,2\n")
    with pytest.raises(InvalidRequest, match=r"b\.csv has a .*: there is no column 'zipp' \(did you mean 'zip'\?\)"):
        store.load([first, sales.rename(sales.with_name("b.csv"))], "lake.sales")


def test_the_same_load_again_is_right_however_its_values_are_spelled(store: Store, sales: Path) -> None:
    for size in ("192 mb", "192mb", "192 MB"):
        store.load(
            sales,
            "lake.sales",
            primary_key=["id"],
            columns="id INT, zip STRING",
            options={"write-buffer-size": size},
            comment="sales",
        )
    assert store.table("lake.sales").version == 3


def test_several_files_and_a_pattern_are_one_table_in_one_commit(store: Store, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.csv").write_text("id,v\n1,1\n")
    (tmp_path / "a" / "2.csv").write_text("v,id\n2.5,2\n")
    (tmp_path / "b[1].csv").write_text("id,v\n3,9007199254740993\n")
    table = store.load([tmp_path / "a" / "*.csv", tmp_path / "b[1].csv"], "lake.sales", partition_by=["id"])
    assert columns(table) == "id BIGINT, v DECIMAL(17,1)"
    assert table.version == 1 and table.scan().to_arrow().num_rows == 3
    with pytest.raises(InvalidRequest, match="no file is named like"):
        store.load(tmp_path / "*.json", "lake.sales")


def test_files_of_parquet_are_read_in_the_wider_type(store: Store, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([1], pa.int32()), "u": pa.array([1], pa.uint16())}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"u": pa.array([2], pa.uint16()), "id": pa.array([2**40])}), tmp_path / "2.parquet")
    table = store.load(tmp_path / "*.parquet", "lake.sales", primary_key=["id"])
    assert columns(table) == "id BIGINT NOT NULL, u INT"
    assert rows(store) == [(1, 1), (2**40, 2)]


def test_regression_a_value_that_does_not_fit_is_at_its_row_of_the_file(store: Store, tmp_path: Path) -> None:
    numbers = np.zeros(150_000, np.int64)
    numbers[-1] = 2**40
    for name, count in (("a", 10), ("b", 150_000)):
        pq.write_table(
            pa.table({"n": numbers[-count:] if name == "b" else numbers[:count]}), tmp_path / f"{name}.parquet"
        )
    store.create_database("lake")
    store.create_table("lake.sales", "n INT")
    with pytest.raises(InvalidRequest, match=r"b\.parquet: .*row 149999"):
        store.load([tmp_path / "a.parquet", tmp_path / "b.parquet"], "lake.sales")


def test_kinds_of_rows_are_none_of_the_columns(store: Store, sales: Path) -> None:
    sales.write_text("id,v,_kind\n1,x,+I\n2,y,+I\n2,,-D\n")
    assert store.load(sales, "lake.sales", primary_key=["id"]).schema.names == ["id", "v"]
    assert rows(store) == [(1, "x")]
    (other := sales.with_name("other.csv")).write_text("id,v\n3,z\n")
    with pytest.raises(InvalidRequest, match=r"other\.csv lacks the column _kind"):
        store.load([sales, other], "lake.sales")


def test_names_are_those_that_the_store_takes(store: Store, sales: Path) -> None:
    """There is one check of names, which `create_table` has."""
    for header in ("id,a.b", "id,ID", "id, b"):
        sales.write_text(header + "\n1,2\n")
        created: object
        try:
            created = store.create_table("shop.t", pa.schema([(name, pa.int64()) for name in header.split(",")]))
        except InvalidRequest as error:
            created = error.code
        else:
            store.drop_table("shop.t")
        try:
            store.load(sales, "shop.t")
        except InvalidRequest as error:
            assert error.code == created
        else:
            assert not isinstance(created, str)
            store.drop_table("shop.t")


def test_a_topic_is_not_loaded(store: Store, sales: Path) -> None:
    with pytest.raises(InvalidRequest, match="a topic is not loaded"):
        store.load(sales, "lake.sales", options={"connector": "kafka"})


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", ["schema", "table", "batch", "reader", "stream", "polars", "lazy", "pandas", "dicts"])
def test_a_table_is_made_like_rows_that_are_not_read(store: Store, kind: str) -> None:
    arrow = pa.table(
        {"id": pa.array([1, 2], pa.uint32()), "name": ["x", None], "at": pa.array([1.5, 2.5], pa.float32())}
    )
    reader = arrow.to_reader()
    like = {
        "schema": arrow.schema,
        "table": arrow,
        "batch": arrow.to_batches()[0],
        "reader": reader,
        "stream": Stream(arrow.to_reader()),
        "polars": pl.from_arrow(arrow),
        "lazy": pl.DataFrame(pl.from_arrow(arrow)).lazy(),
        "pandas": pd.DataFrame(
            {"name": ["x", None], "at": np.array([1, 2], "f4")}, index=pd.Index([1, 2], "u4", name="id")
        ),
        "dicts": [{"id": 1, "name": "x"}, {"id": 2, "at": 1.5}],
    }[kind]
    store.create_table("shop.like", like=like, primary_key=["id"])
    wanted = {
        "pandas": "name STRING, at FLOAT, id BIGINT NOT NULL",
        "dicts": "id BIGINT NOT NULL, name STRING, at DOUBLE",
    }
    assert columns(store.table("shop.like")) == wanted.get(kind, "id BIGINT NOT NULL, name STRING, at FLOAT")
    if kind == "reader":
        assert store.table("shop.like").write(reader).version == 1
        assert store.table("shop.like").scan().to_arrow().num_rows == 2


def test_what_no_column_holds_is_named_and_one_of_both_is_passed(store: Store) -> None:
    with pytest.raises(InvalidRequest, match=r"column 'at': type time64\[us\] has no Delta counterpart"):
        store.create_table("shop.like", like=pa.schema([("at", pa.time64("us"))]))
    for given in ({}, {"schema": "id INT", "like": pa.schema([("id", pa.int32())])}):
        with pytest.raises(InvalidRequest, match="pass one of them"):
            store.create_table("shop.like", **given)  # type: ignore[arg-type]
