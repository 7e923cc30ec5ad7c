"""A large version is packed beside what its process does, and is the same version then."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from compaction.compact import compact_table
from filestore.beside import Work
from filestore.delta.base import FEW_FILES
from filestore.delta.by_slot import BySlot
from filestore.delta.checkpoint import write_checkpoint
from filestore.delta.columns import ColumnFiles
from filestore.delta.state import Replayed, TableState
from filestore.model.files import DataFile, Slot
from filestore.table import FileStore
from tests.tables import assert_healthy, create, define, read, seeded, write

FEW = 3


@pytest.fixture(autouse=True)
def few_files() -> Iterator[None]:
    """Has versions packed that have more than three files, in pages of two."""
    with pytest.MonkeyPatch.context() as patched:
        for module in ("base", "by_slot", "columns"):
            patched.setattr(f"filestore.delta.{module}.FEW_FILES", FEW)
        patched.setattr("filestore.delta.columns.KEPT_FILES", FEW)
        patched.setattr("filestore.delta.pages.PAGE_ROWS", 2)
        yield


def table(folder: Path) -> FileStore:
    store = create(folder / "t", define("id BIGINT, p INT, v INT", ["id", "p"], ["p"]), ambient=seeded(1))
    for version in range(3):
        write(store, [{"id": n, "p": n % 7, "v": version} for n in range(version, 20)])
    return store


def opened(store: FileStore, work: list[Work]) -> FileStore:
    """Another process, which does nothing beside until the test says so."""
    ambient = replace(store.ambient, beside=lambda _, some: work.append(some))
    return FileStore(store.storage, store.location, ambient)


def is_packed(state: TableState) -> bool:
    base, _ = state.files.parts()
    return isinstance(base, ColumnFiles) and base._pages.packed


def test_what_was_read_is_packed_once_beside(folder: Path) -> None:
    store = table(folder)
    write_checkpoint(store.delta_log, replace(store.state(), replayed=Replayed(0, 10_000)))
    work = list[Work]()
    other = opened(store, work)
    first = other.state()
    other.state()
    assert (len(work), first.files.lean, is_packed(first)) == (1, False, False)
    work.pop()()
    second = other.state()
    assert (work, second.files.lean, is_packed(second)) == ([], True, True)
    assert second == first == store.state() and second.same(first)
    assert read(other) == read(store)
    write(other, [{"id": n, "p": n % 7, "v": 9} for n in range(0, 20, 2)])
    compact_table(other, full=True)
    assert read(other) == read(store)
    assert_healthy(other)


def test_what_a_process_has_made_becomes_columns(folder: Path) -> None:
    """A load of many files left objects, until a checkpoint was due."""
    store = table(folder)
    work = list[Work]()
    other = opened(store, work)
    write(other, [{"id": n, "p": n, "v": 9} for n in range(20, 60)])
    before = other.state()
    while work:
        work.pop()()
    after = other.state()
    assert is_packed(after) and after == before and len(after.files) > 40
    assert read(other) == read(store)


@pytest.mark.parametrize("after", [0, 1, 7])
def test_packing_that_was_stopped_gives_nothing(after: int) -> None:
    """Even if it might go on again: somebody has waited for the end of the work, and does not any more."""
    columns = ColumnFiles.of(BySlot(map(_file, range(FEW_FILES + 1))), ())
    answers = itertools.chain([True] * after, [False], itertools.repeat(True))
    assert columns.packed(lambda: next(answers)) is None
    whole = columns.packed()
    assert whole is not None
    assert sum(map(len, whole.paths())) == whole.count == FEW_FILES + 1


def test_packed_files_take_no_more_than_their_bytes() -> None:
    """Arrow's own buffers would keep the room for the longest result of the compression."""
    before = pa.total_allocated_bytes()
    columns = ColumnFiles.of(BySlot(map(_file, range(FEW_FILES + 1))), ()).packed()
    assert columns is not None
    assert pa.total_allocated_bytes() - before < 100_000
    assert sum(page.content.size for page in columns._pages.pages) < 200 * columns.count


def _file(number: int) -> DataFile:
    return DataFile(f"{number}.parquet", Slot((), number % 50), 1, 1, 1, f'{{"numRecords":{number}}}')


def test_nothing_is_packed_while_the_process_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = table(folder)
    work = list[Work]()
    other = opened(store, work)
    other.state()
    with monkeypatch.context() as patched:
        patched.setattr("filestore.table.awaited", lambda: True)
        work.pop()()
    assert not is_packed(other.state())
    work.pop()()  # the process did not end after all: a store was closed
    assert is_packed(other.state())


def test_what_changed_is_merged_beside(folder: Path) -> None:
    """Each commit copies references to all slots that have changed since the last merge."""
    store = table(folder)
    work = list[Work]()
    other = opened(store, work)
    other.state()
    work.pop()()
    for version in range(4):
        write(other, [{"id": n, "p": n % 7, "v": version} for n in range(3)])
    assert len(other.state().files.parts()[1]) == FEW and not work
    write(other, [{"id": n, "p": n % 7, "v": 9} for n in range(7)])
    other.state()
    [merge] = work
    merge()
    assert (len(other.state().files.parts()[1]), is_packed(other.state())) == (0, True)
    assert read(other) == read(store)
