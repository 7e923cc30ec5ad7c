"""Commits, expiries, tags, consumers and rollbacks in any order, against a dict of what each version held."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from compaction.compact import compact_table
from filestore.errors import NotFound
from filestore.life.consumers import Consumer, consumers_of
from filestore.life.expiry import expire
from filestore.life.tags import create_tag, delete_tag
from filestore.retention.rules import first_retained, tags_of
from filestore.table import FileStore
from tablestore.writing.writer import TableWriter
from tests.depth import Depth
from tests.folders import memory_folder
from tests.machines import run_machine
from tests.tables import (
    Clock,
    assert_healthy,
    create,
    define,
    paths,
    read,
    read_deltalake,
    read_polars,
    reopen,
    seeded,
    write,
)

Rows = list[dict[str, Any]]

HOUR = 3_600_000
OPTIONS = {
    "bucket": 2,
    "snapshot_num__retained_min": 2,
    "snapshot_num__retained_max": 8,
    "snapshot_time__retained": "2 h",
    "consumer_expiration__time": "10 h",
    "checkpoint_interval": 3,
}
NAMES = st.sampled_from(["a", "b", "c"])


class Life(RuleBasedStateMachine):
    """The oracle keeps every version's rows for ever, and says which of them must still be there."""

    places: Callable[[], AbstractContextManager[Path | str]]

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.clock = Clock()
        self.rows: dict[int, Rows] = {}
        self.times: dict[int, int] = {}
        self.tags: dict[str, int] = {}
        self.held: dict[str, tuple[Consumer, int]] = {}
        self.kept_from = 0

    @initialize()
    def make(self) -> None:
        folder = self.stack.enter_context(type(self).places())
        self.store = create(f"{folder}/t", define("id BIGINT, v INT", ["id"], **OPTIONS), ambient=seeded(1, self.clock))
        self.note()

    def note(self) -> None:
        """What is new has the rows that a reader sees now."""
        newest = self.store.state()
        for version in range(max(self.rows, default=-1) + 1, newest.version + 1):
            self.rows[version], self.times[version] = read(self.store), self.store.state(version).timestamp_ms

    @rule(keys=st.sets(st.integers(0, 9), min_size=1, max_size=4), value=st.integers(), overwrite=st.booleans())
    def put(self, keys: set[int], value: int, overwrite: bool) -> None:
        expected = {} if overwrite else {row["id"]: row for row in read(self.store)}
        write(self.store, [{"id": n, "v": value % 1000} for n in keys], overwrite=overwrite)
        expected |= {n: {"id": n, "v": value % 1000} for n in keys}
        assert read(self.store) == [expected[n] for n in sorted(expected)]
        self.note()

    @rule()
    def compact(self) -> None:
        compact_table(self.store, full=True)
        self.note()

    @rule(hours=st.integers(1, 6))
    def wait(self, hours: int) -> None:
        self.clock.ms += hours * HOUR

    @rule()
    def expire(self) -> None:
        before = self.store.state().version
        alive = [version for consumer, version in self.held.values() if self.is_alive(consumer)]
        now = self.clock.ms
        done = expire(self.store)
        self.note()
        if self.store.state().version > before:  # an expiry that was worth it
            by_time = max((v for v, t in self.times.items() if v <= before and t <= now - 2 * HOUR), default=0)
            wanted = min([max(by_time, before - 7), before - 1, *alive])
            assert done.first == max(self.kept_from, wanted)
            self.kept_from = done.first
        assert not set(done.files) & paths(self.store.state())

    def is_alive(self, consumer: Consumer) -> bool:
        return any(c.id == consumer.id for c in consumers_of(self.store))

    @rule(name=NAMES, back=st.integers(0, 12))
    def tag(self, name: str, back: int) -> None:
        version = max(0, self.store.state().version - back)
        if name in self.tags:
            delete_tag(self.store, name)
            del self.tags[name]
            self.note()
        if not self.promised(version):
            return
        create_tag(self.store, name, version)
        self.tags[name] = version
        self.note()

    def promised(self, version: int) -> bool:
        return version >= self.kept_from or version in self.tags.values()

    @rule(name=NAMES, back=st.integers(0, 12))
    def hold(self, name: str, back: int) -> None:
        version = max(0, self.store.state().version - back)
        had = self.held.pop(name, None)
        if had is not None:
            had[0].release()
        try:
            self.held[name] = Consumer(reopen(self.store), name).register(version), version
        except NotFound as error:
            assert error.code == "snapshot-expired"
            assert not self.promised(version)

    @rule(name=NAMES)
    def advance(self, name: str) -> None:
        if name in self.held:
            consumer, version = self.held.pop(name)
            alive = self.is_alive(consumer)
            following = min(version + 1, self.store.state().version)
            try:
                consumer.advance(following)
                self.held[name] = consumer, following
            except NotFound as error:
                assert error.code == "snapshot-expired"
                assert not alive

    @rule(back=st.integers(0, 12))
    def roll_back(self, back: int) -> None:
        version = max(0, self.store.state().version - back)
        try:
            TableWriter(self.store, lambda _: None, self.store.ambient).rollback(version)
        except NotFound as error:
            assert error.code == "snapshot-expired"
            assert not self.promised(version)
            return
        assert read(self.store) == self.rows[version]
        self.note()

    @rule()
    def restart(self) -> None:
        self.store = FileStore.open(self.store.storage, self.store.location, self.store.ambient)

    @invariant()
    def holds(self) -> None:
        if not self.rows:
            return
        assert first_retained(self.store.state()) == self.kept_from
        assert {tag.name: tag.version for tag in tags_of(self.store.state()).values()} == self.tags
        alive = [version for consumer, version in self.held.values() if self.is_alive(consumer)]
        fresh = reopen(self.store)
        for version, expected in self.rows.items():
            if self.promised(version) or (alive and version >= min(alive)):
                assert read(fresh, version) == expected, version
            else:
                try:
                    fresh.state(version)
                except NotFound as error:
                    assert error.code == "snapshot-expired"
                else:
                    raise AssertionError(f"version {version} should have expired")
        assert_healthy(fresh)

    def teardown(self) -> None:
        if self.rows:
            for version, expected in self.rows.items():
                if self.promised(version):
                    assert read_polars(self.store.location, version) == expected
                    assert read_deltalake(self.store.location, version) == expected
        self.stack.close()


def run(examples: int, steps: int, places: Callable[[], AbstractContextManager[Path | str]] = memory_folder) -> None:
    run_machine(Life, examples=examples, steps=steps, places=staticmethod(places))


def test_any_life_of_a_table_keeps_what_it_promises() -> None:
    run(4, 15)


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_any_long_life_of_a_table_keeps_what_it_promises(depth: Depth) -> None:
    run(depth.times(6, deep=15), 40)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_any_life_in_s3_keeps_what_it_promises(
    s3_places: Callable[[], AbstractContextManager[str]], depth: Depth
) -> None:
    run(depth.times(1, deep=4), depth.times(10, deep=25), s3_places)
