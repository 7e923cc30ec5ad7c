"""The look-ups' cache: filled where it pays, bounded, shared by threads; whatever fails in it, answers stay right."""

from __future__ import annotations

import gc
import logging
import os
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import filestore.cache.columns
import filestore.lookup.key_match
from filestore.cache.columns import CacheLimits, LookupCache
from filestore.cache.lru import Lru
from filestore.lookup.file_lookup import FileLookup
from filestore.model.table_options import TableOptions
from filestore.table import FileStore
from tests.tables import Clock, create, define, read, seeded, write

ROWS = 40
ON_DISK = CacheLimits(1, None, timedelta(hours=1))  # no column is small enough for memory


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(folder: Path, clock: Clock) -> FileStore:
    """Two files, the first with dead rows; the key's hashes are needed, and no column is small enough for memory."""
    definition = define("id STRING, v BIGINT, w STRING", ["id"], lookup_cache__max__memory__size="1 b")
    made = create(folder / "t", definition, ambient=seeded(clock=clock))
    write(made, [{"id": f"k{n:02}", "v": n, "w": "w" * n} for n in range(ROWS)])
    write(made, [{"id": f"k{n:02}", "v": -n, "w": None} for n in range(0, ROWS, 3)])
    return made


def find_all(store: FileStore, cache: LookupCache | None) -> list[dict[str, Any]]:
    """All rows, by their keys."""
    state = store.state()
    probes = pa.table({"id": [f"k{n:02}" for n in range(ROWS)]})
    rows: list[dict[str, Any]] = []
    for file in state.files:
        lookup = FileLookup(store.table_files(state), file, cache=cache)
        for found in lookup.find(probes):
            rows += lookup.rows_at(found.positions, ["id", "v", "w"]).to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def own_cache(store: FileStore) -> LookupCache:
    """The one that all of the store's look-ups share."""
    cache = store.table_files(store.state()).cache
    assert cache is not None
    return cache


def cache_of(store: FileStore, limits: CacheLimits = ON_DISK, folder: Path | None = None) -> LookupCache:
    return LookupCache(store.state().table_id, limits, store.ambient, None if folder is None else str(folder))


def warm(store: FileStore, cache: LookupCache) -> None:
    for _ in range(2):
        assert find_all(store, cache) == read(store)


def test_the_options_are_its_limits() -> None:
    assert CacheLimits.of(TableOptions()) == CacheLimits(256 << 20, None, timedelta(hours=1))
    given = {"lookup.cache-max-disk-size": "1 gb", "lookup.cache-file-retention": "5 min"}
    assert CacheLimits.of(TableOptions.parse(given)) == CacheLimits(256 << 20, 1 << 30, timedelta(minutes=5))


def test_the_first_look_up_writes_nothing_and_the_third_reads_no_parquet(store: FileStore) -> None:
    cache = cache_of(store)
    assert find_all(store, cache) == read(store)
    assert cache.disk_bytes == 0
    assert find_all(store, cache) == read(store)
    assert cache.disk_bytes > 0
    expected = read(store)
    for path in Path(store.location).rglob("bucket-*/*.parquet"):
        path.unlink()
    assert find_all(store, cache) == expected


def test_rows_have_their_partition_columns_from_the_cache_too(folder: Path) -> None:
    options = {"lookup_cache__max__memory__size": "1 b"}
    store = create(folder / "t", define("v INT, p STRING, id BIGINT", ["p", "id"], ["p"], **options))
    write(store, [{"v": n, "p": "a b", "id": n} for n in range(9)])
    (file,) = store.state().files
    lookup = FileLookup(store.table_files(store.state()), file, cache=own_cache(store))
    wanted = [{"p": "a b", "v": n, "id": n} for n in (2, 5)]
    for _ in range(3):
        assert lookup.rows_at(np.array([2, 5]), ["p", "v", "id"]).to_pylist() == wanted
        assert lookup.rows_at(np.array([2, 5]), ["p"]).to_pylist() == [{"p": "a b"}] * 2
        lookup.close()
    assert own_cache(store).disk_bytes > 0


def test_a_cache_is_the_stores_for_its_life(store: FileStore) -> None:
    assert own_cache(store) is own_cache(store)


def test_what_it_keeps_has_no_name_and_goes_with_it(store: FileStore, tmp_path: Path) -> None:
    cache = cache_of(store, folder=tmp_path)
    warm(store, cache)
    assert cache.disk_bytes > 0
    assert list(tmp_path.iterdir()) == []
    maps = Path("/proc/self/maps")
    if maps.exists():
        assert str(tmp_path) in maps.read_text()
        del cache
        gc.collect()
        assert str(tmp_path) not in maps.read_text()


def test_it_holds_no_file_open(store: FileStore) -> None:
    before = open_files()
    cache = cache_of(store)
    warm(store, cache)
    assert cache.disk_bytes > 0
    gc.collect()  # Python 3.13 keeps a reader in a cycle until then
    assert not open_files() - before


def open_files() -> set[str]:
    """Returns the files that this process has open, without sockets and pipes, which belong to clients of other tests.

    The garbage of other tests has files open, too. Some are deleted meanwhile, and these keep their names here.
    """
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/self/fd/{number}").removesuffix(" (deleted)"))
    return {name for name in found if name.startswith("/")}


def test_what_is_not_used_is_dropped(store: FileStore, clock: Clock) -> None:
    cache = cache_of(store)
    warm(store, cache)
    clock.ms += 3_599_000
    find_all(store, cache)
    held = cache.disk_bytes
    clock.ms += 3_599_000
    find_all(store, cache)
    assert cache.disk_bytes == held > 0
    clock.ms += 3_601_000
    assert find_all(store, cache) == read(store)
    assert cache.disk_bytes == 0


@pytest.mark.slow
def test_it_stays_within_its_room(store: FileStore) -> None:
    full = cache_of(store)
    warm(store, full)
    for part in (2, 3, 5, 1000):
        small = cache_of(store, CacheLimits(1, full.disk_bytes // part, timedelta(hours=1)))
        for _ in range(6):
            assert find_all(store, small) == read(store)
            assert small.disk_bytes <= full.disk_bytes // part
        assert small.memory_bytes <= 1


def test_it_maps_no_more_files_than_it_may(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may have so many mappings, and the allocator needs some, too."""
    monkeypatch.setattr(filestore.cache.columns, "_MAPS", 4)
    cache = cache_of(store)
    for _ in range(6):
        assert find_all(store, cache) == read(store)
        assert 0 < len(cache._disk) <= 4 or not cache.disk_bytes


def test_it_leaves_room_on_the_disk(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        total, free = 1 << 40, (1 << 40) // 10 + 100

    monkeypatch.setattr(filestore.cache.columns.shutil, "disk_usage", lambda _: Usage)
    cache = cache_of(store)
    for _ in range(4):
        assert find_all(store, cache) == read(store)
    assert cache.disk_bytes == 0
    Usage.free += 1 << 20
    warm(store, other := cache_of(store))
    assert other.disk_bytes > 0


def test_columns_of_small_files_are_held_in_memory(store: FileStore) -> None:
    cache = cache_of(store, CacheLimits(256 << 20, None, timedelta(hours=1)))
    warm(store, cache)
    assert cache.disk_bytes == 0
    expected, held = read(store), cache.memory_bytes
    for path in Path(store.location).rglob("bucket-*/*.parquet"):
        path.unlink()
    assert find_all(store, cache) == expected
    assert cache.memory_bytes == held > 0


def test_wide_columns_of_small_files_go_to_the_disk(store: FileStore) -> None:
    cache = cache_of(store, CacheLimits(4096 * 400, None, timedelta(hours=1)))
    warm(store, cache)
    assert cache.disk_bytes > 0
    assert cache.memory_bytes > 0
    assert find_all(store, cache) == read(store)


def test_of_what_grows_the_latest_is_held(store: FileStore) -> None:
    """Each commit gives a file another vector: the dead rows of former ones are not kept."""
    cache = cache_of(store, CacheLimits(1000, None, timedelta(hours=1)))
    made = []
    for state in (1, 1, 2, 3, 3):
        assert cache.decoded("file", state, lambda state=state: (made.append(state) or state * 10, state)) == state * 10
    assert made == [1, 2, 3]
    assert cache.memory_bytes == 3


def test_without_a_disk_answers_are_right(store: FileStore, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = cache_of(store, folder=tmp_path / "missing")
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            assert find_all(store, cache) == read(store)
    assert cache.disk_bytes == 0
    reported = len(caplog.records)
    assert reported
    find_all(store, cache)
    assert len(caplog.records) == reported, "it is not tried again at once"


@pytest.mark.parametrize("size", [1, 100, 700])
def test_a_disk_that_is_full_in_the_middle(store: FileStore, size: int) -> None:
    cache = cache_of(store)
    expected = read(store)
    with files_of_at_most(size):
        for _ in range(4):
            assert find_all(store, cache) == expected
    assert (cache.disk_bytes > 0) == (size == 700), "some columns are smaller than that"


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.slow
def test_threads_share_it(store: FileStore) -> None:
    cache, expected, wrong = cache_of(store), read(store), []
    begin = threading.Barrier(4)

    def look() -> None:
        begin.wait()
        for _ in range(20):
            if find_all(store, cache) != expected:
                wrong.append(threading.current_thread().name)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    alone = cache_of(store)
    warm(store, alone)
    assert cache.disk_bytes == alone.disk_bytes


@pytest.mark.parametrize("reduce", [lambda h: h * 0, lambda h: h % np.uint64(3)], ids=["one", "three"])
def test_keys_with_one_hash_are_distinguished(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, reduce: Callable[[Any], Any]
) -> None:
    hashes = filestore.lookup.key_match._hashes
    monkeypatch.setattr(filestore.lookup.key_match, "_hashes", lambda rows, keys: reduce(hashes(rows, keys)))
    cache = cache_of(store)
    warm(store, cache)
    assert find_all(store, cache) == read(store)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4), st.integers(0, 3))),
    st.integers(0, 12),
    st.none() | st.integers(0, 4),
)
def test_lru_against_a_list(steps: list[tuple[int, int, int]], limit: int, count: int | None) -> None:
    lru: Lru[int] = Lru()
    held: list[tuple[int, int, int]] = []  # key, size, last use; in the order of their use
    for now, (key, size, wait) in enumerate(steps):
        if size:
            lru.put(key, -key, size, now)
            held = [*(e for e in held if e[0] != key), (key, size, now)]
        else:
            assert lru.get(key, now) == (-key if key in {e[0] for e in held} else None)
            held = [*(e for e in held if e[0] != key), *((k, s, now) for k, s, _ in held if k == key)]
        lru.shrink(limit, now - wait, count)
        held = [e for e in held if e[2] >= now - wait]
        while sum(e[1] for e in held) > limit or (count is not None and len(held) > count):
            held.pop(0)
        assert (lru.size, len(lru)) == (sum(e[1] for e in held), len(held))
