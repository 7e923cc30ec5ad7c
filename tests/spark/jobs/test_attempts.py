"""The outcome of one attempt of a task, without Spark."""

from __future__ import annotations

import pickle
from typing import NoReturn

import pytest
from pyspark.accumulators import Accumulator

from filestore.errors import CommitUnknown, Conflict, TableStoreError, Unavailable
from tablestore.spark.jobs.reports import Report, Reporter, Reports, _Inbox
from tablestore.spark.jobs.runner import Failed, attempted, attempts_of


def raising(error: Exception) -> NoReturn:
    raise error


def test_results_and_errors_that_no_other_try_cures_are_values() -> None:
    assert attempted(lambda: 7, last=False) == 7
    outcome = attempted(lambda: raising(Conflict("lost", code="races")), last=False)
    assert isinstance(outcome, Failed)
    found = pickle.loads(pickle.dumps(outcome)).error
    assert (type(found), str(found), found.code) == (Conflict, "lost", "races")
    with pytest.raises(ValueError, match="a bug"):
        attempted(lambda: raising(ValueError("a bug")), last=True)


@pytest.mark.parametrize("error", [Unavailable("away", code="gone"), CommitUnknown("who knows")], ids=repr)
def test_what_may_pass_is_tried_again_until_the_last_attempt(error: TableStoreError) -> None:
    with pytest.raises(type(error)):
        attempted(lambda: raising(error), last=False)
    assert attempted(lambda: raising(error), last=True) == Failed(error)


@pytest.mark.parametrize(
    ("master", "failures", "wanted"),
    [
        ("local", "4", 1),
        ("local[*]", "9", 1),
        ("local[2,3]", "4", 3),
        ("local[*, 5]", "4", 5),
        ("local-cluster[2,1,1024]", "4", 4),
        ("yarn", "9", 9),
        ("", "4", 4),
    ],
)
def test_how_often_spark_tries_a_task(master: str, failures: str, wanted: int) -> None:
    assert attempts_of(master, failures) == wanted


def test_reports_reach_the_job_that_waits_and_no_other() -> None:
    driver: Accumulator[list[Report]] = Accumulator(-77, [], _Inbox())
    received: list[Report] = []
    first, second = Reports(None, received.append), Reports(None, received.append)
    with first:
        travelled = pickle.loads(pickle.dumps(driver.accum_param))  # as in a task, which keeps what it has to say
        worker: Accumulator[list[Report]] = Accumulator(-78, travelled.zero([]), travelled)
        Reporter(first.tag, worker)(b"1", failed=False)
        Reporter(second.tag, worker)(b"2", failed=False)
        Reporter(first.tag, worker)(b"3", failed=True)
        assert len(worker._value) == 3
        assert received == []
        driver += worker._value
        assert [report.outcome for report in received] == [b"1", b"3"]
        assert driver.value == []
    driver += [Report(first.tag, b"late", failed=False)]
    assert len(received) == 2
