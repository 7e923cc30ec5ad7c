"""Kill -9 of the writing process: the table stays whole, what was acknowledged is there, the rest all or nothing."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tablestore import Store, Table
from tests.depth import Depth
from tests.integration.crashing import (
    APP,
    KEYS,
    Death,
    acknowledge,
    acknowledged,
    after,
    die_writing,
    write_on,
)
from tests.integration.foreign import ForeignConsumer
from tests.logorder import applied
from tests.opened import again
from tests.servers.kafka import KafkaBroker
from tests.tables import assert_healthy
from tests.warehouses import assert_whole, open_in_log, replay, rows

SCHEMA = "id BIGINT, batch BIGINT"


class Follower:
    """A reader that was there before the first crash and goes on through all of them."""

    def __init__(self, table: Table) -> None:
        self._state: dict[int, dict[str, Any]] = {}
        self._version = 0
        self._table = table

    def catch_up(self) -> list[dict[str, Any]]:
        """Reads on to the newest version."""
        newest = self._table.filestore.state().version
        for batch in self._table.follow(version=self._version, stop=newest):
            for row in batch.to_pylist():
                if row.pop("_kind") in ("+I", "+U"):
                    self._state[row["id"]] = row
                else:
                    self._state.pop(row["id"], None)
        self._version = newest
        return [self._state[key] for key in sorted(self._state)]


def by_value(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: repr(sorted(row.items())))


def crash(store: Store, table: Table, seed: int, rounds: int, acks: Path) -> None:
    """Rounds of dying and looking at what is left."""
    dice = random.Random(seed)
    follower = Follower(table)
    for number in range(rounds):
        written = table.filestore.state().app_versions.get(APP, -1) + 1
        death = Death(dice.randint(1, 400))
        assert die_writing(table, seed, written, acks, death)
        where = f"seed {seed}, round {number}, {death}"
        reopened = store.table("shop.orders")
        known = reopened.filestore.state().app_versions.get(APP, -1) + 1
        acked = acknowledged(acks)
        assert known in (acked, acked + 1), f"{where}: {acked} acknowledged, {known} there"
        while acknowledged(acks) < known:  # its writer had no time to say so
            acknowledge(acks, known - 1)
        expected = after(seed, range(known))
        assert rows(reopened) == by_value(expected), where
        assert_healthy(reopened.filestore)
        assert follower.catch_up() == expected, where


@pytest.mark.deep  # the few deaths are enough
@pytest.mark.slow
def test_many_deaths_of_a_writer(store: Store, folder: Path, seed: int, depth: Depth) -> None:
    rounds = depth.times(10, deep=20)
    table = store.create_table("shop.orders", SCHEMA, primary_key=["id"], options={"bucket": "2"})
    acks = folder / "acks"
    crash(store, table, seed, rounds, acks)
    done = acknowledged(acks)
    assert done > rounds // 2, "the writers got somewhere"
    write_on(store.table("shop.orders"), seed, done - 1, acks, until=done + 1)  # the first one is there already
    assert assert_whole(table) == by_value(after(seed, range(done + 1)))
    assert open_in_log(table) == [], "what the dead had prepared is ended or aborted"
    assert table.filestore.state().version == done + 1, "one version a batch, also of those that were written twice"
    assert len(rows(table)) <= KEYS


def die_at_each_call(table: Table, seed: int, number: int, acks: Path, calls: Iterable[int]) -> tuple[int, int]:
    """Runs processes that write one batch each, and die at one call after the other, until one has no such call.

    After each death the table has the batch or not, whole; both happen.

    Args:
        table: The table.
        seed: Of the batches.
        number: The first batch.
        acks: Where the processes record what was acknowledged.
        calls: The calls.

    Returns:
        How many batches the table has, and the last of the calls.
    """
    seen = set()
    for call in calls:
        died = die_writing(table, seed, number, acks, Death(call), until=number + 1)
        known = again(table).filestore.state().app_versions[APP] + 1
        seen.add(known - number)
        assert rows(table) == by_value(after(seed, range(known))), f"seed {seed}, call {call}"
        assert_healthy(table.filestore)
        number = known
        if not died:
            break
    assert seen == {0, 1}, "none or all"
    return number, call


@pytest.mark.slow
def test_death_at_each_point_of_a_write(store: Store, folder: Path, seed: int, depth: Depth) -> None:
    """Fault test 1: at every call of storage and log, before and after it."""
    table = store.create_table("shop.orders", SCHEMA, primary_key=["id"], options={"bucket": "2"})
    acks = folder / "acks"
    write_on(table, seed, 0, acks, until=2)
    number, call = die_at_each_call(table, seed, 2, acks, depth.counting(13))
    assert call > 40
    write_on(table, seed, number, acks, until=number + 1)
    assert open_in_log(table) == []
    assert_whole(table)


@pytest.mark.slow
def test_death_at_each_point_of_a_write_to_an_eventual_log(store: Store, folder: Path, seed: int, depth: Depth) -> None:
    """After each the log is recovered: a reader that applies it in its order has the table's rows."""
    options = {"bucket": "2", "log.consistency": "eventual"}
    table = store.create_table("shop.orders", SCHEMA, primary_key=["id"], options=options)
    acks = folder / "acks"
    write_on(table, seed, 0, acks, until=2)
    number, repairs = 2, 0
    for call in depth.counting(13):
        died = die_writing(table, seed, number, acks, Death(call), until=number + 1)
        number = table.filestore.state().app_versions[APP] + 1
        repairs += len(store.table("shop.orders").recover().repaired)
        assert rows(table) == by_value(after(seed, range(number))), f"seed {seed}, call {call}"
        assert applied(table) == rows(table), f"seed {seed}, call {call}"
        assert_healthy(table.filestore)
        if not died:
            break
    assert call > 40
    assert repairs > 0
    assert_whole(table)


def kafka_table(store: Store, broker: KafkaBroker) -> Table:
    options = {"bucket": "2", "log.system": "kafka", "log.kafka.bootstrap.servers": broker.bootstrap}
    return store.create_table("shop.orders", SCHEMA, primary_key=["id"], options=options)


@pytest.mark.deep
def test_deaths_of_a_writer_with_kafka(store: Store, kafka_broker: KafkaBroker, folder: Path, seed: int) -> None:
    """Other consumers of the topic see what was committed, all of it, and nothing else, though writers died."""
    table = kafka_table(store, kafka_broker)
    acks = folder / "acks"
    with ForeignConsumer(table) as foreign:
        crash(store, table, seed, 8, acks)
        done = acknowledged(acks)
        write_on(store.table("shop.orders"), seed, done, acks, until=done + 1)
        foreign.catch_up()
        assert replay(foreign.changes(), ["id"]) == assert_whole(table)


@pytest.mark.slow
def test_a_few_deaths_of_a_writer(store: Store, folder: Path, seed: int) -> None:
    """The same in seconds, for each run of the fast tests."""
    table = store.create_table("shop.orders", SCHEMA, primary_key=["id"], options={"bucket": "2"})
    crash(store, table, seed, 6, folder / "acks")
