"""What every `Catalog` does, over HTTP and embedded alike."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from catalog_service.client import AlterTable, Catalog, CreateTable, connect
from filestore.ambient import system_ambient
from filestore.errors import AlreadyExists, Conflict, Corrupt, InvalidRequest, NotFound, Unsupported
from filestore.model.schema import Column, Schema
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tests.catalog_service.faults import check

ORDERS = CreateTable.of(
    "orders",
    "id BIGINT, amount DECIMAL(10,2) COMMENT 'in euros', tags ARRAY<STRING>",
    primary_key=["id"],
    options={"bucket": "4"},
    comment="One row an order",
)


def test_databases_are_created_listed_and_dropped(catalog: Catalog) -> None:
    assert catalog.list_databases() == []
    catalog.create_database("shop", comment="Orders")
    catalog.create_database("bank")
    assert catalog.list_databases() == ["bank", "shop"]
    catalog.drop_database("shop")
    assert catalog.list_databases() == ["bank"]


def test_a_taken_database_name(catalog: Catalog) -> None:
    catalog.create_database("shop")
    with pytest.raises(AlreadyExists, match="if_not_exists") as caught:
        catalog.create_database("shop")
    assert caught.value.code == "database-exists"
    catalog.create_database("shop", if_not_exists=True)
    assert catalog.list_databases() == ["shop"]


def test_a_missing_database(catalog: Catalog) -> None:
    for call in (
        lambda: catalog.drop_database("shop"),
        lambda: catalog.list_tables("shop"),
        lambda: catalog.create_table("shop", ORDERS),
        lambda: catalog.get_table("shop", "orders"),
        lambda: catalog.drop_table("shop", "orders"),
    ):
        with pytest.raises(NotFound) as caught:
            call()
        assert caught.value.code == "database-not-found"
    catalog.drop_database("shop", if_exists=True)
    catalog.drop_table("shop", "orders", if_exists=True)


def test_a_table_is_its_row_version_0_and_its_log(catalog: Catalog, warehouse: str) -> None:
    catalog.create_database("shop")
    info = catalog.create_table("shop", ORDERS)

    assert (info.database, info.name, info.format) == ("shop", "orders", "delta")
    assert info.location == f"{warehouse}/shop/orders"
    assert [(c.name, c.type, c.nullable, c.comment) for c in info.columns] == [
        ("id", "BIGINT", False, None),
        ("amount", "DECIMAL(10,2)", True, "in euros"),
        ("tags", "ARRAY<STRING>", True, None),
    ]
    assert (info.primary_key, info.partition_by, info.comment) == (["id"], [], "One row an order")
    assert info.options == {"bucket": "4"}
    assert info.effective_options["log.system"] == "embedded"
    assert info.current_snapshot is not None
    assert (info.current_snapshot.version, info.current_snapshot.rows, info.current_snapshot.files) == (0, 0, 0)

    state = FileStore.open(LocalStorage(), info.location, system_ambient()).state()
    assert state.table_id == info.table_id
    assert state.definition.buckets == 4
    assert catalog.list_tables("shop") == ["orders"]
    assert check(warehouse) == ["shop.orders"]


def test_get_table_reads_the_snapshot_only_if_asked(catalog: Catalog) -> None:
    catalog.create_database("shop")
    created = catalog.create_table("shop", ORDERS)
    assert catalog.get_table("shop", "orders").current_snapshot is None
    assert catalog.get_table("shop", "orders", with_snapshot=True) == created


def test_a_taken_table_name(catalog: Catalog, warehouse: str) -> None:
    catalog.create_database("shop")
    first = catalog.create_table("shop", ORDERS)
    other = CreateTable.of("orders", "x STRING")
    with pytest.raises(AlreadyExists, match="if_not_exists") as caught:
        catalog.create_table("shop", other)
    assert caught.value.code == "table-exists"
    assert catalog.create_table("shop", other, if_not_exists=True) == first
    assert check(warehouse) == ["shop.orders"]


def test_a_missing_table(catalog: Catalog) -> None:
    catalog.create_database("shop")
    for call in (lambda: catalog.get_table("shop", "orders"), lambda: catalog.drop_table("shop", "orders")):
        with pytest.raises(NotFound) as caught:
            call()
        assert caught.value.code == "table-not-found"
    catalog.drop_table("shop", "orders", if_exists=True)


def test_drop_removes_row_files_and_log(catalog: Catalog, warehouse: str) -> None:
    catalog.create_database("shop")
    first = catalog.create_table("shop", ORDERS)
    catalog.drop_table("shop", "orders")
    assert not os.path.exists(first.location)
    assert catalog.list_tables("shop") == []
    assert check(warehouse) == []
    second = catalog.create_table("shop", ORDERS)
    assert second.table_id != first.table_id
    assert check(warehouse) == ["shop.orders"]


def test_a_database_with_tables_is_dropped_only_with_cascade(catalog: Catalog, warehouse: str) -> None:
    catalog.create_database("shop")
    catalog.create_table("shop", ORDERS)
    catalog.create_table("shop", CreateTable.of("items", "id BIGINT"))
    with pytest.raises(Conflict, match=r"items, orders.*cascade") as caught:
        catalog.drop_database("shop")
    assert caught.value.code == "database-not-empty"
    assert catalog.list_tables("shop") == ["items", "orders"]
    catalog.drop_database("shop", cascade=True)
    assert catalog.list_databases() == []
    assert not os.path.exists(f"{warehouse}/shop")
    assert check(warehouse) == []


def test_names_are_folded(catalog: Catalog) -> None:
    catalog.create_database("Shop")
    info = catalog.create_table("SHOP", CreateTable.of("Orders", "id BIGINT"))
    assert (info.database, info.name) == ("shop", "orders")
    assert catalog.get_table("shop", "ORDERS").table_id == info.table_id
    assert catalog.list_databases() == ["shop"]
    with pytest.raises(AlreadyExists):
        catalog.create_table("shop", CreateTable.of("ORDERS", "id BIGINT"))


@pytest.mark.few(10)
@pytest.mark.parametrize("name", ["", "..", "a/b", "a b", "a.b", "1a", "_a", "a-b", "ä", "a" * 101, "\u212ab"])
def test_bad_names(catalog: Catalog, warehouse: str, name: str) -> None:
    catalog.create_database("shop")
    for call in (
        lambda: catalog.create_database(name),
        lambda: catalog.drop_database(name),
        lambda: catalog.list_tables(name),
        lambda: catalog.create_table("shop", CreateTable.of(name, "id BIGINT")),
        lambda: catalog.create_table(name, ORDERS),
        lambda: catalog.get_table("shop", name),
        lambda: catalog.get_table(name, "orders"),
        lambda: catalog.drop_table("shop", name, if_exists=True),
    ):
        with pytest.raises(InvalidRequest, match="begins with a letter") as caught:
            call()
        assert caught.value.code == "bad-name"
    assert catalog.list_databases() == ["shop"]
    assert check(warehouse) == []


def test_arrow_types_survive_the_wire(catalog: Catalog) -> None:
    schema = Schema.from_arrow(
        pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                pa.field("seen", pa.timestamp("us")),
                pa.field("at", pa.timestamp("ms", tz="Europe/Berlin")),
                pa.field("price", pa.decimal128(38, 10)),
                pa.field("raw", pa.large_binary()),
                pa.field("place", pa.struct([pa.field("x y", pa.float64()), pa.field("n", pa.int8())])),
                pa.field("tags", pa.map_(pa.string(), pa.list_(pa.date32()))),
            ]
        )
    )
    catalog.create_database("shop")
    info = catalog.create_table("shop", CreateTable.of("t", schema, primary_key=["id"]))
    state = FileStore.open(LocalStorage(), info.location, system_ambient()).state()
    assert state.definition.schema == schema


def test_column_comments_with_quotes(catalog: Catalog) -> None:
    schema = Schema((Column("id", pa.int64(), False, "the 'id' \\ \"key\""),))
    catalog.create_database("shop")
    info = catalog.create_table("shop", CreateTable.of("t", schema, primary_key=["id"]))
    assert info.columns[0].comment == "the 'id' \\ \"key\""


def test_files_of_somebody_else_stay(catalog: Catalog, warehouse: str) -> None:
    foreign = Path(warehouse, "shop", "orders", "notes.txt")
    catalog.create_database("shop")
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine")
    with pytest.raises(AlreadyExists, match=r"notes\.txt") as caught:
        catalog.create_table("shop", ORDERS)
    assert caught.value.code == "location-not-empty"
    assert foreign.read_text() == "mine"
    assert catalog.list_tables("shop") == []


def test_a_table_whose_files_are_gone(catalog: Catalog, warehouse: str) -> None:
    catalog.create_database("shop")
    info = catalog.create_table("shop", ORDERS)
    os.rename(info.location, f"{warehouse}/moved")
    with pytest.raises(Corrupt, match="Restore the files, or drop the table") as caught:
        catalog.get_table("shop", "orders", with_snapshot=True)
    assert caught.value.code == "table-files-missing"
    os.rename(f"{warehouse}/moved", info.location)
    assert catalog.get_table("shop", "orders", with_snapshot=True) == info
    os.rename(info.location, f"{warehouse}/moved")
    catalog.drop_table("shop", "orders")
    assert catalog.list_tables("shop") == []


def test_another_tables_files_are_neither_shown_nor_removed(catalog: Catalog, warehouse: str) -> None:
    catalog.create_database("shop")
    orders = catalog.create_table("shop", ORDERS)
    items = catalog.create_table("shop", CreateTable.of("items", "id BIGINT"))
    os.rename(orders.location, f"{warehouse}/moved")
    os.rename(items.location, orders.location)
    with pytest.raises(Corrupt, match="contains another table") as caught:
        catalog.get_table("shop", "orders", with_snapshot=True)
    assert caught.value.code == "table-replaced"
    catalog.drop_table("shop", "orders")
    assert os.path.exists(orders.location)


def test_lists_follow_pages(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("embedded", "remote"):
        monkeypatch.setattr(f"catalog_service.client.{module}.PAGE_SIZE_MAX", 2)
    names = [f"d{i}" for i in range(5)]
    for name in names:
        catalog.create_database(name)
        catalog.create_table("d0", CreateTable.of(name, "id BIGINT", options={"log.system": "none"}))
    assert catalog.list_databases() == names
    assert catalog.list_tables("d0") == names


def test_a_moved_warehouse_is_whole(warehouse: str, tmp_path: Path) -> None:
    with connect(warehouse) as catalog:
        catalog.create_database("shop")
        catalog.create_table("shop", ORDERS)
    os.rename(warehouse, tmp_path / "elsewhere")
    with connect(str(tmp_path / "elsewhere")) as catalog:
        assert catalog.get_table("shop", "orders", with_snapshot=True).location == str(
            tmp_path / "elsewhere" / "shop" / "orders"
        )
    assert check(str(tmp_path / "elsewhere")) == ["shop.orders"]


def test_a_table_is_changed(catalog: Catalog) -> None:
    catalog.create_database("shop")
    catalog.create_table("shop", ORDERS)
    changed = AlterTable(changes=("ADD COLUMN note STRING FIRST", "COMMENT 'changed'", "SET checkpoint.interval = 3"))
    snapshot = catalog.alter_table("shop", "orders", changed)
    assert (snapshot.version, snapshot.operation, snapshot.notes) == (1, "ALTER TABLE", [])
    info = catalog.get_table("shop", "orders", with_snapshot=True)
    assert [column.name for column in info.columns] == ["note", "id", "amount", "tags"]
    assert info.comment == "changed"
    assert info.options == {"bucket": "4", "checkpoint.interval": "3"}
    rename = AlterTable(changes=("RENAME COLUMN tags TO labels", "SET schema.evolution-mode = metadata"))
    (note,) = catalog.alter_table("shop", "orders", rename).notes
    assert "polars refuses it" in note
    catalog.drop_table("shop", "orders")


def test_a_change_that_cannot_be_made(catalog: Catalog) -> None:
    catalog.create_database("shop")
    for error, code, change in (
        (NotFound, "table-not-found", "DROP COLUMN tags"),
        (InvalidRequest, "bad-change", "DROP tags"),
        (InvalidRequest, "column-in-use", "DROP COLUMN id"),
        (NotFound, "unknown-column", "DROP COLUMN zz"),
        (Unsupported, "rewrite-needed", "DROP COLUMN tags"),
    ):
        if code == "bad-change":
            catalog.create_table("shop", ORDERS)
        with pytest.raises(error) as caught:
            catalog.alter_table("shop", "orders", AlterTable(changes=("ADD COLUMN n INT", change)))
        assert caught.value.code == code
    info = catalog.get_table("shop", "orders", with_snapshot=True)
    assert info.current_snapshot is not None
    assert info.current_snapshot.version == 0
