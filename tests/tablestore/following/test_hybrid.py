"""The plan of a follower: the steps through given snapshots."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from filestore.delta.state import TableState
from filestore.errors import NotFound
from filestore.model.definition import TableDefinition
from filestore.model.log_range import LogRange, LogTransaction
from filestore.model.snapshot import Operation, Snapshot
from filestore.model.sql import parse_columns
from managed_table.own_log import OwnRecords
from tablestore.following.hybrid import FromLog, Replaced, steps

A = LogTransaction("t/a/0.0", (LogRange(0, 0, 3, 3), LogRange(1, 5, 9, 2)))
B = LogTransaction("t/b/0.0", (LogRange(0, 3, 4, 1),))
DEFINITION = TableDefinition.of(parse_columns("id BIGINT", ["id"]), ["id"], (), {})
OWN = OwnRecords(TableState(9, 0, "t", DEFINITION), "/t")


def snapshot(version: int, operation: Operation, *transactions: LogTransaction) -> Snapshot:
    return Snapshot(version, datetime(2026, 1, 1, tzinfo=UTC), operation, "c", {}, transactions)


def test_a_write_is_read_from_its_transactions_in_the_commits_order() -> None:
    [step] = steps([snapshot(1, Operation.WRITE, B, A)], OWN, keyed=True)
    assert step == FromLog(1, (B, A))
    assert step.rows == 6  # records, not offsets: others' records and markers are in between


def test_an_overwrite_replaces_whatever_its_transactions_hold() -> None:
    assert list(steps([snapshot(4, Operation.OVERWRITE, A)], OWN, keyed=True)) == [Replaced(4)]


def test_a_drop_of_partitions_replaces_too() -> None:
    assert list(
        steps([snapshot(4, Operation.DROP_PARTITION, A), snapshot(5, Operation.DROP_PARTITION)], OWN, keyed=True)
    ) == [
        Replaced(4),
        Replaced(5),
    ]


def test_commits_that_move_no_rows_give_no_step() -> None:
    quiet = [snapshot(0, Operation.CREATE), snapshot(1, Operation.WRITE), snapshot(2, Operation.COMPACT)]
    assert list(steps(quiet, OWN, keyed=True)) == []


def test_steps_keep_the_order_of_versions() -> None:
    history = [
        snapshot(1, Operation.WRITE, A),
        snapshot(2, Operation.COMPACT),
        snapshot(3, Operation.OVERWRITE, A),
        snapshot(4, Operation.WRITE, B),
    ]
    assert list(steps(history, OWN, keyed=True)) == [FromLog(1, (A,)), Replaced(3), FromLog(4, (B,))]


def test_a_rollback_is_in_the_log_only_of_a_table_with_a_key() -> None:
    back = [snapshot(5, Operation.ROLLBACK, A)]
    assert list(steps(back, OWN, keyed=True)) == [FromLog(5, (A,))]
    assert list(steps(back, OWN, keyed=False)) == [Replaced(5)]
    assert list(steps([snapshot(5, Operation.ROLLBACK)], OWN, keyed=True)) == [], "only files changed"


def test_tags_and_expiries_give_no_step() -> None:
    assert list(steps([snapshot(5, Operation.TAG), snapshot(6, Operation.EXPIRE)], OWN, keyed=True)) == []


def test_records_of_a_log_that_was_lost_are_a_gap() -> None:
    domains = {"tablestore.log.begins": '{"version": 5}'}
    begun = OwnRecords(TableState(9, 0, "t", DEFINITION, domains=domains), "/t")
    overwrite, write = snapshot(4, Operation.OVERWRITE, A), snapshot(6, Operation.WRITE, B)
    assert list(steps([overwrite, write], begun, keyed=True)) == [Replaced(4), FromLog(6, (B,))]
    for lost in (4, 5):
        with pytest.raises(NotFound, match="begins with version 5") as caught:
            list(steps([snapshot(lost, Operation.WRITE, A)], begun, keyed=True))
        assert caught.value.code == "log-gap"
