"""Found while reviewing errors: a full disk and damaged bytes were reported as bare errors of the operating system.

Found by a user: on a full disk and on a read-only one not even `tables` and `scan` worked; the error said "retry".
"""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pyarrow as pa
import pytest

import tablestore
from filestore.errors import Corrupt, Unavailable
from filestore.refused import refused
from filestore.sqlite_files import open_sqlite
from filestore.storage.local import LocalStorage
from filestore.storage.temporary import temporary_folder
from tablestore import Table
from tests.folders import memory_folder
from tests.processes import PROCESSES
from tests.warehouses import assert_whole, open_in_log, orphans, rows, warehouse


@pytest.fixture
def orders() -> Iterator[Table]:
    with warehouse() as store:
        yield store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=["id"])


def put(table: Table, *ids: int) -> None:
    table.write(pa.table({"id": ids, "name": ["name"] * len(ids)}))


def full(storage: LocalStorage, path: str) -> pa.NativeFile:
    """Opens a new file on a disk that is full."""
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


# ------------------------------------------------------------------------------------- disks that take no writes


def full_disk() -> None:
    """Forbids that files of this process grow, which has the effect of a full disk on any machine."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def somebody_else() -> None:
    """Changes from root, who may write everything, to a user who owns nothing here."""
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)


def read_all(catalog: str) -> list[object]:
    """Returns the results of all kinds of reads."""
    with tablestore.connect(catalog) as store:
        table = store.table("shop.orders")
        assert table.examine().healthy
        return [
            store.list_databases(),
            store.list_tables("shop"),
            table.detail()["rows"],
            rows(table),
            rows(table, version=1),
            table.get([1]).to_pylist(),
            table.scan(where="id = 2").to_arrow().to_pylist(),
            sorted(row["id"] for batch in table.follow(stop=2) for row in batch.to_pylist()),
            [s.version for s in table.snapshots()],
            len(table.system("files").to_arrow()),
            table.log_status()[0].end,
        ]


def write_all(catalog: str) -> set[str]:
    """Returns the codes of the errors that all kinds of writes raise."""
    with tablestore.connect(catalog) as store:
        table = store.table("shop.orders")
        codes = set()
        for write in (
            lambda: put(table, 7),
            lambda: table.create_tag("eod"),
            lambda: list(table.follow(stop=2, consumer="job")),
            lambda: table.alter("COMMENT 'x'"),
            lambda: table.rollback(1),
            lambda: store.create_table("shop.more", "id BIGINT"),
            lambda: store.create_database("bank"),
        ):
            with pytest.raises(Unavailable) as caught:
                write()
            codes.add(caught.value.code)
    return codes


def elsewhere(disk: Callable[[], None], work: Callable[[str], object], catalog: str) -> object:
    """Runs in a process of its own that has such a disk."""
    with ProcessPoolExecutor(1, mp_context=PROCESSES, initializer=disk) as process:
        return process.submit(work, catalog).result()


@pytest.fixture
def written() -> Iterator[str]:
    """A warehouse that anybody may read and its owner may write, and that no process has open."""
    with memory_folder() as folder:
        folder.chmod(0o755)
        with tablestore.connect(str(folder)) as store:
            store.create_database("shop")
            table = store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=["id"])
            put(table, 1, 2)
            put(table, 2, 3)
        if os.geteuid() != 0:
            for place, _, names in os.walk(folder):
                for path in (place, *(os.path.join(place, name) for name in names)):
                    os.chmod(path, os.stat(path).st_mode & ~0o222)
        yield str(folder)
        if os.geteuid() != 0:
            for place, _, _ in os.walk(folder):
                os.chmod(place, 0o755)


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("disk", "codes"),
    [(full_disk, {"disk-full"}), (somebody_else, {"no-permission", "catalog-read-only"})],
    ids=["full", "without-rights"],
)
def test_reading_goes_on_where_nothing_can_be_written(written: str, disk: Callable[[], None], codes: set[str]) -> None:
    expected = read_all(written) if os.geteuid() == 0 else None
    found = elsewhere(disk, read_all, written)
    assert expected is None or found == expected
    assert elsewhere(disk, write_all, written) == codes
    assert elsewhere(disk, read_all, written) == found


_MOUNTED = """
import sys
sys.path[:0] = [{root!r}]
from tests.regressions.test_disks import read_all, write_all
before = read_all({catalog!r})
codes = write_all({catalog!r})
assert read_all({catalog!r}) == before
print(sorted(codes))
"""


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "codes"),
    [
        ("mount -o remount,ro $PLACE", "['catalog-read-only', 'read-only']"),
        ("dd if=/dev/zero of=$PLACE/rest bs=1k 2>/dev/null || true", "['disk-full']"),
    ],
    ids=["read-only", "full"],
)
def test_real_disks_that_are_read_only_or_full(written: str, tmp_path: Path, change: str, codes: str) -> None:
    place = tmp_path / "disk"
    place.mkdir()
    root = str(Path(__file__).parent.parent.parent)
    program = _MOUNTED.format(root=root, catalog=str(place / "warehouse"))
    script = (
        "set -e; mount -t tmpfs -o size=2m tmpfs $PLACE || exit 77; cp -r $WRITTEN $PLACE/warehouse; "
        f'{change}; exec $PYTHON -c "$PROGRAM"'
    )
    names = {"PLACE": str(place), "WRITTEN": written, "PYTHON": sys.executable, "PROGRAM": program}
    unshare = shutil.which("unshare")
    if sys.platform != "linux" or unshare is None:
        pytest.skip("needs unshare")
    own = [] if os.geteuid() == 0 else ["--map-root-user"]
    done = subprocess.run(
        [unshare, *own, "--mount", "sh", "-c", script],
        env=os.environ | names | {"PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77 or "unshare:" in done.stderr:
        pytest.skip("mounting is not allowed here")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == codes


@pytest.mark.slow
def test_a_sqlite_file_read_without_locks_notices_that_another_process_wrote_it(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE t (a)")
    assert elsewhere(full_disk, changed_meanwhile, str(path)) == [True, False]


def changed_meanwhile(path: str) -> list[bool]:
    with closing(open_sqlite(Path(path), create=False)) as reader:
        assert reader.is_fallback
        found = [reader.read_was_consistent()]
        os.utime(path, ns=(1, 1))
        return [*found, reader.read_was_consistent()]


@pytest.mark.slow
def test_changes_that_wait_in_a_log_are_read_on_a_full_disk_too(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE t (a)")
        writer.execute("INSERT INTO t VALUES (1)")
        copy = tmp_path / "copy"
        copy.mkdir()
        for name in ("a.db", "a.db-wal"):
            shutil.copy(tmp_path / name, copy / name)
    assert elsewhere(full_disk, values_of, str(copy / "a.db")) == [(1,)]


def values_of(path: str) -> object:
    with closing(open_sqlite(Path(path), create=False)) as reader:
        return reader.execute("SELECT a FROM t").fetchall()


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "disk-full"),
        (errno.EDQUOT, "disk-full"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "no-permission"),
        (errno.EMFILE, "too-many-open-files"),
        (errno.EIO, "storage-error"),
    ],
)
def test_the_cause_is_named(number: int, code: str) -> None:
    error = refused("cannot write /data/x", OSError(number, os.strerror(number)))
    assert error.code == code
    assert error.message.startswith(f"cannot write /data/x: {os.strerror(number)}; ")


def test_a_full_disk_for_temporary_files_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_place() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr("tempfile.gettempdir", no_place)
    with pytest.raises(Unavailable, match="No usable temporary directory"), temporary_folder("x-"):
        pass


def test_a_folder_that_cannot_be_listed_is_not_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database's folder was removed with all files in it, because one listing of it had failed."""
    with memory_folder() as folder, tablestore.connect(str(folder)) as store:
        store.create_database("stock")
        kept = folder / "stock" / "t" / "x.parquet"
        kept.parent.mkdir(parents=True)
        kept.write_bytes(b"rows")
        scan = os.scandir

        def failing(path: str) -> Iterator[os.DirEntry[str]]:
            if str(path).endswith("/stock"):
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
            return scan(path)

        with monkeypatch.context() as patched:
            patched.setattr(os, "scandir", failing)
            with pytest.raises(Unavailable, match="stock"):
                list(LocalStorage().walk(str(kept.parents[1])))
            with suppress(Unavailable):
                store.drop_database("stock")
        assert kept.exists()
