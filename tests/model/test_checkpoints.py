"""A writer of a checkpoint stops before any of its requests, anything happens meanwhile, and it goes on.

Afterwards every reader reads the newest version, the hint names what is there, and each checkpoint is what the entries
say: whatever the others did, and however many writers stood still.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.compact import compact_table
from filestore import layout
from filestore.delta.checkpoint import write_checkpoint
from filestore.delta.log import DeltaLog
from filestore.delta.state import Replayed, TableState
from filestore.errors import NotFound
from filestore.life.expiry import expire
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tests.faults import Call, FaultyStorage
from tests.folders import memory_folder
from tests.tables import (
    Clock,
    assert_healthy,
    create,
    define,
    in_order,
    read,
    read_deltalake,
    read_polars,
    reopen,
    seeded,
    write,
)

COLUMNS = "id BIGINT, p STRING, v INT"
REQUESTS = 6  # of a checkpoint, in a local folder
DEEDS = ["write", "compact", "newer", "same", "expire", "drop", "create", "stand still"]
DUE = Replayed(0, 10_000)


@dataclass
class World:
    """A table, what is in it, and the writers of checkpoints that stand still."""

    location: Path
    store: FileStore
    rows: dict[tuple[int, str], int] = field(default_factory=dict)
    tables: int = 1
    written: int = 0
    there: bool = True

    @classmethod
    def begun(cls, folder: str) -> World:
        new = cls(Path(folder) / "t", new_table(Path(folder) / "t", 1))
        for _ in range(3):
            new._write()
        return new

    def do(self, deed: str, others: Sequence[tuple[int, Sequence[str]]] = ()) -> None:
        """Does one thing, as a process of its own that finds the table as it is.

        Args:
            deed: One of `DEEDS`.
            others: The writers that stand still next, and what happens then.
        """
        if deed == "create":
            self._create()
        elif self.there and deed == "stand still":
            if others:
                self.suspended(*others[0], others[1:])
        elif self.there:
            {
                "write": self._write,
                "compact": lambda: compact_table(self.store, full=True),
                "newer": self._newer,
                "same": self._checkpoint,
                "expire": lambda: expire(self.store),
                "drop": self._drop,
            }[deed]()

    def _write(self) -> None:
        self.written += 1
        keys = [(number, p) for number in range(1 + self.written % 3) for p in ("é x", "%2F")]
        write(self.store, [{"id": number, "p": p, "v": self.written} for number, p in keys])
        self.rows |= dict.fromkeys(keys, self.written)

    def _checkpoint(self) -> None:
        write_checkpoint(self.store.delta_log, due(self.store.state()))

    def _newer(self) -> None:
        self._write()
        self._checkpoint()

    def _drop(self) -> None:
        shutil.rmtree(self.location)
        self.there, self.rows = False, {}

    def _create(self) -> None:
        if self.there:
            self._drop()
        self.tables += 1
        self.store, self.there = new_table(self.location, self.tables), True
        for _ in range(self.tables % 3):
            self._write()

    def suspended(self, request: int, deeds: Sequence[str], others: Sequence[tuple[int, Sequence[str]]]) -> None:
        """Writes a checkpoint, and does other things before one of its requests."""
        count = 0

        def hook(call: Call) -> None:
            nonlocal count
            count += not call.done
            if count == request and not call.done:
                count += 1_000
                for deed in deeds:
                    self.do(deed, others)

        log = DeltaLog(FaultyStorage(LocalStorage(), hook), self.store.location)
        try:
            write_checkpoint(log, due(self.store.state()))
        except NotFound:  # its folder is gone
            assert not self.there

    def check(self) -> None:
        """Checks that all readers read what was written."""
        hint, log = self.location / layout.LAST_CHECKPOINT, self.store.delta_log
        if not self.there:
            assert not list(self.location.rglob("*.json"))
            self._create()
        expected = in_order({"id": number, "p": p, "v": v} for (number, p), v in self.rows.items())
        store = reopen(self.store)
        assert in_order(read(store)) == expected
        for version in log.checkpoints():
            if version > log.versions()[0]:
                assert log.checkpoint(version).same(log.replayed(version))
        if hint.exists():
            assert log.last_checkpoint() in log.checkpoints()
        assert in_order(read_deltalake(store.location)) == in_order(read_polars(store.location)) == expected
        assert_healthy(store)


def due(state: TableState) -> TableState:
    return replace(state, replayed=DUE)


def new_table(location: Path, number: int) -> FileStore:
    options: dict[str, Any] = {"bucket": 1, "checkpoint_interval": 10_000}
    options |= {"snapshot_num__retained_min": 1, "snapshot_time__retained": "0 ms"}
    definition = define(COLUMNS, ["id", "p"], ["p"], **options)
    return create(location, definition, ambient=seeded(number, Clock(ms=1_700_000_000_000 + number * 10**9)))


def checked(folder: str, do: Callable[[World], None]) -> None:
    world = World.begun(folder)
    do(world)
    world.check()
    world.do("newer")
    world.do("expire")
    world.check()


MEANWHILE = [*([deed] for deed in DEEDS[:-1]), ["newer", "expire"], ["drop", "create", "newer"]]


@pytest.mark.few(16)
@pytest.mark.parametrize("request_number", range(1, REQUESTS + 1))
@pytest.mark.parametrize("deeds", MEANWHILE, ids="-".join)
def test_a_writer_that_stood_still_leaves_what_all_readers_read(request_number: int, deeds: list[str]) -> None:
    with memory_folder() as folder:
        checked(str(folder), lambda world: world.suspended(request_number, deeds, []))


STANDING = st.tuples(st.integers(1, REQUESTS), st.lists(st.sampled_from(DEEDS), min_size=1, max_size=4))


@pytest.mark.slow
@given(st.lists(st.sampled_from(DEEDS[:-1]), max_size=3), st.lists(STANDING, min_size=1, max_size=3))
def test_many_writers_that_stood_still_leave_what_all_readers_read(
    before: list[str], standing: list[tuple[int, list[str]]]
) -> None:
    """One inside of the other: the one that stopped first goes on last."""

    def do(world: World) -> None:
        for deed in before:
            world.do(deed)
        if world.there:
            world.suspended(*standing[0], standing[1:])

    with memory_folder() as folder:
        checked(str(folder), do)
