"""Fault test 11: a storage that fails at random, tears and truncates files, is slow, and returns stale listings.

Retries are bounded, no version names a torn file, and an error about damaged bytes names the path.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from compaction.compact import compact_table
from filestore.ambient import Ambient
from filestore.doctor import Invariant, examine
from filestore.errors import Conflict, Corrupt, NotFound, Unavailable
from filestore.files.parquet import ParquetReader
from filestore.life.consumers import Consumer
from filestore.life.expiry import expire
from filestore.life.orphans import find_orphans, remove_orphans
from filestore.operations.fold import fold_table
from filestore.reading.scan import plan_scan, scan_table
from filestore.storage.interface import FileInfo, ReadableFile
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tests.faults import Call, FaultyStorage
from tests.simulation.memory import BytesFile
from tests.tables import Clock, assert_healthy, create, define, read_polars, reopen, seeded, write

HOUR_MS = 3_600_000
LIFE = {"snapshot_num__retained_min": 2, "snapshot_time__retained": "1 h", "checkpoint_interval": 3}


def make(folder: Path, storage: Any = None, ambient: Ambient | None = None, **options: object) -> FileStore:
    definition = define("id BIGINT, v INT", ["id"], bucket=2, **options)
    return create(folder / "t", definition, storage, ambient or seeded(1))


def rows(store: FileStore, version: int | None = None) -> dict[int, int]:
    state = store.state(version)
    return {row["id"]: row["v"] for row in scan_table(store.table_files(state), plan_scan(state)).to_pylist()}


# --------------------------------------------------------------------------------------- errors, torn files, slowness


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("later", [False, True], ids=["merge-on-write", "merge-on-read"])
@pytest.mark.parametrize("one_in", [60, 150])
def test_one_call_in_some_fails(folder: Path, later: bool, one_in: int) -> None:
    """Calls fail before or after their effect, or write parts of files: each attempt has all of its effect or none."""
    options: dict[str, object] = {"write__mode": "merge-on-read"} if later else {}
    store = make(folder, num__sorted__run_compaction__trigger=3, **options)
    dice, failed = random.Random(f"{one_in}/{later}"), Counter[str]()

    def hook(call: Call) -> None:
        if dice.random() < 1 / one_in:
            failed[call.operation] += 1
            raise Unavailable(f"injected at {call}")

    storage, expected = FaultyStorage(LocalStorage(), hook), dict[int, int]()
    works: list[Callable[[FileStore], object]] = [
        lambda s: fold_table(s, full=True),
        lambda s: compact_table(s, full=True),
    ]
    for number in range(8):
        change = {dice.randrange(40): number for _ in range(20)}
        commit_id = store.ambient.new_id()
        changed = [{"id": key, "v": value} for key, value in change.items()]
        tries = at_last(store, storage, lambda s, c=commit_id, r=changed: once(s, c, r, later))
        assert tries < 300
        expected |= change
        assert rows(reopen(store)) == expected
        at_last(store, storage, works[number % 2])
        assert rows(reopen(store)) == expected
        no_torn_file(reopen(store))
    assert len(failed) > 2, failed
    fold_table(store, full=True)
    assert {row["id"]: row["v"] for row in read_polars(store.location)} == expected


def once(store: FileStore, commit_id: str, changed: list[dict[str, Any]], later: bool) -> None:
    """Writes, unless the table has a commit with that id already: the writer repeats it until it succeeds."""
    entries = (store.delta_log.read_entry(version) for version in store.delta_log.versions())
    if not any(entry is not None and entry.commit_id == commit_id for entry in entries):
        write(store, changed, commit_id=commit_id, later=later)


def at_last(store: FileStore, storage: FaultyStorage, work: Callable[[FileStore], object]) -> int:
    """Retries after each failure, with a new process; returns the number of failures."""
    for number in range(300):
        try:
            work(FileStore.open(storage, store.location, store.ambient))
        except Unavailable:
            continue
        return number
    raise AssertionError("300 tries")


def no_torn_file(store: FileStore) -> None:
    """Asserts that every file that a version names has the size that it says, and is complete Parquet."""
    for version in store.delta_log.versions():
        state = store.state(version)
        pending = [run.as_file() for run in state.pending]
        for file in [*state.files, *pending]:
            path = Path(store.location, file.path)
            assert path.stat().st_size == file.size
            with ParquetReader(store.storage, str(path)) as parquet:
                assert sum(parquet.group_rows) == file.rows
    assert_healthy(store)


@pytest.mark.parametrize("when", ["entry", "file"])
def test_a_storage_that_is_down_is_asked_a_bounded_number_of_times(folder: Path, when: str) -> None:
    store = make(folder)
    write(store, [{"id": 1, "v": 1}])

    def down(call: Call) -> None:
        wanted = ("write_new", "_delta_log") if when == "entry" else ("open_write", ".parquet")
        if call.operation == wanted[0] and wanted[1] in call.path:
            raise Unavailable("503 Slow Down")

    storage = FaultyStorage(LocalStorage(), down)
    opened = FileStore.open(storage, store.location, store.ambient)
    storage.calls.clear()
    with pytest.raises(Unavailable, match="503"):
        write(opened, [{"id": 2, "v": 2}])
    assert len(storage.calls) < 30
    assert rows(reopen(store)) == {1: 1}


def test_races_without_end_are_lost_after_as_many_retries_as_the_options_allow(folder: Path) -> None:
    slept: list[float] = []
    known = seeded(3)
    ambient = Ambient(known.now_ms, known.new_id, lambda: 0.999, slept.append)
    store, storage = make(folder, ambient=ambient, commit_max__retries=7), FaultyStorage(LocalStorage())
    other = reopen(store)

    def other_wins(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and not call.done:
            write(other, [{"id": 1, "v": len(slept)}])

    storage.hook = other_wins
    with pytest.raises(Conflict, match="8 times"):
        write(FileStore.open(storage, store.location, ambient), [{"id": 1, "v": -1}])
    assert len(slept) == 8
    assert max(slept) <= 5


def test_slow_reads_lengthen_the_pauses_and_nothing_else(folder: Path) -> None:
    """Each read takes ten seconds of the clock: the pause after a lost race grows with it, up to a bound."""
    clock, slept = Clock(), list[float]()
    known = seeded(3, clock)
    ambient = Ambient(known.now_ms, known.new_id, lambda: 0.999, slept.append)
    store = make(folder, ambient=ambient)
    races = iter(range(3))

    def slow(call: Call) -> None:
        if call.operation in ("read", "open_read") and not call.done:
            clock.ms += 10_000
        if (
            call.operation == "write_new"
            and "_delta_log/" in call.path
            and not call.done
            and next(races, None) is not None
        ):
            write(reopen(store), [{"id": 1, "v": 0}])

    write(FileStore.open(FaultyStorage(LocalStorage(), slow), store.location, ambient), [{"id": 1, "v": 1}])
    assert slept == [pytest.approx(4.995)] * 3
    assert rows(reopen(store)) == {1: 1}
    assert_healthy(reopen(store))


# ------------------------------------------------------------------------------------------------ truncated and wrong


def damaged(store: FileStore) -> Iterator[tuple[str, Invariant]]:
    """Yields a path of each kind of file, and the invariant that is broken when it is truncated."""
    state = store.state()
    yield next(iter(state.files)).path, Invariant.FILE_SIZE
    yield next(path.name for path in Path(store.location).glob("deletion_vector_*.bin")), Invariant.VECTOR


class Cut:
    """A storage that truncates one file when it is read, as if the connection were lost."""

    def __init__(self, path: str, share: float) -> None:
        self._inner, self._path, self._share = LocalStorage(), path, share

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def read(self, path: str) -> bytes:
        data = self._inner.read(path)
        return data[: int(len(data) * self._share)] if path == self._path else data

    def read_each(self, paths: Sequence[str]) -> list[bytes | None]:
        return [self.read(path) if self._inner.exists(path) else None for path in paths]

    def open_read(self, path: str) -> ReadableFile:
        return BytesFile(path, self.read(path)) if path == self._path else self._inner.open_read(path)


@pytest.mark.parametrize("share", [0, 0.3, 0.99])
def test_a_truncated_body_is_named_by_readers_writers_and_the_doctor(folder: Path, share: float) -> None:
    store = make(folder)
    write(store, [{"id": key, "v": 0} for key in range(50)])
    write(store, [{"id": key, "v": 1} for key in range(0, 50, 2)])
    before = store.state().version
    for path, code in damaged(store):
        whole = f"{store.location}/{path}"
        cut = FileStore.open(Cut(whole, share), store.location, store.ambient)
        works: list[Callable[[], object]] = [lambda c=cut: rows(c), lambda c=cut: compact_table(c, full=True)]
        for work in works:
            with pytest.raises(Corrupt, match=re.escape(path)):
                work()
        found = {f.code: f.message for f in examine(cut).problems}
        assert path in found[code] or code is Invariant.VECTOR, found
        assert any(path in message for message in found.values()), found
    assert reopen(store).state().version == before
    assert_healthy(reopen(store))


@pytest.mark.parametrize("share", [0, 0.3, 0.99])
def test_a_truncated_entry_is_named_and_never_taken_for_a_shorter_one(folder: Path, share: float) -> None:
    store = make(folder)
    write(store, [{"id": 1, "v": 0}])
    entry = f"{store.location}/_delta_log/00000000000000000001.json"
    with pytest.raises(Corrupt, match=re.escape(entry.rpartition("/")[2])):
        FileStore.open(Cut(entry, share), store.location, store.ambient)
    cut = FileStore(Cut(entry, share), store.location, store.ambient)  # type: ignore[arg-type]
    assert "00000000000000000001" in "".join(f.message for f in examine(cut).problems) or any(
        "version 1" in f.message for f in examine(cut).problems
    )


# -------------------------------------------------------------------------------------------------------- stale LIST


class Stale:
    """A storage with stale listings: they lack newer names, and contain names that were removed."""

    def __init__(self) -> None:
        self._inner = LocalStorage()
        self.names: dict[str, list[str]] = {}
        self.files: list[FileInfo] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def freeze(self, location: str) -> None:
        """From now on listings contain what they contain now."""
        for folder in ("_delta_log", "_consumers"):
            self.names[f"{location}/{folder}"] = self._inner.list_names(f"{location}/{folder}")
        self.files = list(self._inner.walk(location))

    def list_names(self, path: str, after: str = "") -> list[str]:
        return [name for name in self.names.get(path, self._inner.list_names(path)) if name > after]

    def walk(self, path: str) -> Iterator[FileInfo]:
        return iter(self.files) if self.files is not None else self._inner.walk(path)


def aged(folder: Path, versions: int) -> tuple[FileStore, Stale]:
    stale = Stale()
    store = make(folder, stale, seeded(1, Clock(step_ms=HOUR_MS)), **LIFE)
    for v in range(versions):
        write(store, [{"id": key, "v": v} for key in range(4)])
    return store, stale


def test_a_listing_that_lacks_the_newest_entries_hides_nothing(folder: Path) -> None:
    """Opening a table finds the versions behind the listed ones, too; a writer never uses a number twice."""
    store, stale = aged(folder, 4)
    stale.freeze(store.location)
    for v in range(4, 9):
        write(reopen(store), [{"id": key, "v": v} for key in range(4)])
    fresh = FileStore.open(stale, store.location, store.ambient)  # type: ignore[arg-type]
    assert fresh.state().version == 9
    assert rows(fresh) == dict.fromkeys(range(4), 8)
    assert write(fresh, [{"id": 0, "v": 99}]).snapshot.version == 10
    assert rows(fresh, 7) == dict.fromkeys(range(4), 6)
    assert_healthy(reopen(store))


def test_a_listing_with_entries_that_have_expired_is_recognised(folder: Path) -> None:
    """The listing names expired entries: readers and writers work on the newest version all the same."""
    store, stale = aged(folder, 10)
    stale.freeze(store.location)
    assert expire(reopen(store)).log_entries
    fresh = FileStore.open(stale, store.location, store.ambient)  # type: ignore[arg-type]
    assert rows(fresh) == dict.fromkeys(range(4), 9)
    assert write(fresh, [{"id": 0, "v": 99}]).fresh
    assert_healthy(reopen(store))


def test_expiry_and_clean_up_on_stale_listings_remove_nothing_that_is_needed(folder: Path) -> None:
    store, stale = aged(folder, 6)
    stale.freeze(store.location)
    expected = dict[int, dict[int, int]]()
    for v in range(6, 12):
        version = write(reopen(store), [{"id": key, "v": v} for key in range(4)]).snapshot.version
        expected[version] = dict.fromkeys(range(4), v)
    process = FileStore.open(stale, store.location, store.ambient)  # type: ignore[arg-type]
    for _ in range(2):
        try:
            expire(process)
            remove_orphans(process, find_orphans(process, store.ambient.now_ms() + HOUR_MS, lambda: None))
        except Corrupt as error:
            assert error.code == "version-gap", "entries that are listed and gone: nothing is removed on such grounds"
    fresh = reopen(store)
    assert rows(fresh) == expected[max(expected)]
    first = expire(fresh, dry_run=True).first
    for version in (v for v in expected if v >= first):
        assert rows(fresh, version) == expected[version]
    assert_healthy(fresh)


def test_a_reader_whose_hold_no_listing_shows_gets_an_error_and_no_other_rows(folder: Path) -> None:
    """A hold does not work if a listing of consumers is stale (FORMAT.md section 1)."""
    store, stale = aged(folder, 8)
    stale.freeze(store.location)
    fresh = reopen(store)
    held = Consumer(fresh, "reader").register(3, rows=True)
    expire(FileStore.open(stale, store.location, store.ambient))  # type: ignore[arg-type]
    with pytest.raises((NotFound, Corrupt)):
        rows(fresh, 3)
    held.release()
    assert_healthy(reopen(store))
