"""Writers die at each point between log and snapshot: after recovery the log is exactly what the snapshots say."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from filestore.errors import Unavailable
from tablestore import Store, Table
from tests.depth import Depth, sampled
from tests.integration.log_deaths import COMMITTED, POINTS, large_batch, rows_after, standing_still, write_tasks
from tests.servers.kafka import KafkaBroker, quiet
from tests.warehouses import changes, replay, rows

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(900)]

SECONDS = 120.0
Value = dict[str, Any]


@pytest.fixture
def broker(mortal_broker: KafkaBroker) -> KafkaBroker:
    return mortal_broker


MODES = {
    "transactions": {},
    "plain": {"log.kafka.transactions": "false"},
    "eventual": {"log.consistency": "eventual"},
}


def make_tables(store: Store, broker: KafkaBroker, mode: str, count: int) -> list[Table]:
    options = {
        "bucket": "2",
        "log.system": "kafka",
        "log.kafka.bootstrap.servers": broker.bootstrap,
        **MODES[mode],
        "log.kafka.properties.socket.timeout.ms": "5000",
    }
    return [
        store.create_table(f"shop.t{n}", "id BIGINT, batch BIGINT", primary_key=["id"], options=options)
        for n in range(count)
    ]


def topic_of(table: Table) -> str:
    config = table.opened.log_config()
    assert config is not None
    return str(config.topic)


def named(table: Table) -> Counter[str]:
    """Returns how many records each commit has, as the snapshots say."""
    snapshots = [s for s in table.snapshots() if s.transactions]
    return Counter({s.commit_id: sum(r.count for t in s.transactions for r in t.ranges) for s in snapshots})


def foreign_values(tables: Sequence[Table]) -> dict[str, list[Value]]:
    """Reads each topic by a consumer with read_committed, in the order of each partition, up to the partition's end."""
    consumer = Consumer(
        {
            **quiet(tables[0].definition.options["log.kafka.bootstrap.servers"]),
            "group.id": str(uuid.uuid4()),
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    parts = [TopicPartition(topic_of(table), bucket, 0) for table in tables for bucket in range(2)]
    consumer.assign(parts)
    values: dict[str, list[Value]] = {topic_of(table): [] for table in tables}
    left = {(part.topic, part.partition) for part in parts}
    until = time.monotonic() + SECONDS
    while left:
        assert time.monotonic() < until, f"{len(left)} partitions do not end"
        for message in consumer.consume(1000, 0.2):
            if message.error() is not None:
                left.discard((message.topic(), message.partition()))
            else:
                values[str(message.topic())].append(json.loads(message.value() or b"null"))
    consumer.close()
    return values


def caught_up(tables: Sequence[Table]) -> dict[str, list[Value]]:
    """Returns `foreign_values` once they have all that snapshots name.

    A recovery may be incomplete if the broker had just restarted, and that broker may leave out a
    marker while it starts (PROTOCOL.md section 8): the recovery is repeated, as compactors do it.
    """
    until = time.monotonic() + SECONDS
    while True:
        found = foreign_values(tables)
        lacking = [t for t in tables if len(found[topic_of(t)]) < sum(named(t).values())]
        if not lacking:
            return found
        assert time.monotonic() < until, f"read_committed does not get all: {[_standing(t) for t in lacking]}"
        for table in lacking:
            with suppress(Unavailable):
                table.recover()


def _standing(table: Table) -> str:
    """Describes a log that holds its readers back."""
    open_ = [t.id for t in table.filestore.state().log.open]
    return f"{topic_of(table)}: {table.log_status()}, open: {open_}"


def changes_of(values: Sequence[Value]) -> list[dict[str, Any]]:
    kinds = {"c": "+I", "u": "+U", "d": "-D"}
    return [{**(v["after"] or v["before"]), "_kind": kinds[v["op"]]} for v in values]


def by_id(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: int(row["id"]))


class Fleet:
    """Tables whose writers die together, and the batches that were written to each."""

    def __init__(self, store: Store, broker: KafkaBroker, seed: int, mode: str, count: int) -> None:
        self.tables = make_tables(store, broker, mode, count)
        self._broker = broker
        self._seed = seed
        self._mode = mode
        self._written: list[list[int]] = [[] for _ in self.tables]

    def write(self, own: int, number: int) -> None:
        write_tasks(self.tables[own], large_batch(self._seed + own, number))
        self._written[own].append(number)

    def expected(self, own: int) -> list[dict[str, Any]]:
        return rows_after(self._seed + own, self._written[own])

    def die(self, number: int, point: str, killed: str) -> None:
        """Kills all writers at a point; then recovers half of the tables, and writes to the others."""
        process = standing_still([t.opened.identity for t in self.tables], self._seed, number, point)
        if killed == "broker":
            self._broker.kill()
        process.kill()
        process.join()
        if killed == "broker":
            self._broker.start()
        if COMMITTED[point]:
            for numbers in self._written:
                numbers.append(number)
        with ThreadPoolExecutor(4) as pool:  # each thread waits for the broker most of the time
            list(pool.map(lambda own: self._repair(own, number), range(len(self.tables))))

    def _repair(self, own: int, number: int) -> None:
        until = time.monotonic() + SECONDS
        while True:
            try:
                if own % 2:
                    self.tables[own].recover()
                else:
                    self.write(own, number + 100)
            except Unavailable:  # from a broker that has just restarted
                assert time.monotonic() < until
            else:
                return

    def check(self, where: str) -> None:
        """Asserts that tables, snapshots and the records that other consumers read agree."""
        found = caught_up(self.tables)
        for own, table in enumerate(self.tables):
            reported = f"seed {self._seed}, table {own}, {where}"
            assert by_id(rows(table)) == self.expected(own), reported
            values, commits = found[topic_of(table)], named(table)
            if self._mode == "plain":  # only the snapshots say what was committed
                values = [v for v in values if v["source"]["commit"] in commits]
            if self._mode != "eventual":  # readers of an eventual log read aborted records, too
                assert Counter(v["source"]["commit"] for v in values) == commits, reported
            assert by_id(replay(changes_of(values), ["id"])) == self.expected(own), reported

    def check_readers(self) -> None:
        """Asserts that our readers, started at each version, end with the table's rows."""
        for own, table in list(enumerate(self.tables))[::4]:
            for version in range(table.filestore.state().version + 1):
                started = [{**row, "_kind": "+I"} for row in rows(table, version)] + changes(table, version=version)
                assert by_id(replay(started, ["id"])) == self.expected(own), (self._seed, own, version)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("mode", "killed"),
    sampled([(mode, killed) for mode in MODES for killed in ("writer", "broker")], 6, test=3, names=2),
)
def test_deaths_between_log_and_snapshot(
    store: Store, broker: KafkaBroker, seed: int, mode: str, killed: str, depth: Depth
) -> None:
    fleet = Fleet(store, broker, seed, mode, count=depth.times(4, deep=8))
    for own in range(len(fleet.tables)):
        fleet.write(own, 0)
    points = [point for point in POINTS if mode == "transactions" or point != "between-ends"]
    for number, point in enumerate(depth.sample(points, 1) if killed == "broker" else points, start=1):
        fleet.die(number, point, killed)
        fleet.check(point)
    fleet.check_readers()
