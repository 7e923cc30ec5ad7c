"""Tables are entered in a catalog again after its database was lost: with their keys, options, versions and views."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tablestore
from filestore.errors import AlreadyExists, InvalidRequest, NotFound, TableStoreError, Unavailable, Unsupported
from filestore.storage.local import LocalStorage
from tablestore import Store
from tests.folders import memory_folder
from tests.tables import assert_healthy


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def lose_database(warehouse: Path) -> None:
    """Removes the catalog's database, with what SQLite and the locks of names have beside it."""
    for path in warehouse.glob("catalog.db*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def rows(table: Any) -> list[dict[str, Any]]:
    return sorted(table.scan().to_pylist(), key=repr)


def error_of(store: Store, place: Path | None = None, name: str | None = None) -> TableStoreError:
    (found,) = store.register(place, name)
    assert found.error is not None
    return found.error


def test_a_lost_database_is_made_again_from_the_warehouse(warehouse: Path) -> None:
    with tablestore.connect(warehouse) as store:
        for name in ("shop", "other"):
            store.create_database(name)
        options = {"bucket": "2", "merge-engine": "partial-update", "changelog-producer": "lookup"}
        orders = store.create_table("shop.orders", "id BIGINT, a INT, b INT", primary_key=["id"], options=options)
        orders.write([{"id": 1, "a": 1}, {"id": 2, "b": 2}])
        orders.alter("ADD COLUMN c STRING")
        orders.write([{"id": 1, "b": 5, "c": "x"}])
        days = store.create_table("other.days", "day DATE, n INT", partition_by=["day"], comment="kept")
        days.write([{"day": "2026-01-31", "n": 1}])
        planets = store.create_table("shop.planets", "id BIGINT, name STRING", primary_key=["id"])
        planets.write([{"id": 1, "name": "Earth"}])
        join = store.maintain_join("shop.joined", left="shop.orders", right="shop.planets", on="id")
        join.refresh()
        before = {n: (rows(store.table(n)), store.table(n).definition) for n in ("shop.orders", "other.days")}
        consumer = orders.follow(consumer="reader", stop=3, version=2)
        changes = [batch.to_pylist() for batch in consumer]
    lose_database(warehouse)
    with tablestore.connect(warehouse) as store:
        assert store.list_databases() == []
        found = store.register()
        assert [(one.name, one.created, one.notes, one.error) for one in found] == [
            (name, True, (), None) for name in ("other.days", "shop.joined", "shop.orders", "shop.planets")
        ]
        for name, (expected, definition) in before.items():
            table = store.table(name)
            assert (rows(table), table.definition) == (expected, definition)
            assert table.examine().healthy
        orders = store.table("shop.orders")
        assert [batch.to_pylist() for batch in orders.follow(version=2, stop=3)] == changes
        orders.write([{"id": 1, "a": 7}, {"id": 9, "a": 9}])
        assert orders.get([1]).to_pylist() == [{"id": 1, "a": 7, "b": 5, "c": "x"}]
        store.table("shop.planets").write([{"id": 2, "name": "Mars"}])
        view = store.maintained_view("shop.joined")
        view.refresh()
        assert len(rows(store.table("shop.joined"))) == 2
        assert store.examine("shop.joined").healthy
        assert not any(one.created for one in store.register()), "a repetition changes nothing"
        assert not any(one.created for one in store.register(warehouse / "shop"))
        store.drop_table("shop.orders")
        assert not (warehouse / "shop" / "orders").exists()


def two(warehouse: Path) -> Store:
    store = tablestore.connect(warehouse)
    store.create_database("shop")
    for name in ("a", "b"):
        store.create_table(f"shop.{name}", "id BIGINT", primary_key=["id"]).write([{"id": 1}])
    return store


def test_a_renamed_table_returns_under_the_name_of_its_folder_or_a_given_one(warehouse: Path) -> None:
    with two(warehouse) as store:
        store.rename_table("shop.b", "shop.z")
        store.rename_table("shop.a", "shop.c")
        store.create_table("shop.a", "n INT").write([{"n": 5}])  # in a folder with a hidden name
        (hidden,) = (warehouse / "shop").glob("a-*")
    lose_database(warehouse)
    with tablestore.connect(warehouse) as store:
        found = {Path(one.location).name: one for one in store.register()}
        assert (found["b"].name, found["b"].created) == ("shop.b", True)
        for folder in ("a", hidden.name):
            error = found[folder].error
            assert isinstance(error, AlreadyExists)
            assert error.code == "several-folders"
            for name in ("a", hidden.name):
                assert f"{warehouse}/shop/{name} (version 1, last commit 2" in error.message
            assert "--name a" in error.message
        assert store.list_tables("shop") == ["b"], "neither has taken the name"
        (one,) = store.register(warehouse / "shop" / "a")
        assert (one.name, rows(store.table("shop.a"))) == ("shop.a", [{"id": 1}])
        assert error_of(store, hidden).code == "table-exists"
        (one,) = store.register(hidden, "d")
        assert (one.name, rows(store.table("shop.d"))) == ("shop.d", [{"n": 5}])
        store.rename_table("shop.a", "shop.c")
        (one,) = store.register(warehouse / "shop" / "a")
        assert (one.name, one.created) == ("shop.c", False)
        assert error_of(store, warehouse / "shop" / "a", "e").code == "table-registered"


def test_a_copy_of_a_table_is_refused(warehouse: Path) -> None:
    with two(warehouse) as store:
        shutil.copytree(warehouse / "shop" / "a", warehouse / "shop" / "copy")
        error = error_of(store, warehouse / "shop" / "copy")
        assert (error.code, type(error)) == ("table-registered", AlreadyExists)
        assert "it is shop.a in the folder shop/a (version 1), and this one (version 1) is a copy" in error.message
        assert "delete the copy" not in error.message, "which of them is the right one is not known"
    lose_database(warehouse)
    with tablestore.connect(warehouse) as store:
        found = {Path(one.location).name: one for one in store.register()}
        for folder in ("a", "copy"):
            error = found[folder].error
            assert error is not None
            assert error.code == "several-folders" and "all but one are copies" in error.message
        assert store.list_tables("shop") == ["b"]
        (one,) = store.register(warehouse / "shop" / "copy", "a")
        assert (one.name, rows(store.table("shop.a"))) == ("shop.a", [{"id": 1}])


def test_a_stale_copy_does_not_take_the_place_of_the_table(warehouse: Path) -> None:
    """Its folder comes first in the alphabet."""
    with two(warehouse) as store:
        shutil.copytree(warehouse / "shop" / "b", warehouse / "shop" / "a-backup")
        shutil.copytree(warehouse / "shop" / "b", warehouse / "shop" / "aaa")
        store.table("shop.b").write([{"id": 2}])
    lose_database(warehouse)
    with tablestore.connect(warehouse) as store:
        errors = {Path(one.location).name: one.error for one in store.register()}
        message = str(errors["b"])
        assert [name for name, error in errors.items() if error is None] == ["a"]
        assert "shop/b (version 2, " in message and "shop/aaa (version 1, " in message
        (one,) = store.register(warehouse / "shop" / "b")
        assert (one.name, rows(store.table("shop.b"))) == ("shop.b", [{"id": 1}, {"id": 2}])
        stale = error_of(store, warehouse / "shop" / "aaa")
        assert "shop/b (version 2), and this one (version 1)" in stale.message


FOLDERS = ["a", "a-00000000", "a-11111111", "b", "b-00000000", "c", "Upper", "c-old"]
REFUSED = ("Upper", "c-old")
TABLES = ["x", "y", "z", "broken"]


@pytest.fixture(scope="module")
def originals() -> Iterator[Path]:
    """The folders of tables, of which tests make their warehouses."""
    with memory_folder() as folder:
        with tablestore.connect(folder) as store:
            store.create_database("shop")
            for name in TABLES:
                store.create_table(f"shop.{name}", "id BIGINT").write([{"id": 1}])
        entry = folder / "shop" / "broken" / "_delta_log" / f"{0:020d}.json"
        entry.write_bytes(entry.read_bytes()[:50])
        yield folder / "shop"


@given(
    placed=st.dictionaries(st.sampled_from(FOLDERS), st.sampled_from(TABLES), min_size=1),
    first=st.lists(st.tuples(st.sampled_from(FOLDERS), st.sampled_from(["a", "d", None])), max_size=2),
)
def test_only_folders_without_a_rival_are_registered(
    originals: Path, placed: dict[str, str], first: list[tuple[str, str | None]]
) -> None:
    """The oracle: of the folders that the catalog does not know, whoever shares a table or a name is left out."""
    with memory_folder() as folder, tablestore.connect(folder) as store:
        for name, table in placed.items():
            shutil.copytree(originals / table, folder / "shop" / name)
        names: dict[str, str] = {}  # of the registered folders
        for name, wanted in first:
            if name in placed:
                (one,) = store.register(folder / "shop" / name, wanted)
                names |= {name: one.name.partition(".")[2]} if one.name else {}
        assert "broken" not in {placed[name] for name in names}
        known = {placed[name] for name in names}
        rivals = [name for name in placed if name not in names and placed[name] not in known]
        for name in rivals:
            others = [other for other in rivals if other != name]
            shares = any(
                (other.partition("-")[0] == name.partition("-")[0] and other not in REFUSED)
                or (placed[other] == placed[name] and placed[name] != "broken")
                for other in others
            )
            free = name.partition("-")[0] not in names.values()
            if not shares and free and placed[name] != "broken" and name not in REFUSED:
                names[name] = name.partition("-")[0]
        store.register()
        assert not any(one.created for one in store.register()), "a repetition changes nothing"
        assert sorted(store.list_tables("shop") if "shop" in store.list_databases() else []) == sorted(names.values())
        for name, shown in names.items():
            assert store.table(f"shop.{shown}").location == str(folder / "shop" / name)


def test_a_folder_that_cannot_be_read_now_does_not_keep_the_others_out(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tablestore.connect(warehouse) as store:
        store.create_database("shop")
        for name in ("a", "b", "c"):
            store.create_table(f"shop.{name}", "id BIGINT").write([{"id": 1}])
    lose_database(warehouse)
    read = LocalStorage.read

    def refusing(storage: LocalStorage, path: str) -> bytes:
        if "/shop/b/" in path:
            raise Unavailable("the storage does not answer", code="storage-error")
        return read(storage, path)

    with tablestore.connect(warehouse) as store:
        with monkeypatch.context() as patch:
            patch.setattr(LocalStorage, "read", refusing)
            found = {Path(one.location).name: one.error for one in store.register()}
        assert {name: error is None for name, error in found.items()} == {"a": True, "b": False, "c": True}
        assert [one.name for one in store.register() if one.created] == ["shop.b"]


def test_a_restored_folder_is_registered_after_a_drop(warehouse: Path, tmp_path: Path) -> None:
    with two(warehouse) as store:
        shutil.copytree(warehouse / "shop" / "a", tmp_path / "backup")
        store.drop_table("shop.a")
        shutil.copytree(tmp_path / "backup", warehouse / "shop" / "a")
        with pytest.raises(AlreadyExists) as caught:
            store.create_table("shop.a", "id BIGINT")
        assert (caught.value.code, "tablestore register" in caught.value.message) == ("location-not-empty", True)
        (one,) = store.register(warehouse / "shop" / "a")
        assert (one.created, rows(store.table("shop.a"))) == (True, [{"id": 1}])
        assert_healthy(store.table("shop.a").filestore)


def test_what_is_no_table_of_ours_is_refused(warehouse: Path, tmp_path: Path) -> None:
    from deltalake import write_deltalake

    with two(warehouse) as store:
        write_deltalake(str(warehouse / "shop" / "foreign"), pa.table({"id": [1]}))
        assert error_of(store, warehouse / "shop" / "foreign").code == "not-a-managed-table"
        shutil.copytree(warehouse / "shop" / "a", warehouse / "shop" / "broken")
        entry = warehouse / "shop" / "broken" / "_delta_log" / f"{0:020d}.json"
        entry.write_bytes(entry.read_bytes()[:50])
        assert error_of(store, warehouse / "shop" / "broken").code == "bad-log-entry"
        shutil.copytree(warehouse / "shop" / "a", warehouse / "shop" / "Upper")
        assert error_of(store, warehouse / "shop" / "Upper").code == "bad-name"
        for place in (tmp_path, tmp_path / "lakeside", warehouse / "shop" / "a" / "_delta_log"):
            with pytest.raises(InvalidRequest) as caught:
                store.register(place)
            assert caught.value.code == "outside-warehouse"
        with pytest.raises(NotFound) as missing:
            store.register(warehouse / "shop" / "nothing")
        assert missing.value.code == "no-table"
        with pytest.raises(InvalidRequest, match="one name was given"):
            store.register(warehouse / "shop", "x")
        assert [one.created for one in store.register() if one.error is None] == [False, False]


def test_a_path_without_tables_gets_no_catalog(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").touch()
    with tablestore.connect(tmp_path) as store, pytest.raises(NotFound):
        store.register()
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


def test_the_folder_of_a_table_whose_files_were_replaced(warehouse: Path, tmp_path: Path) -> None:
    with two(warehouse) as store:
        shutil.rmtree(warehouse / "shop" / "a")
        shutil.move(warehouse / "shop" / "b", warehouse / "shop" / "a")
        store.drop_table("shop.b", if_exists=True)
        assert error_of(store, warehouse / "shop" / "a", "d").code == "folder-taken"
        store.drop_table("shop.a")
        (one,) = store.register(warehouse / "shop" / "a")
        assert (one.created, rows(store.table("shop.a"))) == (True, [{"id": 1}])


def test_a_missing_log_is_noted(warehouse: Path) -> None:
    with two(warehouse):
        pass
    lose_database(warehouse)
    shutil.rmtree(warehouse / "shop" / "a" / "_log")
    with tablestore.connect(warehouse) as store:
        a, b = store.register()
        assert (a.created, b.created, b.notes) == (True, True, ())
        assert "there is no log" in a.notes[0]


def test_commits_that_the_database_held_need_such_a_database_again(warehouse: Path) -> None:
    with tablestore.connect(warehouse, commits="catalog") as store:
        store.create_database("shop")
        table = store.create_table("shop.a", "id BIGINT", options={"log.system": "none"})
        table.write([{"id": 1}])
    lose_database(warehouse)
    with tablestore.connect(warehouse) as store:
        assert error_of(store).code == "other-commits"
        assert store.list_databases() == [], "nothing is decided yet"
    with tablestore.connect(warehouse, commits="catalog") as store:
        assert [one.created for one in store.register()] == [True]
        store.table("shop.a").write([{"id": 2}])
        assert rows(store.table("shop.a")) == [{"id": 1}, {"id": 2}]
        assert_healthy(store.table("shop.a").filestore)


def test_a_service_says_where_to_register() -> None:
    with tablestore.connect("http://127.0.0.1:9") as store, pytest.raises(Unsupported) as caught:
        store.register()
    assert caught.value.code == "not-with-a-service"
