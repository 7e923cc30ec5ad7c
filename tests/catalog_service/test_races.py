"""Concurrent requests: threads and processes use the same name, and no request disturbs one that is in progress."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from catalog_service.client import CreateTable, connect
from catalog_service.database.locks import FileLocks
from catalog_service.server import serving
from catalog_service.wire.databases import CreateDatabase
from filestore.errors import AlreadyExists, Conflict, NotFound, TableStoreError, Unavailable
from tests.catalog_service.faults import (
    AMBIENT,
    Fault,
    check,
    orders,
    restarted,
    running_service,
    with_database,
)
from tests.processes import PROCESSES

ORDERS = CreateTable.of("orders", "id BIGINT, name STRING", primary_key=["id"])


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("if_not_exists", [False, True])
@pytest.mark.parametrize("over", ["http", "embedded"])
def test_processes_race_to_create_one_table(warehouse: str, over: str, if_not_exists: bool) -> None:
    count = 5
    with serving(warehouse) as url:
        with connect(url) as catalog:
            catalog.create_database("shop")
        target = url if over == "http" else warehouse
        barrier, results = PROCESSES.Barrier(count), PROCESSES.Queue()
        arguments = (target, if_not_exists, barrier, results)
        processes = [PROCESSES.Process(target=create_once, args=arguments) for _ in range(count)]
        for process in processes:
            process.start()
        answers = [results.get(timeout=300) for _ in processes]
        for process in processes:
            process.join(300)
    ids = [answer for answer in answers if answer != "table-exists"]
    assert len(set(ids)) == 1
    assert len(ids) == (count if if_not_exists else 1)
    assert check(warehouse) == ["shop.orders"]


def create_once(target: str, if_not_exists: bool, barrier: object, results: object) -> None:
    try:
        with connect(target) as catalog:
            barrier.wait(300)
            results.put(catalog.create_table("shop", ORDERS, if_not_exists=if_not_exists).table_id)
    except AlreadyExists as error:
        results.put(error.code)
    except Exception as error:
        results.put(repr(error))
        raise


@pytest.mark.slow
def test_threads_create_drop_and_drop_databases_at_random(warehouse: str) -> None:
    """In whatever order they run, everything that is left is whole."""
    names = ["a", "b"]

    def work(seed: int) -> None:
        service = running_service(warehouse)
        for step in range(15):
            table = CreateTable.of(names[(seed + step) % 2], "id BIGINT", options={"log.system": "none"})
            try:
                if (seed * 7 + step) % 5 == 0:
                    service.drop_database("shop", cascade=step % 2 == 0)
                elif (seed + step) % 3 == 0:
                    service.drop_table("shop", table.name)
                else:
                    service.create_database(CreateDatabase(name="shop"), if_not_exists=True)
                    service.create_table("shop", table)
            except (AlreadyExists, NotFound, Conflict):
                pass
        service.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    check(warehouse)


class Slow:
    """A creation that waits between two steps, until it may go on."""

    def __init__(self, warehouse: str) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.service = running_service(warehouse, Fault("create_files"))
        self.service.striker.strike = self._wait
        self._thread = threading.Thread(target=self._create)
        self.outcome: object = None

    def _wait(self) -> None:
        self.reached.set()
        assert self.go_on.wait(300)

    def _create(self) -> None:
        try:
            self.outcome = self.service.create_table("shop", orders())[0].table_id
        except TableStoreError as error:
            self.outcome = error

    def __enter__(self) -> Slow:
        self._thread.start()
        assert self.reached.wait(300)
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        self._thread.join(300)
        self.service.close()


def test_start_up_leaves_living_work_alone(warehouse: str) -> None:
    with_database(warehouse)
    with Slow(warehouse) as slow:
        service, report = restarted(warehouse)
        assert report == []
        assert service.list_tables("shop").tables == []
    assert service.get_table("shop", "orders").table_id == slow.outcome
    assert check(warehouse) == ["shop.orders"]


def test_others_wait_for_living_work_and_then_give_up(warehouse: str) -> None:
    with_database(warehouse)
    with Slow(warehouse):
        impatient = running_service(warehouse, wait_s=0.1)
        for call in (
            lambda: impatient.create_table("shop", orders(), if_not_exists=True),
            lambda: impatient.drop_table("shop", "orders"),
        ):
            with pytest.raises(Unavailable, match="retry") as caught:
                call()
            assert caught.value.code == "busy"
        with pytest.raises(Conflict):  # it is about to have a table
            impatient.drop_database("shop")
    assert check(warehouse) == ["shop.orders"]


def test_a_waiting_creation_finds_the_table(warehouse: str) -> None:
    with_database(warehouse)
    with ThreadPoolExecutor(1) as pool:
        with Slow(warehouse) as slow:
            waiting = pool.submit(running_service(warehouse).create_table, "shop", orders(), if_not_exists=True)
        info, created = waiting.result(60)
    assert (info.table_id, created) == (slow.outcome, False)


def test_a_cascade_takes_a_table_that_is_just_being_made(warehouse: str) -> None:
    with_database(warehouse)
    with ThreadPoolExecutor(1) as pool:
        with Slow(warehouse) as slow:
            service = running_service(warehouse)
            dropping = pool.submit(service.drop_database, "shop", cascade=True)
            wait_until(lambda: not service.list_databases().databases)
            with pytest.raises(NotFound):
                service.create_table("shop", orders(name="items"))
        dropping.result(60)
    assert isinstance(slow.outcome, str | NotFound)  # made and dropped again, or dropped while it answered
    assert check(warehouse) == []


def wait_until(condition: object) -> None:
    pause = threading.Event()
    for _ in range(3000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it did not come to pass in 30 s")


# ---------------------------------------------------------------------------------------------- the locks


def test_a_lock_excludes_threads_and_leaves_no_file(tmp_path: Path) -> None:
    locks = FileLocks(tmp_path / "locks", AMBIENT)
    inside = []

    def work(number: int) -> None:
        for _ in range(50):
            with locks.hold("name"):
                inside.append(number)
                assert inside == [number]
                inside.remove(number)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert os.listdir(tmp_path / "locks") == []


def test_names_do_not_hinder_one_another(tmp_path: Path) -> None:
    locks = FileLocks(tmp_path, AMBIENT, wait_s=0.05)
    with locks.hold("a"), locks.hold("b"), locks.try_hold("a") as held:
        assert not held
        with pytest.raises(Unavailable), locks.hold("b"):
            pass


def test_a_lock_is_free_after_an_error(tmp_path: Path) -> None:
    locks = FileLocks(tmp_path, AMBIENT)
    with pytest.raises(ZeroDivisionError), locks.hold("a"):
        _ = 1 / 0
    with locks.try_hold("a") as held:
        assert held


def test_a_lock_dies_with_its_process(tmp_path: Path) -> None:
    locks = FileLocks(tmp_path, AMBIENT)
    holding = PROCESSES.Event()
    process = PROCESSES.Process(target=hold_for_ever, args=(tmp_path, holding))
    process.start()
    assert holding.wait(300)
    with locks.try_hold("a") as held:
        assert not held
    process.kill()
    process.join(300)
    with locks.try_hold("a") as held:
        assert held
    assert os.listdir(tmp_path) == []


def hold_for_ever(folder: Path, holding: object) -> None:
    with FileLocks(folder, AMBIENT).hold("a"):
        holding.set()
        threading.Event().wait()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "locks").touch()
    with pytest.raises(Unavailable) as caught, FileLocks(tmp_path / "locks", AMBIENT).hold("a"):
        pass
    assert caught.value.code == "catalog-read-only"


def test_a_lock_file_that_its_holder_removes_right_now_is_not_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has the removed file open would lock a file that no other process opens."""
    locks, opened = FileLocks(tmp_path, AMBIENT), os.open
    with ExitStack() as holder:
        assert holder.enter_context(locks.try_hold("shop.orders"))

        def slow(path: Path, flags: int, mode: int = 0o777) -> int:
            handle = opened(path, flags, mode)
            holder.close()
            return handle

        monkeypatch.setattr(os, "open", slow)
        with FileLocks(tmp_path, AMBIENT).try_hold("shop.orders") as held:
            assert not held
        monkeypatch.undo()
    with locks.try_hold("shop.orders") as held:
        assert held
