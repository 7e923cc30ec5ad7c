"""Four processes upsert overlapping keys: no update is lost, no key doubled, each commit is known or a conflict."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tablestore import Store, Table
from tests.depth import Depth, sampled
from tests.integration.contending import Reported, contend, history
from tests.integration.foreign import ForeignConsumer
from tests.logorder import applied
from tests.opened import again
from tests.servers.kafka import KafkaBroker
from tests.tables import in_order
from tests.warehouses import assert_whole, changes, open_in_log, replay, rows

SCHEMA = "id BIGINT, writer INT, number INT, at INT"
WRITERS = 4


class LiveReader(threading.Thread):
    """Follows the table from its beginning while the writers are at work, and to the end once they have finished."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self._table = table
        self.finished = threading.Event()
        self.changes: list[dict[str, Any]] = []

    def run(self) -> None:
        for batch in self._table.follow(stop=self.finished.is_set):
            self.changes += batch.to_pylist()


def modelled(reported: list[Reported], sequence: bool) -> list[dict[str, Any]]:
    """The table after those commits, in the order of their versions. Deletes are remembered like rows."""
    newest: dict[int, dict[str, Any]] = {}
    for commit in reported:
        for change in commit.rows:
            before = newest.get(change["id"])
            if not sequence or before is None or before["at"] <= change["at"]:
                newest[change["id"]] = change
    rows = (change for change in newest.values() if change["_kind"] != "-D")
    return in_order({name: value for name, value in row.items() if name != "_kind"} for row in rows)


def run(table: Table, folder: Path, seed: int, commits: int, sequence: bool = False) -> None:
    reader = LiveReader(table)
    reader.start()
    try:
        reported = contend(table, folder, seed, WRITERS, commits)
    finally:
        reader.finished.set()
        reader.join(300)
    newest = table.filestore.state().version
    acknowledged = history(reported)
    lost = len(reported) - len(acknowledged)
    print(f"{len(acknowledged)} commits, {lost} conflicts")
    assert newest == len(acknowledged)
    assert len(acknowledged) > WRITERS
    by_version = {s.version: s.commit_id for s in table.snapshots()}
    assert all(by_version[t.version] == t.commit_id for t in acknowledged)
    found = assert_whole(table)
    assert found == modelled(acknowledged, sequence)
    assert not reader.is_alive()
    assert replay(reader.changes, ["id"]) == found


@pytest.fixture(params=sampled(["sequence-field", "last-row-wins"], 2, test=2))
def sequence(request: pytest.FixtureRequest) -> bool:
    return request.param == "sequence-field"


@pytest.fixture(params=[pytest.param(100, marks=pytest.mark.deep), 8], ids=["long", "short"])
def commits(request: pytest.FixtureRequest) -> int:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.deep  # tests/model/test_many_writers.py has four processes
@pytest.mark.slow
def test_with_the_embedded_log(store: Store, folder: Path, seed: int, sequence: bool, commits: int) -> None:
    options = {"bucket": "2"} | ({"sequence.field": "at"} if sequence else {})
    table = store.create_table("shop.orders", SCHEMA, primary_key=["id"], options=options)
    run(table, folder, seed, commits, sequence)
    assert open_in_log(table) == []


@pytest.mark.deep
def test_with_kafka(store: Store, kafka_broker: KafkaBroker, folder: Path, seed: int, sequence: bool) -> None:
    """A foreign consumer that applies records as they come may differ: Kafka's order is not that of the snapshots."""
    options = {"bucket": "2", "log.system": "kafka", "log.kafka.bootstrap.servers": kafka_broker.bootstrap}
    options |= {"sequence.field": "at"} if sequence else {}
    table = store.create_table("shop.orders", SCHEMA, primary_key=["id"], options=options)
    with ForeignConsumer(table) as foreign:
        run(table, folder, seed, 6, sequence)
        foreign.catch_up()


RECORDS = 800


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"log.consistency": "transactional"},
        {"log.kafka.transactions": "false"},
        {"log.consistency": "eventual"},
    ],
    ids=["transactional", "plain", "eventual"],
)
def test_rounds_of_two_writers_of_one_bucket(
    store: Store, kafka_broker: KafkaBroker, seed: int, options: dict[str, str], depth: Depth
) -> None:
    """The race that lost half of the records in Flink Table Store: commits in another order than the log's."""
    options = {"log.system": "kafka", "log.kafka.bootstrap.servers": kafka_broker.bootstrap, "bucket": "1"} | options
    table = store.create_table("shop.orders", SCHEMA, primary_key=["id"], options=options)
    dice = random.Random(seed)
    rounds = depth.times(3, deep=8)
    for number in range(rounds):
        start = threading.Barrier(2)
        writers = [
            threading.Thread(target=_write_half, args=(table, start, writer, number, dice.randrange(1 << 30)))
            for writer in range(2)
        ]
        for thread in writers:
            thread.start()
        for thread in writers:
            thread.join(300)
    reported = sum(r.count for s in table.snapshots() for t in s.transactions for r in t.ranges)
    assert len(table.snapshots()) == 1 + 2 * rounds
    assert reported >= rounds * RECORDS, "nothing is lost"
    found = assert_whole(table)
    for version in range(0, 2 * rounds + 1, 5):
        started = [{**row, "_kind": "+I"} for row in rows(table, version)] + changes(table, version=version)
        assert replay(started, ["id"]) == found, version
    if options.get("log.consistency") == "eventual":
        assert applied(table) == found


def _write_half(table: Table, start: threading.Barrier, writer: int, number: int, seed: int) -> None:
    """Half of a round's records; two thirds of their keys are the other half's, too."""
    ids = random.Random(seed).sample(range(600), RECORDS // 2)
    batch = pa.table({"id": ids, "writer": [writer] * len(ids), "number": [number] * len(ids), "at": range(len(ids))})
    own = again(table)
    start.wait(300)
    own.write(batch)
