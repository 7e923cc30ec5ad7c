"""Writes with a look-up cache: the bytes are the same, a single write keeps nothing, and the cache is bounded."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

from compaction.compact import compact_table
from filestore.ambient import system_ambient
from filestore.cache.columns import LookupCache
from filestore.delta.state import TableState
from filestore.files import row_groups
from filestore.files.writer import TableFiles
from filestore.lookup.file_lookup import FileLookup
from filestore.model.change_text import parse_changes
from filestore.operations.alter import alter
from filestore.operations.fold import fold_table
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tests.depth import sampled
from tests.faults import FaultyStorage
from tests.folders import memory_folder
from tests.model.model import tiny_row_groups
from tests.processes import PROCESSES
from tests.tables import Clock, assert_healthy, create, define, in_order, paths, prepare, read, reopen, seeded, write

HOUR = 3_600_000
ON_DISK = {"lookup_cache__max__memory__size": "1 b"}
LOOKUP = {"changelog__producer": "lookup"}
KINDS: Mapping[str, dict[str, object]] = {
    "deduplicate": {},
    "sequence": {"sequence_field": "s"},
    "images": LOOKUP,
    "images-and-sequence": {**LOOKUP, "sequence_field": "s"},
    "partial-update": {**LOOKUP, "merge__engine": "partial-update", "partial__update_remove__record__on__delete": True},
    "first-row": {"merge__engine": "first-row", "ignore__delete": True},
    "merge-on-read": {**LOOKUP, "write__mode": "merge-on-read", "sequence_field": "s"},
}
LIMITS: Mapping[str, dict[str, object]] = {
    "defaults": {},
    "on-disk": ON_DISK,
    "tiny": {**ON_DISK, "lookup_cache__max__disk__size": "2 kb"},
    "nothing": {**ON_DISK, "lookup_cache__max__disk__size": "1 b"},
}
ROWS = st.lists(
    st.fixed_dictionaries(
        {"id": st.integers(0, 15), "p": st.just("a"), "s": st.integers(0, 9), "v": st.sampled_from("xyz")},
        optional={"_kind": st.sampled_from(["+I", "+U", "-D"]), "w": st.none() | st.lists(st.integers(0, 3))},
    ),
    min_size=1,
    max_size=12,
)
STEPS = st.lists(ROWS | st.sampled_from(["compact", "hour"]), min_size=2, max_size=9)


class Uncached(FileStore):
    """Keeps nothing."""

    def table_files(self, state: TableState) -> TableFiles:
        return replace(super().table_files(state), cache=None)


def cache_of(store: FileStore) -> LookupCache:
    cache = store.table_files(store.state()).cache
    assert cache is not None
    return cache


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def history(kind: type[FileStore], folder: Path, options: Mapping[str, object], steps: list[Any]) -> dict[str, bytes]:
    """All files of a table after these steps. One slot gives the same ids each time: more are worked on by threads."""
    clock = Clock(step_ms=0)  # who asks for the time does not change it
    definition = define("p STRING, id BIGINT, s INT, v STRING, w ARRAY<INT>", ["p", "id"], ["p"], **options)
    ambient = seeded(clock=clock)
    create(folder, definition, ambient=ambient)
    store = kind.open(LocalStorage(), str(folder), ambient)
    for step in steps:
        if step == "compact":
            fold_table(store, full=True)
            compact_table(store, full=True)
        elif step == "hour":
            clock.ms += HOUR + 1
        else:
            write(store, step, later=definition.merges_on_read)
    fold_table(store, full=True)
    assert_healthy(store)
    return contents(folder)


@pytest.mark.few(1)
@pytest.mark.parametrize(("kind", "limits"), sampled(itertools.product(KINDS, LIMITS), 9, test=3, names=2))
@settings(max_examples=min(10, settings.default.max_examples // 2))
@given(steps=STEPS)
def test_a_table_is_the_same_byte_by_byte(kind: str, limits: str, steps: list[Any]) -> None:
    options = {"row__group_rows": 3, "checkpoint_interval": 1000, **KINDS[kind], **LIMITS[limits]}
    if kind == "first-row":
        steps = [step if isinstance(step, str) else [row | {"_kind": "+I"} for row in step] for step in steps]
    with tiny_row_groups(), memory_folder() as folder:
        kept = history(FileStore, folder / "kept", options, steps)
        assert kept == history(Uncached, folder / "not", options, steps)


@pytest.mark.few(2)
@pytest.mark.parametrize("limits", ["defaults", "on-disk"])
@pytest.mark.parametrize("kind", ["images-and-sequence", "partial-update"])
def test_the_third_write_reads_no_stored_file(
    folder: Path, kind: str, limits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = define("id STRING, s INT, v STRING", ["id"], **KINDS[kind], **LIMITS[limits])
    store = create(folder / "t", definition)
    write(store, [{"id": f"{n}", "s": 0, "v": "a"} for n in range(100)])
    [first] = paths(store.state())
    storage = FaultyStorage(store.storage)
    store = reopen(store, storage)
    opened, decoded, decode = [], [], row_groups._decoded

    def decoding(parts: Sequence[tuple[row_groups.RowGroups, int]], *rest: Any) -> Any:
        decoded.extend(groups.path for groups, _ in parts)
        return decode(parts, *rest)

    monkeypatch.setattr(row_groups, "_decoded", decoding)
    for number in range(4):
        storage.calls.clear()
        decoded.clear()
        write(store, [{"id": f"{n}", "s": number, "v": f"{number}"} for n in range(0, 100, 10 + number)])
        touched = [*decoded, *(call.path for call in storage.calls)]
        opened.append(any(path.endswith(first) for path in touched))
    assert opened == [True, True, False, False]
    assert (cache_of(store).disk_bytes > 0) == (limits == "on-disk")
    assert (cache_of(store).memory_bytes > 0) == (limits == "defaults")
    assert_healthy(store)


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", KINDS)
def test_who_writes_once_keeps_nothing(folder: Path, kind: str) -> None:
    """Even where a row group is met by many chunks."""
    definition = define("id BIGINT, s INT, v STRING", ["id"], row__group_rows=1024, **KINDS[kind], **ON_DISK)
    store = create(folder / "t", definition)
    write(store, [{"id": n * 100 + n % 2, "s": 0, "v": "a"} for n in range(1000)])
    store = reopen(store)
    write(store, pa.table({"id": range(0, 100_000, 10), "s": pa.array([1] * 10_000, pa.int32()), "v": ["b"] * 10_000}))
    cache = cache_of(store)
    assert cache.disk_bytes == 0
    write(store, [{"id": 100, "s": 2, "v": "c"}])
    assert cache.disk_bytes > 0, "now it pays"


def test_a_lost_race_is_looked_up_in_what_is_kept(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT, v STRING", ["id"], **LOOKUP, **ON_DISK))
    write(store, [{"id": n, "v": "a"} for n in range(50)])
    for number in range(4):
        mine = prepare(store, [{"id": n, "v": f"mine {number}"} for n in range(0, 50, 7)])
        write(reopen(store), [{"id": n, "v": f"other {number}"} for n in range(0, 50, 5)])
        mine.commit()
        assert len(mine.rebases) == 1
    assert cache_of(store).disk_bytes > 0
    others = {n: "other 3" for n in range(0, 50, 5)} | {n: "mine 3" for n in range(0, 50, 7)}
    assert read(store) == in_order({"id": n, "v": others.get(n, "a")} for n in range(50))
    assert_healthy(store)


def test_what_is_not_used_is_let_go_by_writes(folder: Path) -> None:
    clock = Clock()
    store = create(folder / "t", define("id BIGINT, v STRING", ["id"], **ON_DISK), ambient=seeded(clock=clock))
    for number in range(4):
        write(store, [{"id": n, "v": f"{number}"} for n in range(0, 90, 1 + number)])
    assert cache_of(store).disk_bytes > 0
    clock.ms += HOUR + 1000
    write(store, [{"id": 3, "v": "z"}])
    assert cache_of(store).disk_bytes == 0


def test_columns_and_options_that_change_are_seen(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT, v INT", ["id"], **LOOKUP, **ON_DISK))

    def upsert(value: int) -> None:
        write(store, [{"id": n, "v": value} for n in range(0, 40, 3)])

    write(store, [{"id": n, "v": 0} for n in range(40)])
    for value in range(1, 4):
        upsert(value)
    assert cache_of(store).disk_bytes > 0

    def change(text: str) -> None:
        alter(store, parse_changes([text]), lambda *_: pytest.fail("metadata only"), lambda _: None)

    change("SET schema.evolution-mode = metadata")
    change("ADD COLUMN w STRING")
    change("RENAME COLUMN v TO u")
    change("ALTER COLUMN u TYPE BIGINT")
    change("SET lookup.cache-max-disk-size = 1 b")
    for value in range(4, 8):
        write(store, [{"id": n, "u": value << 40, "w": "w"} for n in range(0, 40, 3)])
    assert cache_of(store).disk_bytes <= 1
    assert [(r["u"], r["w"]) for r in read(store) if r["id"] in (0, 1)] == [(7 << 40, "w"), (0, None)]
    assert_healthy(store)


# -------------------------------------------------------------------------------------------------- other processes


def sent(store: FileStore) -> TableFiles:
    """As a task gets it."""
    table = cloudpickle.loads(cloudpickle.dumps(store.table_files(store.state())))
    assert isinstance(table, TableFiles)
    return table


def received(store: FileStore) -> LookupCache:
    cache = sent(store).cache
    assert cache is not None
    return cache


def warm(store: FileStore, table: TableFiles) -> None:
    probes = pa.table({"id": range(100)})
    for _ in range(2):
        for file in store.state().files:
            assert list(FileLookup(table, file, cache=table.cache).find(probes))


def stored(folder: Path, clock: Clock, **options: object) -> FileStore:
    store = create(folder, define("id BIGINT, v STRING", ["id"], **options), ambient=seeded(hash(folder), clock))
    write(store, [{"id": n, "v": "a"} for n in range(100)])
    return store


def test_tasks_of_a_process_share_one_for_a_table(folder: Path) -> None:
    store = stored(folder / "t", Clock(), **ON_DISK)
    first, second = sent(store), sent(store)
    assert first.cache is second.cache is not store.table_files(store.state()).cache
    warm(store, first)
    assert received(reopen(store)).disk_bytes > 0
    assert received(store).limits == cache_of(store).limits
    assert received(stored(folder / "other", Clock(), **ON_DISK)).disk_bytes == 0


def test_a_table_made_again_at_the_same_place_is_another(folder: Path) -> None:
    store = stored(folder / "t", Clock(), **ON_DISK)
    former = received(store)
    warm(store, sent(store))
    (folder / "t").rename(folder / "dropped")
    again = create(folder / "t", define("id BIGINT, v STRING", ["id"], **ON_DISK))
    assert received(again) is not former
    assert received(again).disk_bytes == 0


def test_tables_that_no_task_writes_any_more_are_let_go(folder: Path) -> None:
    clock = Clock()
    idle, busy = stored(folder / "idle", clock, **ON_DISK), stored(folder / "busy", clock, **ON_DISK)
    held = received(idle)
    warm(idle, sent(idle))
    assert held.disk_bytes > 0
    clock.ms += HOUR - 60_000
    received(busy)
    assert held.disk_bytes > 0
    assert received(idle) is held
    clock.ms += HOUR
    received(busy)
    assert held.disk_bytes == 0
    assert received(idle) is not held


def test_the_newest_limits_hold(folder: Path) -> None:
    store = stored(folder / "t", Clock(), **ON_DISK)
    there = received(store)
    warm(store, sent(store))
    assert there.disk_bytes > 0
    here = cache_of(store)
    here.limits = replace(here.limits, disk=1)
    assert cloudpickle.loads(cloudpickle.dumps(here)) is there
    assert there.limits == here.limits
    assert there.columns("nothing", ["id"], 1, lambda names: pytest.fail("it was not charged")) == {}
    assert there.disk_bytes == 0


def write_and_wait(location: str, folder: str, reported: Connection) -> None:
    """A writer with a folder of its own, which says what it holds and works on until it is killed."""
    store = FileStore.open(LocalStorage(), location, system_ambient())
    cache = cache_of(store)
    cache.folder = folder
    for number in range(1_000_000):
        write(store, [{"id": n, "v": f"{number}"} for n in range(0, 100, 2 + number % 5)])
        if cache.disk_bytes and number > 3:
            reported.send(Path("/proc/self/maps").read_text() if Path("/proc/self/maps").exists() else folder)


@pytest.mark.deep
@pytest.mark.slow
def test_a_killed_writer_leaves_no_file(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "anothers").write_text("stays")
    store = stored(folder / "t", Clock(), **LOOKUP, **ON_DISK)
    ours, theirs = PROCESSES.Pipe()
    writer = PROCESSES.Process(target=write_and_wait, args=(store.location, str(tmp_path), theirs))
    writer.start()
    theirs.close()
    try:
        assert str(tmp_path) in ours.recv(), "columns are mapped"
        assert [path.name for path in tmp_path.iterdir()] == ["anothers"]
    finally:
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        ours.close()
    assert [path.name for path in tmp_path.iterdir()] == ["anothers"]
    assert (tmp_path / "anothers").read_text() == "stays"
    write(store, [{"id": 1, "v": "after"}])
