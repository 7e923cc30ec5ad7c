"""A step fails, or the process dies, at each step: a retry or a restart leaves a whole table or nothing."""

from __future__ import annotations

import contextlib
import shutil

import pytest

from catalog_service.wire.databases import CreateDatabase
from filestore.errors import AlreadyExists, NotFound, TableStoreError
from tests.catalog_service.faults import (
    Fault,
    act,
    check,
    orders,
    restarted,
    run_and_die,
    running_service,
    with_database,
)
from tests.depth import sampled

# Methods in the order of their calls, as the docstring of lifecycle.py draws it; `call` numbers calls of one method.
CREATE = ("table", "has_folder", "check_new", "add_table", "create_log", "create_files", "set_state")
RENAME = ("table", "table", "table", "leftover", "table", "rename")
DROP = ("table", "set_state", "drop_log", "delete_files", "remove_table")
DROP_DATABASE = (
    "mark_database_dropping",
    "drop_with_database",
    "drop_log",
    "delete_files",
    "remove_table",
    "delete_database_folder",
    "remove_database",
)

_ROW_IS_ADDED = CREATE.index("add_table") + 1
LOGS = ("embedded", "kafka")
STEPS = [
    *(("create", log, method, 1) for log in LOGS for method in CREATE),
    *(("drop", log, method, 1) for log in LOGS for method in DROP),
    # its two tables have one log of each kind
    *(("drop-database", "both", method, 1) for method in DROP_DATABASE),
    *(
        ("drop-database", "both", method, 2)
        for method in ("drop_with_database", "drop_log", "delete_files", "remove_table")
    ),
]


def prepare(warehouse: str, action: str, log: str) -> None:
    if action == "drop-database":
        with_database(warehouse, orders("embedded", name="items"), orders("kafka"))
    else:
        with_database(warehouse, *([orders(log)] if action == "drop" else []))


def retry(warehouse: str, action: str, log: str, *, done: bool = False) -> None:
    """Repeats the request. If it had been done before it failed, a creation finds its table, and a drop finds none."""
    service = running_service(warehouse)
    allowed = NotFound if action != "create" else AlreadyExists if done else ()
    with contextlib.suppress(allowed):
        act(service, action, log)
    service.close()


def expect_done(warehouse: str, action: str) -> None:
    assert check(warehouse) == (["shop.orders"] if action == "create" else [])
    service = running_service(warehouse)
    databases = [d.name for d in service.list_databases().databases]
    assert databases == ([] if action == "drop-database" else ["shop"])
    service.close()


# A kill before a step is a kill after the step before it, so one kill for each step is enough.
@pytest.mark.few(4)
@pytest.mark.parametrize(("action", "log", "method", "call"), sampled(STEPS, 4, test=3, names=4))
def test_a_kill_leaves_what_start_up_or_a_retry_makes_whole(
    warehouse: str, action: str, log: str, method: str, call: int
) -> None:
    prepare(warehouse, action, log)
    before = check(warehouse)
    run_and_die(warehouse, action, log, Fault(method, after=True, call=call, crash=True))
    copy = f"{warehouse}-copy"
    shutil.copytree(warehouse, copy)

    service, _ = restarted(warehouse)
    seen = check(warehouse)
    assert seen in ([], ["shop.orders"] if action == "create" else before)
    assert service._lifecycle.recover() == []
    service.close()

    # A service that was running all the time repairs it, too, without a restart.
    done = action == "create" and method == "set_state"
    retry(copy, action, log, done=done)
    expect_done(copy, action)


@pytest.mark.few(12)
@pytest.mark.slow
@pytest.mark.parametrize("sticky", [False, True], ids=["once", "for-good"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("action", "log", "method", "call"),
    # a drop succeeds though the broker does not answer: see test_log_debts.py
    [step for step in STEPS if step != ("drop-database", "both", "drop_log", 2)],
)
def test_an_error_leaves_all_or_nothing(
    warehouse: str, action: str, log: str, method: str, call: int, after: bool, sticky: bool
) -> None:
    prepare(warehouse, action, log)
    service = running_service(warehouse, Fault(method, after=after, call=call, sticky=sticky))
    with pytest.raises(TableStoreError) as caught:
        act(service, action, log)
    # A table whose topic alone could not be removed is dropped, and the error says so.
    left = (action, log, method) == ("drop", "kafka", "drop_log") and not sticky
    assert caught.value.code == ("log-left" if left else "injected")
    service.close()
    if action == "create" and not sticky:
        assert check(warehouse) == []  # it was undone at once, without a retry
    done = action == "create" and method == "set_state" and after and sticky
    retry(warehouse, action, log, done=done)
    expect_done(warehouse, action)


def test_every_step_is_listed_here(warehouse: str) -> None:
    """The list names every step of lifecycle.py, so that the tests kill a new one, too."""
    service = running_service(warehouse)
    service.create_database(CreateDatabase(name="shop"))
    for action, methods in (("create", CREATE), ("drop", DROP)):
        service.striker.calls.clear()
        act(service, action, "embedded")
        done = [c for c in service.striker.calls if c != "state"]  # the answer's current snapshot
        assert done == list(methods)
    service.create_table("shop", orders())
    service.striker.calls.clear()
    act(service, "drop-database", "embedded")
    reads = {"database", "table_names", "leftover"}
    assert [c for c in service.striker.calls if c not in reads] == list(DROP_DATABASE)
    service.close()


@pytest.mark.parametrize("method", CREATE[_ROW_IS_ADDED:])
def test_another_definition_takes_the_place_of_a_dead_creation(warehouse: str, method: str) -> None:
    with_database(warehouse)
    run_and_die(warehouse, "create", "kafka", Fault(method, crash=True))
    service = running_service(warehouse)
    info, created = service.create_table("shop", orders(sql_schema="id STRING, other INT"))
    assert created
    assert [c.name for c in info.columns] == ["id", "other"]
    assert check(warehouse) == ["shop.orders"]


@pytest.mark.parametrize("method", CREATE[_ROW_IS_ADDED:])
def test_a_dead_creation_is_completed_with_its_own_id(warehouse: str, method: str) -> None:
    with_database(warehouse)
    run_and_die(warehouse, "create", "kafka", Fault(method, crash=True))
    service = running_service(warehouse)
    dead = service._repository.leftover("shop", "orders")
    info, created = service.create_table("shop", orders("kafka"), if_not_exists=True)
    assert created
    assert info.table_id == dead.table_id
    assert check(warehouse) == ["shop.orders"]


@pytest.mark.parametrize("method", CREATE[_ROW_IS_ADDED:])
def test_a_dead_creation_is_no_table(warehouse: str, method: str) -> None:
    with_database(warehouse)
    run_and_die(warehouse, "create", "embedded", Fault(method, crash=True))
    service = running_service(warehouse)
    assert service.list_tables("shop").tables == []
    with pytest.raises(NotFound):
        service.get_table("shop", "orders")
    with pytest.raises(NotFound):
        service.drop_table("shop", "orders")
    assert check(warehouse) == []  # the drop has undone it


@pytest.mark.parametrize("method", DROP[2:])
def test_a_dead_drop_frees_its_name_for_a_new_table(warehouse: str, method: str) -> None:
    with_database(warehouse, orders("kafka"))
    run_and_die(warehouse, "drop", "kafka", Fault(method, crash=True))
    service = running_service(warehouse)
    assert service.list_tables("shop").tables == []
    assert service.create_table("shop", orders("kafka"))[1]
    assert check(warehouse) == ["shop.orders"]


@pytest.mark.parametrize("method", DROP_DATABASE[1:])
def test_a_dead_cascade_hides_everything_and_frees_its_name(warehouse: str, method: str) -> None:
    with_database(warehouse, orders(), orders("kafka", name="items"))
    run_and_die(warehouse, "drop-database", "embedded", Fault(method, crash=True))
    service = running_service(warehouse)
    assert service.list_databases().databases == []
    for call in (lambda: service.list_tables("shop"), lambda: service.create_table("shop", orders())):
        with pytest.raises(NotFound):
            call()
    assert service.create_database(CreateDatabase(name="shop"))[1]
    assert check(warehouse) == []


def test_a_database_that_holds_only_a_dead_creation_is_empty(warehouse: str) -> None:
    with_database(warehouse)
    run_and_die(warehouse, "create", "embedded", Fault("create_files", crash=True))
    service = running_service(warehouse)
    service.drop_database("shop")
    assert check(warehouse) == []
