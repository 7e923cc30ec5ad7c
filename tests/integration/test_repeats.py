"""Tasks that are tried again: `Table.follow` emits once what they write twice into an eventual log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from log.table.store import LogBatch
from tablestore import Store, Table
from tablestore.writing.write_job import TaskOutcome, WriteJob
from tests.bothlogs import both_logs
from tests.integration.test_eventual_log import assert_right, on, put
from tests.logorder import events
from tests.warehouses import replay, rows
from tests.writers import sorted_batches

Row = dict[str, Any]

pytestmark = both_logs


@pytest.fixture
def table(store: Store, log_options: dict[str, str]) -> Table:
    options = {"bucket": "2", "log.consistency": "eventual", **log_options}
    made = store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=["id"], options=options)
    put(made, 1, 2, 3)
    return made


def changed(*ids: int) -> pa.Table:
    """Returns an update of each id, but a delete of 3."""
    kinds = ["-D" if key == 3 else "+U" for key in ids]
    return pa.table({"id": ids, "name": ["b"] * len(ids), "_kind": kinds})


def write_retried(table: Table, first: Sequence[int], ids: Sequence[int], meanwhile: Callable[[], object]) -> None:
    """Commits once: an attempt logs the first keys and is lost; `meanwhile` runs; another attempt logs all keys."""

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        job.run(sorted_batches(table, changed(*first)), "0.0")
        meanwhile()
        return [job.run(sorted_batches(table, changed(*ids)), "0.1")]

    table.writer().write(run, retries=True)


def in_log(table: Table) -> list[int]:
    return [row["id"] for e in events(table) if isinstance(e, LogBatch) for row in e.rows.to_pylist()]


def followed(table: Table, **how: Any) -> list[Row]:
    newest = table.filestore.state().version
    with table.follow(stop=newest, **how) as following:
        found = [row for batch in following for row in batch.to_pylist()]
        assert following.progress.version == newest, "what is left out is read all the same"
        assert following.progress.records == len(found)
    return found


def test_a_retried_task_is_given_once(table: Table) -> None:
    write_retried(table, [1, 3, 4], range(1, 7), lambda: None)
    reported = in_log(table)
    assert [reported.count(key) for key in (1, 3, 4)] == [3, 3, 2], "first, and by both attempts; no repair is needed"
    found = followed(table, version=1)
    assert sorted(row["id"] for row in found) == [1, 2, 3, 4, 5, 6]
    assert replay([*({**row, "_kind": "+I"} for row in rows(table, 1)), *found], ["id"]) == rows(table)
    assert_right(table)


def test_one_that_begins_again_gets_what_it_needs(table: Table) -> None:
    """A consumer is resumed between the attempts: it no longer knows which records it has read."""
    found: list[Row] = followed(table, consumer="job")

    def read() -> None:
        for _ in range(2):
            put(on(table), 9)
            found.extend(followed(table, consumer="job"))

    write_retried(table, [1, 3, 4], range(1, 7), read)
    found += followed(table, consumer="job")
    assert replay(found, ["id"]) == rows(table)


@pytest.mark.few(1)
def test_what_another_writer_logged_in_between_is_corrected(table: Table) -> None:
    write_retried(table, [1, 3, 4], range(1, 7), lambda: put(on(table), 1, 3, name="other"))
    found = followed(table, version=1)
    assert replay([*({**row, "_kind": "+I"} for row in rows(table, 1)), *found], ["id"]) == rows(table)
    names = [row["name"] for row in found if row["id"] == 1]
    assert names[0] == "b"
    assert "other" in names
    assert names[-1] == "b"
    assert [row["id"] for row in found].count(4) == 1
    assert_right(table)


def test_a_reader_that_knows_a_column_by_another_name(table: Table) -> None:
    stop = threading.Event()
    following = table.follow(version=1, stop=stop)
    put(table, 7)
    found = next(following).to_pylist()
    table.alter("RENAME COLUMN name TO title")

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        batches = sorted_batches(table, pa.table({"id": [1, 4], "title": ["b", "b"]}))
        job.run(batches, "0.0")
        return [job.run(batches, "0.1")]

    table.writer().write(run, retries=True)
    stop.set()
    found += [row for batch in following for row in batch.to_pylist()]
    assert sorted((row["id"], row["name"]) for row in found) == [(1, "b"), (4, "b"), (7, "a")]
