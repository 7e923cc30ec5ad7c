"""The plan of a follower: the steps through given snapshots."""

from __future__ import annotations

from datetime import UTC, datetime

from filestore.model.log_range import LogRange, LogTransaction
from filestore.model.snapshot import Operation, Snapshot
from tablestore.following.hybrid import FromLog, Replaced, steps

A = LogTransaction("t/a/0.0", (LogRange(0, 0, 3, 3), LogRange(1, 5, 9, 2)))
B = LogTransaction("t/b/0.0", (LogRange(0, 3, 4, 1),))


def snapshot(version: int, operation: Operation, *transactions: LogTransaction) -> Snapshot:
    return Snapshot(version, datetime(2026, 1, 1, tzinfo=UTC), operation, "c", {}, transactions)


def test_a_write_is_read_from_its_transactions_in_the_commits_order() -> None:
    [step] = steps([snapshot(1, Operation.WRITE, B, A)], keyed=True)
    assert step == FromLog(1, (B, A))
    assert step.rows == 6  # records, not offsets: others' records and markers are in between


def test_an_overwrite_replaces_whatever_its_transactions_hold() -> None:
    assert list(steps([snapshot(4, Operation.OVERWRITE, A)], keyed=True)) == [Replaced(4)]


def test_a_drop_of_partitions_replaces_too() -> None:
    assert list(
        steps([snapshot(4, Operation.DROP_PARTITION, A), snapshot(5, Operation.DROP_PARTITION)], keyed=True)
    ) == [
        Replaced(4),
        Replaced(5),
    ]


def test_commits_that_move_no_rows_give_no_step() -> None:
    quiet = [snapshot(0, Operation.CREATE), snapshot(1, Operation.WRITE), snapshot(2, Operation.COMPACT)]
    assert list(steps(quiet, keyed=True)) == []


def test_steps_keep_the_order_of_versions() -> None:
    history = [
        snapshot(1, Operation.WRITE, A),
        snapshot(2, Operation.COMPACT),
        snapshot(3, Operation.OVERWRITE, A),
        snapshot(4, Operation.WRITE, B),
    ]
    assert list(steps(history, keyed=True)) == [FromLog(1, (A,)), Replaced(3), FromLog(4, (B,))]


def test_a_rollback_is_in_the_log_only_of_a_table_with_a_key() -> None:
    back = [snapshot(5, Operation.ROLLBACK, A)]
    assert list(steps(back, keyed=True)) == [FromLog(5, (A,))]
    assert list(steps(back, keyed=False)) == [Replaced(5)]
    assert list(steps([snapshot(5, Operation.ROLLBACK)], keyed=True)) == [], "only files changed"


def test_tags_and_expiries_give_no_step() -> None:
    assert list(steps([snapshot(5, Operation.TAG), snapshot(6, Operation.EXPIRE)], keyed=True)) == []
