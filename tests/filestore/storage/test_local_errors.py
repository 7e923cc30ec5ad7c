"""Each error of the operating system becomes one of the tree that names the file, in each call of local storage."""

from __future__ import annotations

import builtins
import errno
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tablestore
from filestore.errors import Corrupt, TableStoreError, Unavailable
from filestore.leases.locks import LockedLeases
from filestore.storage import local
from filestore.storage.local import LocalStorage
from tablestore import Table
from tests.warehouses import warehouse

ERRNOS = [
    errno.EIO,
    errno.EACCES,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.EMFILE,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ESTALE,
]
LOST = (errno.EIO, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
NAMES = [errno.errorcode[number] for number in ERRNOS]

CALLS: list[tuple[Any, str]] = [
    (local, "FileIO"),
    (io, "open"),
    (builtins, "open"),
    (os, "open"),
    (os, "stat"),
    (os, "scandir"),
    (os, "listdir"),
    (os, "link"),
    (os, "replace"),
    (os, "unlink"),
    (os, "mkdir"),
    (pa, "OSFile"),
    (pa, "memory_map"),
    (shutil, "rmtree"),
]


@contextmanager
def failing(wanted: Callable[[str], bool], number: int) -> Iterator[list[str]]:
    """Lets all calls of the system fail that name such a path, and reads of files that were opened by it."""
    failed: list[str] = []
    handles: set[tuple[int, int]] = set()

    def fail(path: object) -> None:
        if isinstance(path, str | os.PathLike) and wanted(text := os.fspath(path)):
            failed.append(text)
            raise OSError(number, os.strerror(number), text)

    def replaced(call: Any) -> Any:
        def instead(*given: Any, **named: Any) -> Any:
            for path in given[:2]:
                fail(path)
            return call(*given, **named)

        return instead

    pread = os.pread

    def pread_instead(handle: int, size: int, offset: int) -> bytes:
        found = os.fstat(handle)
        if (found.st_dev, found.st_ino) in handles:
            failed.append("pread")
            raise OSError(number, os.strerror(number))
        return pread(handle, size, offset)

    with pytest.MonkeyPatch.context() as patch:
        for module, name in CALLS:
            patch.setattr(module, name, replaced(getattr(module, name)))
        patch.setattr(os, "pread", pread_instead)
        yield failed


STORAGE: dict[str, Callable[[LocalStorage, str], object]] = {
    "read": lambda s, p: s.read(p),
    "read_each": lambda s, p: s.read_each([p]),
    "write_new": lambda s, p: s.write_new(f"{p}.new", b"x"),
    "replace": lambda s, p: s.replace(p, b"x"),
    "open_read": lambda s, p: s.open_read(p),
    "open_write": lambda s, p: s.open_write(p),
    "sync": lambda s, p: s.sync(p),
    "sync_all": lambda s, p: s.sync_all([p, f"{p}.other"]),
    "exists": lambda s, p: s.exists(p),
    "walk": lambda s, p: list(s.walk(os.path.dirname(p))),
    "list_names": lambda s, p: s.list_names(os.path.dirname(p)),
    "delete": lambda s, p: s.delete(p),
    "delete_tree": lambda s, p: s.delete_tree(os.path.dirname(p)),
}
MAY_BE_ABSENT = ("exists", "walk", "read_each")  # ENOTDIR: no file can be below a file


@pytest.mark.parametrize("number", ERRNOS, ids=NAMES)
@pytest.mark.parametrize("call", STORAGE)
def test_each_call_says_which_file_and_what_to_do(tmp_path: Path, call: str, number: int) -> None:
    path = tmp_path / "t" / "file.parquet"
    path.parent.mkdir()
    path.write_bytes(b"bytes")
    storage = LocalStorage()
    with failing(lambda name: name.startswith(str(path.parent)), number) as failed:
        try:
            STORAGE[call](storage, str(path))
        except TableStoreError as error:
            assert str(path.parent) in error.message and os.strerror(number) in error.message
            assert isinstance(error, Corrupt | Unavailable)
            if call in ("read", "open_read", "list_names"):
                assert isinstance(error, Corrupt if number in LOST else Unavailable)
        else:
            assert number == errno.ENOTDIR and call in MAY_BE_ABSENT, "it went on as if nothing had happened"
    assert failed


@pytest.mark.parametrize("number", ERRNOS, ids=NAMES)
def test_an_open_file_of_a_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))

    def pread(*_: int) -> bytes:
        raise OSError(number, os.strerror(number))

    with LocalStorage().open_read(str(path)) as file:
        monkeypatch.setattr(os, "pread", pread)
        for read in (file.read, file.view):
            with pytest.raises(Corrupt if number in LOST else Unavailable, match=str(path)):
                read(0, 100)


@pytest.mark.parametrize("number", ERRNOS, ids=NAMES)
def test_leases_that_cannot_be_looked_for(tmp_path: Path, number: int) -> None:
    (tmp_path / "_delta_log").mkdir()
    leases = LockedLeases(str(tmp_path))
    with leases.hold("one"), leases.hold("two"):
        for call in (
            leases.abandoned,
            leases.at_work_since_ms,
            lambda: leases.dead_among(["one"]),
            lambda: leases.remove(["one"]),
            lambda: leases.hold("three").__enter__(),
        ):
            with failing(lambda name: "_log/leases" in name, number), pytest.raises(Unavailable, match="leases"):
                call()


# ------------------------------------------------------------------------------------- faults of the disk under a table

KINDS = {
    "a data file": lambda name: name.endswith(".parquet") and "checkpoint" not in name,
    "a vector": lambda name: "deletion_vector" in name,
    "an entry": lambda name: name.endswith("1.json"),
    "a checkpoint": lambda name: "checkpoint.parquet" in name,
    "the log's name": lambda name: name.endswith("log.json"),
    "the log's partition": lambda name: name.endswith(".sqlite"),
    "the leases": lambda name: "leases" in name,
    "the Delta log": lambda name: name.endswith("_delta_log"),
}
USES: dict[str, Callable[[Table], object]] = {
    "scan": lambda table: table.scan().to_pylist(),
    "get": lambda table: table.get([5]).to_pylist(),
    "write": lambda table: table.write([{"id": 5, "v": 9}]),
    "follow": lambda table: list(table.follow(version=1, stop=3)),
    "doctor": lambda table: table.examine(),
    "compact": lambda table: table.compact(full=True),
    "recover": lambda table: table.recover(),
    "expire": lambda table: table.expire(),
    "orphans": lambda table: table.remove_orphans(dry_run=True),
    "rollback": lambda table: table.rollback(2),
}


@pytest.fixture(scope="module")
def original() -> Iterator[Path]:
    with warehouse() as store:
        options = {"checkpoint.interval": "3"}
        table = store.create_table("shop.t", "id BIGINT, v INT", primary_key=["id"], options=options)
        table.write([{"id": number, "v": number} for number in range(1000)])
        for value in range(3):
            table.write([{"id": 5, "v": value}, {"id": 2000 + value, "v": 1}])
        yield Path(table.location).parent.parent


@pytest.mark.few(5)
@pytest.mark.parametrize("number", ERRNOS, ids=NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_on_a_disk_that_fails(original: Path, kind: str, number: int, tmp_path: Path) -> None:
    for use in USES:
        folder = tmp_path / use
        shutil.copytree(original, folder)
        with tablestore.connect(folder) as store:
            table = store.table("shop.t")
            shop = str(folder / "shop")
            with failing(partial(_is_in, shop, KINDS[kind]), number):
                try:
                    USES[use](table)
                except TableStoreError as error:
                    assert shop in error.message, (use, error)
                    if use == "doctor" and kind != "the Delta log":
                        assert number not in LOST, error


def _is_in(folder: str, kind: Callable[[str], bool], path: str) -> bool:
    return path.startswith(folder) and kind(path)
