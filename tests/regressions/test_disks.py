"""Found while reviewing errors: a full disk and damaged bytes came out as bare errors of the operating system."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from filestore.errors import Corrupt, Unavailable
from filestore.storage import LocalStorage
from tablestore import Table
from tests.warehouses import assert_whole, open_in_log, orphans, rows, warehouse


@pytest.fixture
def orders() -> Iterator[Table]:
    with warehouse() as store:
        yield store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=["id"])


def put(table: Table, *ids: int) -> None:
    table.write(pa.table({"id": ids, "name": ["name"] * len(ids)}))


def full(storage: LocalStorage, path: str) -> pa.NativeFile:
    """A new file, on a disk that takes no byte more."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).touch()
    return pa.OSFile("/dev/full", "wb")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a device that is always full")
@pytest.mark.parametrize("kind", ["+I", "-D"], ids=["data-file", "run-of-deleted-keys"])
def test_a_full_disk_says_so_and_changes_nothing(orders: Table, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    put(orders, *range(1000))
    before, version = rows(orders), orders.filestore.state().version
    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "open_write", full)
        with pytest.raises(Unavailable, match=r"cannot write .*No space left"):
            orders.write(pa.table({"id": range(500), "name": ["x"] * 500, "_kind": [kind] * 500}))
    assert orders.filestore.state().version == version
    assert rows(orders) == before
    assert orphans(orders) == []
    assert open_in_log(orders) == []
    put(orders, 1)
    assert_whole(orders)


def test_damaged_bytes_are_named_by_whoever_reads_them(orders: Table) -> None:
    put(orders, *range(1000))
    [file] = orders.files()
    path = Path(orders.location, file.path)
    whole = path.read_bytes()
    damaged = whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :]
    assert len(damaged) == len(whole)
    path.chmod(0o644)
    path.write_bytes(damaged)
    for read in (lambda: orders.scan().to_arrow(), lambda: put(orders, 5), lambda: list(orders.follow(stop=1))):
        with pytest.raises(Corrupt, match=re.escape(file.path)):
            read()
    path.write_bytes(whole[:-20])
    with pytest.raises(Corrupt, match=re.escape(file.path)):
        orders.scan().to_arrow()
    path.write_bytes(whole)
    put(orders, 5)
    assert len(assert_whole(orders)) == 1000
