"""Found while reviewing drops: a concurrent write made the dropped table's name unusable."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from filestore.errors import AlreadyExists, NotFound
from filestore.leases.locks import LockedLeases
from filestore.storage.local import LocalStorage
from tablestore import Store, Table
from tablestore.writing.write_job import TaskOutcome, WriteJob
from tests.warehouses import assert_whole, orphans, rows
from tests.writers import on, put, runner

LOGS = ["embedded", "none"]


def make(store: Store, log: str = "embedded") -> Table:
    return store.create_table(
        "shop.orders", "id BIGINT, name STRING", primary_key=["id"], options={"bucket": "2", "log.system": log}
    )


def test_no_lease_creates_a_dropped_tables_folder_again(store: Store) -> None:
    orders = make(store)
    store.drop_table("shop.orders")
    with pytest.raises(NotFound) as caught, orders.filestore.leases.hold("c"):
        pass
    assert caught.value.code == "table-replaced"
    assert not os.path.exists(orders.location)


def test_a_drop_just_before_a_writes_lease_leaves_the_name_free(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease created the folder again with its file: all later creations failed with ``location-not-empty``."""
    orders = make(store)

    hold = LockedLeases.hold

    def drop_and_hold(leases: LockedLeases, commit_id: str) -> AbstractContextManager[None]:
        store.drop_table("shop.orders")
        return hold(leases, commit_id)

    monkeypatch.setattr(LockedLeases, "hold", drop_and_hold)
    with pytest.raises(NotFound) as caught:
        put(orders, 1)
    assert caught.value.code == "table-replaced"
    assert not os.path.exists(orders.location)
    monkeypatch.undo()
    put(make(store), 2)


def test_no_lease_is_taken_where_only_the_folder_is_left(folder: Path) -> None:
    (folder / "bucket-00000").mkdir()
    with pytest.raises(NotFound), LockedLeases(str(folder)).hold("c"):
        pass
    assert os.listdir(folder) == ["bucket-00000"]


def test_a_drop_between_the_taking_of_a_lease_and_the_look_at_the_table(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "_delta_log").mkdir()

    def acquire_and_drop(path: Path) -> int:
        (folder / "_delta_log").rmdir()
        return os.open(path, os.O_CREAT | os.O_RDWR)

    monkeypatch.setattr("filestore.leases.locks._acquire", acquire_and_drop)
    with pytest.raises(NotFound), LockedLeases(str(folder)).hold("c"):
        pytest.fail("there is no table to write")
    assert os.listdir(folder / "_log" / "leases") == []


@pytest.mark.parametrize("log", LOGS)
def test_a_drop_in_the_middle_of_a_write_leaves_the_name_free(store: Store, log: str) -> None:
    """The writer created the folder again; all later creations failed with ``location-not-empty``."""
    orders = make(store, log)
    put(orders, 1)
    inner = runner(orders, 2, 3)

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        store.drop_table("shop.orders")
        return inner(job)

    with pytest.raises(NotFound):
        on(orders, LocalStorage()).write(run)
    again = make(store, log)
    put(again, 4)
    assert [row["id"] for row in rows(again)] == [4]
    assert_whole(again, leftovers=False)


@pytest.mark.parametrize("log", LOGS)
def test_a_writer_killed_after_the_drop_leaves_the_name_free(store: Store, log: str) -> None:
    """The killed writer's files belong to no table and are not removed: the doctor of the new table lists them."""
    location = Path(make(store, log).location)
    store.drop_table("shop.orders")
    strays = [
        f"bucket-00001/{uuid.uuid4()}.parquet",
        f"day-2024-02-29/bucket-00000/{uuid.uuid4()}.parquet",
        f"_runs/bucket-00000/{uuid.uuid4()}.parquet",
        f"_runs/staged-{uuid.uuid4()}.parquet",
        f"deletion_vector_{uuid.uuid4()}.bin",
    ]
    for stray in [*strays, f"_log/leases/{uuid.uuid4()}"]:
        (location / stray).parent.mkdir(parents=True, exist_ok=True)
        (location / stray).write_bytes(b"half a file")
    orders = make(store, log)
    put(orders, 1)
    assert [row["id"] for row in rows(orders)] == [1]
    assert_whole(orders)
    assert len(orphans(orders)) == len(strays)
    store.drop_table("shop.orders")
    assert not location.exists()


def test_an_empty_folder_of_leases_is_no_hindrance(store: Store) -> None:
    location = Path(make(store).location)
    store.drop_table("shop.orders")
    (location / "_log" / "leases").mkdir(parents=True)
    put(make(store), 1)


@pytest.mark.parametrize(
    "file",
    [
        "_delta_log/00000000000000000001.json",
        "_log/bucket-00000.sqlite",
        "_log/log.json",
        "bucket-00000/mine.parquet",
        "bucket-00000/0b0f6b52-6f0c-4d3e-9f0e-2f0a1c1d7a55.csv",
        "0b0f6b52-6f0c-4d3e-9f0e-2f0a1c1d7a55.parquet",
    ],
)
def test_files_of_others_still_hold_the_place(store: Store, file: str) -> None:
    path = Path(store.target, "shop", "orders", file)
    path.parent.mkdir(parents=True)
    path.touch()
    with pytest.raises(AlreadyExists) as caught:
        make(store)
    assert caught.value.code == "location-not-empty"
    assert path.exists()
    shutil.rmtree(path.parent)
    make(store)
