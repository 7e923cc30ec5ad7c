"""A process that was forked works if its parent had used no table, and raises at once otherwise: it never hangs."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import tablestore
from filestore.errors import TableStoreError
from tablestore import Scan, Store, Table
from tests.processes import PROCESSES

WORK: dict[str, Callable[[str, Store, Table, Scan], object]] = {
    "connect": lambda where, store, table, scan: tablestore.connect(where).table("shop.t").scan().to_pylist(),
    "scan": lambda where, store, table, scan: table.scan(where="v = 'a'").to_pylist(),
    "get": lambda where, store, table, scan: table.get([1]),
    "a scan of before": lambda where, store, table, scan: scan.to_polars(),
    "an Arrow stream of before": lambda where, store, table, scan: scan.__arrow_c_stream__() and scan.to_arrow(),
    "write": lambda where, store, table, scan: table.write([{"id": 2, "v": "b"}]),
    "follow": lambda where, store, table, scan: list(table.follow(stop=1)),
    "list": lambda where, store, table, scan: store.list_tables("shop"),
}


@pytest.mark.slow
@pytest.mark.parametrize("used", [True, False], ids=["used", "not used"])
def test_a_forked_process_works_or_raises_and_does_not_hang(tmp_path: Path, used: bool) -> None:
    """With what `multiprocessing` does by default it hung for ever, in the locks and pools of its parent's threads."""
    with tablestore.connect(str(tmp_path)) as store:
        store.create_database("shop")
        store.create_table("shop.t", "id BIGINT, v STRING", primary_key=["id"]).write([{"id": 1, "v": "a"}])
    receiving, sending = PROCESSES.Pipe(duplex=False)
    parent = PROCESSES.Process(target=_parent, args=(str(tmp_path), used, sending))
    parent.start()
    sending.close()
    found = receiving.recv()
    parent.join(60)
    assert parent.exitcode == 0
    assert found == dict.fromkeys(WORK, "forked-process" if used else "works")


def _parent(where: str, used: bool, result: Connection) -> None:
    """Runs in a process that has used no table yet."""
    forked, found = multiprocessing.get_context("fork"), {}
    with tablestore.connect(where) as store:
        table = store.table("shop.t")
        scan = table.scan()
        if used:
            scan.to_polars()
            assert table.get([1]).to_pylist() == [{"id": 1, "v": "a"}]
        for name in WORK:
            receiving, sending = forked.Pipe(duplex=False)
            child = forked.Process(target=_child, args=(name, where, store, table, scan, sending))
            child.start()
            sending.close()
            try:
                found[name] = receiving.recv()
            except EOFError:
                found[name] = "hangs"
            child.join()
        if used:
            assert table.scan(where="v = 'a'").to_pylist() == [{"id": 1, "v": "a"}], "the parent itself works on"
    result.send(found)


def _child(name: str, where: str, store: Store, table: Table, scan: Scan, result: Connection) -> None:
    signal.alarm(30)
    try:
        WORK[name](where, store, table, scan)
        outcome = "works"
    except TableStoreError as error:
        outcome = error.code
    result.send(outcome)
