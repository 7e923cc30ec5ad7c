"""Found while reviewing the public functions: arguments that broke something, or were silently ignored."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tablestore
from catalog_service.client import connect as connect_catalog
from filestore.errors import InvalidRequest, NotFound
from filestore.model.definition import TableDefinition
from filestore.model.schema import Column, Schema
from tablestore.spark.opened import opened
from tests.tables import read_deltalake
from tests.warehouses import rows

TWICE = pa.struct([("a", pa.int64()), ("A", pa.string())])
NESTED = {
    "struct": TWICE,
    "array": pa.list_(TWICE),
    "map key": pa.map_(TWICE, pa.int64()),
    "map value": pa.map_(pa.string(), pa.list_(TWICE)),
    "struct in a struct": pa.struct([("s", pa.struct([("t", TWICE)]))]),
}


@pytest.mark.parametrize("arrow", NESTED.values(), ids=NESTED.keys())
def test_two_fields_of_one_name_are_refused_at_any_depth(folder: Path, arrow: pa.DataType) -> None:
    """delta-rs and polars could not open such a table any more."""
    with tablestore.connect(str(folder)) as store:
        store.create_database("shop")
        with pytest.raises(InvalidRequest, match="twice") as caught:
            store.create_table("shop.t", pa.schema([("id", pa.int64()), ("s", arrow)]))
        assert caught.value.code == "duplicate-column"
        assert store.list_tables("shop") == []


def test_fields_of_one_name_in_different_structs_are_fine(folder: Path) -> None:
    with tablestore.connect(str(folder)) as store:
        store.create_database("shop")
        table = store.create_table("shop.t", "a INT, s STRUCT<a: INT, t: STRUCT<a: INT>>")
        table.write(pa.table({"a": [1], "s": [{"a": 2, "t": {"a": 3}}]}))
        assert rows(table) == read_deltalake(table.location) == [{"a": 1, "s": {"a": 2, "t": {"a": 3}}}]


def test_a_stored_table_with_equal_names_can_still_be_opened() -> None:
    """The rule is for new tables: an old one must at least be listed, looked at and dropped."""
    schema = Schema((Column("s", TWICE),))
    assert Schema.from_delta(schema.to_delta()) == schema


BAD_TEXTS = ["\ud800", "a\udc00b", "a\0b"]


@pytest.mark.parametrize("bad", BAD_TEXTS, ids=ascii)
def test_text_that_cannot_be_stored_is_refused_wherever_it_stands(folder: Path, bad: str) -> None:
    """The embedded catalog raised UnicodeEncodeError, the service answered 500, and some tables could not be read."""
    with tablestore.connect(str(folder)) as store:
        store.create_database("shop")
        for columns, how in (
            ("id INT", {"comment": bad}),
            (f"id INT COMMENT '{bad}'", {}),
            (f"`{bad}` INT", {}),
            (f"s STRUCT<`{bad}`: INT>", {}),
            ("id INT", {"primary_key": [bad]}),
            ("id INT", {"options": {"log.kafka.properties.x": bad}}),
            ("id INT", {"options": {f"log.kafka.properties.{bad}": "1"}}),
            (Schema((Column("id", pa.int32(), comment=bad),)), {}),
            (Schema((Column(f"id{bad}", pa.int32()),)), {}),
        ):
            with pytest.raises(InvalidRequest) as caught:
                store.create_table("shop.t", columns, **how)
            assert caught.value.code == "bad-text"
        assert store.list_tables("shop") == []
        assert not (folder / "shop").exists()


def test_a_definition_takes_no_text_that_cannot_be_stored() -> None:
    plain = Schema((Column("id", pa.int32()),))
    for schema, options, comment in (
        (Schema((Column("\ud800", pa.int32()),)), {}, None),
        (Schema((Column("id", pa.int32(), comment="\0"),)), {}, None),
        (Schema((Column("s", pa.struct([("a\0", pa.int32())])),)), {}, None),
        (plain, {"log.kafka.properties.x": "\ud800"}, None),
        (plain, {}, "\ud800"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            TableDefinition.of(schema, (), (), options, comment)
        assert caught.value.code == "bad-text"


def test_an_arrow_comment_that_is_no_text() -> None:
    with pytest.raises(InvalidRequest) as caught:
        Schema.from_arrow(pa.schema([pa.field("id", pa.int32(), metadata={b"comment": b"\xff"})]))
    assert caught.value.code == "bad-text"


@pytest.mark.parametrize(
    "app",
    [
        ("tablestore.log.offset.0", 1),
        ("tablestore.x", 1),
        ("spark.0b0f6b52", 1),
        ("", 1),
        ("job", -1),
        ("job", 2**63),
        ("job\ud800", 1),
    ],
    ids=ascii,
)
def test_a_writers_number_is_its_own(folder: Path, app: tuple[str, int]) -> None:
    """With an id of the store's own, such as that of the log's offsets, the rows were dropped without a word."""
    with tablestore.connect(str(folder)) as store:
        store.create_database("shop")
        table = store.create_table("shop.t", "id BIGINT", primary_key=["id"])
        table.write(pa.table({"id": [1]}))
        with pytest.raises(InvalidRequest) as caught:
            table.write(pa.table({"id": [2]}), app=app)
        assert caught.value.code == ("bad-text" if "\ud800" in app[0] else "bad-app")
        assert rows(table) == [{"id": 1}]
        table.write(pa.table({"id": [2]}), app=("job", 2**63 - 1))
        assert rows(table) == read_deltalake(table.location) == [{"id": 1}, {"id": 2}]


def test_a_tilde_is_the_home_at_every_door(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line looked below the home, and `connect` made another warehouse in ``./~``."""
    home, here = folder / "home", folder / "here"
    here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    with tablestore.connect("~/lake") as store:
        assert store.target == f"{home}/lake"
        store.create_database("shop")
    with connect_catalog("~/lake") as catalog:
        assert catalog.list_databases() == ["shop"]
    assert list(here.iterdir()) == []
    assert (home / "lake" / "catalog.db").exists()


@pytest.mark.parametrize("target", ["", "a\0b", "~nobody-of-that-name/lake"], ids=ascii)
def test_a_path_that_is_none(target: str) -> None:
    """The empty string was the folder that the program happened to run in."""
    for door in (tablestore.connect, connect_catalog):
        with pytest.raises(InvalidRequest) as caught:
            door(target)
        assert caught.value.code == "bad-path"


def test_looking_into_a_catalog_that_is_not_there_makes_none(folder: Path) -> None:
    """A mistyped path showed an empty catalog, and left a folder with a database behind."""
    with tablestore.connect(str(folder / "typo")) as store:
        assert store.list_databases() == []
        store.drop_database("shop", if_exists=True)
        store.drop_table("shop.orders", if_exists=True)
        for look in (
            lambda: store.list_tables("shop"),
            lambda: store.table("shop.orders"),
            lambda: store.drop_table("shop.orders"),
            lambda: store.drop_database("shop"),
            lambda: store.create_table("shop.orders", "id INT"),
            lambda: opened({"path": "shop.orders", "catalog": str(folder / "typo")}),
        ):
            with pytest.raises(NotFound) as caught:
                look()
            assert caught.value.code == "database-not-found"
        with pytest.raises(InvalidRequest):
            store.create_database("no name")
        with pytest.raises(InvalidRequest):
            store.list_tables("no name")
        assert list(folder.iterdir()) == []
        store.create_database("shop")
        assert store.list_databases() == ["shop"]


def test_a_catalog_that_another_process_makes_is_found(folder: Path) -> None:
    with tablestore.connect(str(folder / "lake")) as early, tablestore.connect(str(folder / "lake")) as maker:
        assert early.list_databases() == []
        maker.create_database("shop")
        assert early.list_databases() == ["shop"]
        assert early.list_tables("shop") == []


def test_a_folder_without_a_catalog_gets_none_by_looking(folder: Path) -> None:
    with tablestore.connect(str(folder)) as store:
        assert store.list_databases() == []
    assert list(folder.iterdir()) == []
