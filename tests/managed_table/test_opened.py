"""A managed table as a process has opened it: what it remembers, what it sends, and what it refuses."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import tablestore
from filestore.errors import Corrupt, NotFound, Unsupported
from filestore.storage.local import LocalStorage
from log.table.systems import open_log
from managed_table.opened import OpenedTable
from tablestore import Store, Table
from tests.faults import FaultyStorage, OneStorage
from tests.opened import opened_again


@pytest.fixture
def storage() -> FaultyStorage:
    return FaultyStorage(LocalStorage())


@pytest.fixture
def store(tmp_path: Path, storage: FaultyStorage) -> Iterator[Store]:
    with tablestore.connect(tmp_path / "warehouse") as store:
        store._tables._storages = OneStorage(storage)
        store.create_database("shop")
        yield store


def make(store: Store, log: str = "embedded") -> Table:
    table = store.create_table("shop.orders", "id BIGINT", primary_key=["id"], options={"log.system": log})
    assert isinstance(table, Table)
    for number in range(5):
        table.write(pa.table({"id": [number]}))
    return table


def operations(storage: FaultyStorage) -> Counter[str]:
    found = Counter(call.operation for call in storage.calls)
    storage.calls.clear()
    return found


def test_a_warm_read_lists_nothing_and_reads_only_the_log_s_end(store: Store, storage: FaultyStorage) -> None:
    make(store).scan().to_arrow()
    operations(storage)
    assert store.table("shop.orders").scan().to_arrow().num_rows == 5
    # is there a next version, and is the newest one the same? Then each of the five files, whose bytes are checked
    assert operations(storage) == {"read": 2, "open_read": 5}


def test_what_others_committed_is_read_once(store: Store, storage: FaultyStorage, tmp_path: Path) -> None:
    make(store).scan().to_arrow()
    with tablestore.connect(tmp_path / "warehouse") as other:
        other.table("shop.orders").write(pa.table({"id": [100]}))
    operations(storage)
    assert store.table("shop.orders").filestore.state().version == 6
    assert operations(storage) == {"read": 3}
    assert store.table("shop.orders").filestore.state().version == 6
    assert operations(storage) == {"read": 2}


def test_a_table_of_the_same_name_that_was_made_later_is_another_one(store: Store) -> None:
    before = make(store)
    store.drop_table("shop.orders")
    after = make(store)
    assert before.opened.identity != after.opened.identity
    assert after.scan().to_arrow().num_rows == 5
    with pytest.raises(NotFound) as caught:
        before.scan()
    assert caught.value.code == "table-replaced"


def test_it_is_opened_only_if_the_table_is_still_there(store: Store) -> None:
    before = make(store)
    store.drop_table("shop.orders")
    with pytest.raises(NotFound) as caught:
        _ = opened_again(before.opened).filestore
    assert caught.value.code == "no-table"
    make(store)
    with pytest.raises(NotFound, match=r"shop\.orders was dropped and made again") as caught:
        _ = opened_again(before.opened).filestore
    assert caught.value.code == "table-replaced"


def test_it_is_sent_without_what_it_remembers(store: Store) -> None:
    opened = make(store).opened
    assert opened.filestore.state().version == 5
    opened.storage = LocalStorage()
    sent = pickle.dumps(opened)
    assert len(sent) < 700
    assert b"log-00" not in sent
    received = pickle.loads(sent)
    assert isinstance(received, OpenedTable)
    assert (received.identity, received._filestore) == (opened.identity, None)
    assert received.filestore.state().version == 5
    assert pickle.loads(pickle.dumps(opened.identity)) == opened.identity
    assert len(pickle.dumps(opened.identity)) < 500


def test_a_table_has_a_log_or_none(store: Store) -> None:
    table = make(store)
    with open_log(table.opened.required_log(), table.opened.ambient) as log:
        assert log.identity() == table.filestore.state().log.identity
        assert log.end_offsets() == table.filestore.state().log.offsets
    assert table.opened.own_log() == table.opened.required_log()
    store.drop_table("shop.orders")
    without = make(store, "none").opened
    assert without.log_config() is None
    with pytest.raises(Unsupported) as caught:
        without.own_log()
    assert caught.value.code == "no-log"


def test_a_log_that_is_not_the_tables_is_refused(store: Store) -> None:
    table = make(store)
    with open_log(table.opened.required_log(), table.opened.ambient) as log:
        log.drop()
        log.create()
    with pytest.raises(Corrupt) as caught:
        table.opened.own_log()
    assert caught.value.code == "log-replaced"


def test_a_log_has_the_newest_columns(store: Store) -> None:
    table = make(store)
    before = table.opened.required_log()
    table.alter("ADD COLUMN note STRING")
    assert table.opened.required_log().schema.names == ("id", "note")
    assert before.schema.names == ("id",)
