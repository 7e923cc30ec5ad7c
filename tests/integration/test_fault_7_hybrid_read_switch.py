"""Fault test 7: readers begin at snapshots while writers commit and the log is truncated to a later one.

A reader gets every change once and in the bucket's order, or an error about the gap: it skips none silently.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from filestore.errors import NotFound
from filestore.rows.bucketing import bucket_of
from log.table.systems import open_log
from tablestore import Store, Table
from tablestore.following.follow import Following
from tests.integration.test_eventual_log import between, on
from tests.warehouses import changes, replay, rows

pytestmark = pytest.mark.slow

Row = dict[str, Any]
BUCKETS = 2
STEPS = 20
WRITERS = ("even", "odd")

MODES: Mapping[str, Mapping[str, str]] = {
    "transactional": {},
    "plain": {"log.kafka.transactions": "false"},
    "eventual": {"log.consistency": "eventual"},
}
LOGS = [
    *(pytest.param(("embedded", mode), id=f"embedded-{mode}") for mode in ("transactional", "eventual")),
    *(
        pytest.param(("kafka", mode), id=f"kafka-{mode}", marks=pytest.mark.kafka)
        for mode in ("transactional", "eventual")
    ),
    pytest.param(("kafka", "plain"), id="kafka-plain", marks=[pytest.mark.kafka, pytest.mark.deep]),
]


@pytest.fixture(params=LOGS)
def table(store: Store, request: pytest.FixtureRequest) -> Table:
    system, mode = request.param
    options = {"bucket": str(BUCKETS), "log.system": system, **MODES[mode]}
    if system == "kafka":
        options["log.kafka.bootstrap.servers"] = request.getfixturevalue("kafka_broker").bootstrap
    return store.create_table("shop.orders", "id BIGINT, n BIGINT", primary_key=["id"], options=options)


def truncate(table: Table, version: int) -> None:
    """Truncates the log up to the version's log offsets."""
    config = table.opened.log_config()
    assert config is not None
    with open_log(config, table.opened.ambient) as log:
        log.trim(table.filestore.state(version).log.offsets)


@dataclass
class Reader:
    """A reader that began at a version: the rows of that version, and the changes that it has read since."""

    table: Table
    pinned: int
    following: Following
    stop: threading.Event
    state: list[Row]
    found: list[Row] = field(default_factory=list)
    reported_gap: bool = False

    @classmethod
    def pin(cls, table: Table) -> Reader:
        stop = threading.Event()
        pinned = table.filestore.state().version
        following = table.follow(version=pinned, stop=stop)
        return cls(table, pinned, following, stop, [{**row, "_kind": "+I"} for row in rows(table, pinned)])

    def read(self) -> None:
        """Reads one more batch, which must be there."""
        try:
            self.found += next(self.following).to_pylist()
        except NotFound as error:
            assert error.code == "log-gap"
            assert 'scan="full"' in str(error)
            self.reported_gap = True

    def finish(self) -> None:
        self.stop.set()
        try:
            self.found += [row for batch in self.following for row in batch.to_pylist()]
        except NotFound as error:
            assert error.code == "log-gap"
            self.reported_gap = True


class Writers:
    """Two writers with keys of their own, so that no repair writes a change twice; and what they wrote, by version."""

    def __init__(self, table: Table, seed: int) -> None:
        self.table = table
        self.dice = random.Random(seed)
        self.written: dict[int, list[Row]] = {}
        self._number = 0

    def write(self, writer: int, meanwhile: bool = False) -> None:
        """Writes puts and deletes in both buckets; the other writer may commit between this log and its snapshot."""
        self._number += 1
        keys = self.dice.sample(range(writer, 40, 2), 8)
        gone = {key for key in keys if self.dice.random() < 0.2}
        found = [
            {"id": key, "n": None, "_kind": "-D"} if key in gone else {"id": key, "n": self._number, "_kind": "+U"}
            for key in sorted(keys)
        ]
        where = between(self.table, lambda: self.write(1 - writer)) if meanwhile else on(self.table)
        schema = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("_kind", pa.string())])
        version = where.write(pa.Table.from_pylist(found, schema=schema)).version
        self.written[version] = found

    def since(self, version: int) -> list[Row]:
        return [row for number in sorted(self.written) if number > version for row in self.written[number]]


def by_bucket(found: Sequence[Row], apart: Sequence[str]) -> dict[tuple[int, str], list[tuple[int, int | None]]]:
    """Returns the changes of each bucket in their order, or of each writer in each bucket if `apart` names writers."""
    buckets = bucket_of(pa.table({"id": pa.array([row["id"] for row in found], pa.int64())}), ["id"], BUCKETS)
    listed: dict[tuple[int, str], list[tuple[int, int | None]]] = defaultdict(list)
    for row, bucket in zip(found, buckets.tolist(), strict=True):
        writer = apart[row["id"] % len(apart)] if apart else ""
        listed[bucket, writer].append((row["id"], row["n"] if row["_kind"] in ("+I", "+U") else None))
    return listed


def check(table: Table, readers: Iterable[Reader], writers: Writers, seed: int) -> None:
    """Asserts that each reader has all its changes, or got an error about a gap and has the changes before it.

    An eventual log is in the order of its records and not of its versions, so only each writer's own order is compared.
    """
    apart = WRITERS if table.definition.options["log.consistency"] == "eventual" else ()
    for reader in readers:
        where = f"seed {seed}, pinned at {reader.pinned}"
        expected, found = by_bucket(writers.since(reader.pinned), apart), by_bucket(reader.found, apart)
        assert set(found) <= set(expected), where
        for place, listed in expected.items():
            got = found.get(place, [])
            assert got == (listed[: len(got)] if reader.reported_gap else listed), f"{where}, {place}"
        if not reader.reported_gap:
            assert replay([*reader.state, *reader.found], ["id"]) == rows(table), where


@pytest.mark.few(2)
def test_changes_arrive_once_and_in_order_or_the_reader_gets_an_error_about_the_gap(table: Table, seed: int) -> None:
    """Writers, readers and the truncation take turns at random."""
    dice, writers = random.Random(seed), Writers(table, seed)
    writers.write(0)
    readers, gone = [Reader.pin(table)], 0
    for _ in range(STEPS):
        newest = table.filestore.state().version
        action = dice.choice(["write", "write", "race", "read", "read", "pin", "truncate"])
        if action in ("write", "race"):
            writers.write(dice.randrange(2), meanwhile=action == "race")
        elif action == "pin":
            readers.append(Reader.pin(table))
        elif action == "truncate":
            gone = max(gone, dice.randint(1, newest))
            truncate(table, gone)
        else:
            behind = [r for r in readers if not r.reported_gap and len(r.found) < len(writers.since(r.pinned))]
            if behind:
                dice.choice(behind).read()
    readers.append(Reader.pin(table))  # nothing is truncated after it has begun
    writers.write(0)
    for reader in readers:
        reader.finish()
    assert not readers[-1].reported_gap
    check(table, readers, writers, seed)


@pytest.mark.few(2)
def test_a_reader_behind_the_truncation_gets_an_error_and_one_past_it_misses_nothing(table: Table, seed: int) -> None:
    """Readers begin at version S, five versions are committed, and the log is truncated to S + 3."""
    writers = Writers(table, seed)
    writers.write(0)
    behind, within = Reader.pin(table), Reader.pin(table)
    for number in range(3):
        writers.write(number % 2)
    truncate_at = table.filestore.state().version
    while len(within.found) < len(writers.since(within.pinned)):
        within.read()
    at_the_cut = Reader.pin(table)
    for number in range(2):
        writers.write(number % 2)
    truncate(table, truncate_at)
    late = Reader(table, behind.pinned, table.follow(version=behind.pinned, stop=behind.stop), behind.stop, [])
    for reader in (behind, late, within, at_the_cut):
        reader.finish()
    assert [r.reported_gap for r in (behind, late, within, at_the_cut)] == [True, True, False, False]
    check(table, (behind, late, within, at_the_cut), writers, seed)
    assert replay(changes(table, "full"), ["id"]) == rows(table), "which is what the error advises"
