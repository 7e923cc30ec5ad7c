"""Runs all Spark jobs of ours: tasks go to Python workers, results and errors come back as values.

Every job follows the same rules:

- A task's result comes back pickled. An error of ours comes back in its place, with its class, message and code.
- `Unavailable` may pass, so Spark tries the task again; the last attempt returns the error.
- When a task has failed, the others have `GRACE_S` seconds to end; then they are stopped. Ctrl-C stops them at once.
  What finished tasks wrote is then removed. Spark kills a task that is still at work, so its files may stay behind, as
  after any crash: `orphans` lists them.
- A failure of Spark's own is `Unavailable` with a sentence that says which (`tablestore.spark.jobs.errors`). An error
  of the user's frame is raised as Spark raised it.
- A job has a description, unless the user has set one, and keeps the user's group and tags.
"""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import compress
from queue import SimpleQueue
from typing import Any, Generic, Never, TypeAlias, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark program gives it

from filestore.errors import TableStoreError, Unavailable
from filestore.files.writer import TableFiles
from tablestore.spark.jobs.errors import failure_of
from tablestore.spark.jobs.local_disk import at_home
from tablestore.spark.jobs.python_processes import in_shared_processes
from tablestore.spark.jobs.reports import Report, Reporter, Reports
from tablestore.spark.jobs.worker import collect_only_new_objects

__all__ = ["Attempt", "Failed", "Job", "attempted", "attempts_of", "max_attempts", "run_partitions", "run_tasks"]

Task = TypeVar("Task")
Result = TypeVar("Result")
Batches: TypeAlias = Iterable[pa.RecordBatch]

GRACE_S = 20.0  # tasks that end remove their files, those that are killed cannot

_OUTCOME = "outcome binary"
_DESCRIPTION = "spark.job.description"
_LOCAL_MASTER = re.compile(r"local(?:\[[\d*]+(?:, *(\d+))?\])?")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of one task.

    Attributes:
        task: The task's number, which is that of its partition.
        number: How often Spark has begun the task before.
        attempt_id: No other attempt of the session has it.
    """

    task: int
    number: int
    attempt_id: int

    @classmethod
    def current(cls) -> Attempt:
        """Returns the attempt that is running in this worker."""
        context = TaskContext.get()
        assert context is not None, "only in a task of Spark's"
        return cls(context.partitionId(), context.attemptNumber(), context.taskAttemptId())


@dataclass(frozen=True, slots=True)
class Failed:
    """The error that a task has in place of a result; another try would fail, too."""

    error: TableStoreError


@dataclass(frozen=True, slots=True)
class Job(Generic[Result]):
    """A job: what its tasks do, and how that is undone.

    Attributes:
        description: What Spark's pages call it.
        work: What a task does with the rows of its partition, in a worker.
        discard: Removes what finished tasks wrote, in the driver, after a failure. It raises nothing of ours.
    """

    description: str
    work: Callable[[Attempt, Batches], Result]
    discard: Callable[[Sequence[Result]], None]


def run_tasks(
    spark: SparkSession,
    table: TableFiles,
    tasks: Sequence[Task],
    work: Callable[[TableFiles, Task], Result],
    description: str,
    discard: Callable[[TableFiles, Sequence[Result]], None],
) -> list[Result]:
    """Does a list of tasks as one job; returns their results in the order of the tasks.

    Args:
        spark: The session.
        table: What each task works on.
        tasks: One for each of Spark's; picklable.
        work: Does one.
        description: What the job does to the table.
        discard: Removes what tasks wrote.

    Raises:
        TableStoreError: what a task raised, or `Unavailable` for a failure of Spark's own.
    """
    if not tasks:
        return []
    rows = [(number, bytearray(pickle.dumps(task))) for number, task in enumerate(tasks)]
    frame = spark.createDataFrame(rows, "task int, work binary").repartitionById(len(tasks), F.col("task"))

    def one(attempt: Attempt, batches: Batches) -> Result:
        [task] = [_loaded(pickled) for batch in batches for pickled in batch.column("work").to_pylist()]
        return work(at_home(table, attempt.task), task)

    return run_partitions(frame, Job(f"{description} {table.location}", one, lambda done: discard(table, done)))


def run_partitions(frame: DataFrame, job: Job[Result]) -> list[Result]:
    """Does a job over the rows of a frame, a task for each partition; returns results in the order of the partitions.

    Raises:
        TableStoreError: what a task raised, or `Unavailable` for a failure of Spark's own.
        PySparkException: the frame's own expressions failed.
    """
    run = _Run(frame, job)
    with run.reports:
        run.start()
        try:
            return run.results()
        except BaseException:
            run.discard()
            raise


@dataclass(frozen=True, slots=True)
class _Ended:
    """The end of a job, as Spark returned it: pickled outcomes in the order of the tasks, or an exception."""

    outcomes: Sequence[bytes] = ()
    error: BaseException | None = None


class _Run(Generic[Result]):
    """A job while it runs, seen from the thread that waits for it.

    NOTE: Spark is called in a thread of its own. Ctrl-C in the middle of a call breaks the caller's connection to
    Spark, over which PySpark then cannot cancel the job (py4j: "reentrant call"). This thread's connection stays free.
    """

    def __init__(self, frame: DataFrame, job: Job[Result]) -> None:
        self._frame = frame
        self._job = job
        self._context = SparkContext._active_spark_context  # None with Spark Connect, which reports no single task
        self._events: SimpleQueue[Report | _Ended] = SimpleQueue()
        self._ended = False
        self._done: list[bytes] = []
        self.reports = Reports(self._context, self._events.put)

    def start(self) -> None:
        """Begins the job, with this thread's group, tags and other properties."""
        InheritableThread(self._collect, session=self._frame.sparkSession, daemon=True).start()

    def _collect(self) -> None:
        try:
            self._describe()
            task = _task(self._job.work, max_attempts(self._frame.sparkSession), self.reports.reporter)
            rows = in_shared_processes(self._frame.mapInArrow(task, _OUTCOME)).collect()
            self._events.put(_Ended([row.outcome for row in rows]))
        except BaseException as error:  # noqa: BLE001  # raised where the job is waited for
            self._events.put(_Ended(error=error))

    def _describe(self) -> None:
        if (context := self._context) is not None:
            context.addJobTag(self.reports.tag)
            if context.getLocalProperty(_DESCRIPTION) is None:
                context.setJobDescription(f"tablestore: {self._job.description}")

    def results(self) -> list[Result]:
        """Waits for the job. After a failure the other tasks have `GRACE_S` seconds to end by themselves."""
        failure: TableStoreError | None = None
        grace = threading.Timer(GRACE_S, self._cancel)
        grace.daemon = True
        try:
            while not isinstance(event := self._next(), _Ended):
                if failure is None and event.failed:
                    failure = _loaded(event.outcome).error
                    grace.start()
        finally:
            grace.cancel()
        if failure is not None:
            raise failure
        if event.error is not None:
            _raise(event.error)
        outcomes = [_loaded(outcome) for outcome in event.outcomes]
        if failed := [outcome for outcome in outcomes if isinstance(outcome, Failed)]:
            done = (not isinstance(outcome, Failed) for outcome in outcomes)
            self._done = list(compress(event.outcomes, done))
            raise failed[0].error
        return outcomes

    def discard(self) -> None:
        """Stops the job if it has not ended, and removes what its tasks have finished until then."""
        if self._context is not None and not self._ended:
            self._cancel()
            while not self._ended:
                self._next()
        self._job.discard([_loaded(outcome) for outcome in self._done])

    def _next(self) -> Report | _Ended:
        event = self._events.get()
        if isinstance(event, _Ended):
            self._ended = True
        elif not event.failed:
            self._done.append(event.outcome)
        return event

    def _cancel(self) -> None:
        if self._context is not None:
            with suppress(Py4JError, OSError):  # the session is gone, and its jobs with it
                self._context.cancelJobsWithTag(self.reports.tag)


def _raise(error: BaseException) -> Never:
    """Raises what Spark raised, or the error of ours that it stands for."""
    if isinstance(error, PySparkException | Py4JError) and (ours := failure_of(error)) is not None:
        raise ours from error
    raise error


def _task(
    work: Callable[[Attempt, Batches], Result], attempts: int, report: Reporter | None
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        attempt = Attempt.current()
        outcome = attempted(lambda: work(attempt, batches), last=attempt.number + 1 >= attempts)
        pickled = pickle.dumps(outcome)
        collect_only_new_objects()
        if report is not None:
            report(pickled, failed=isinstance(outcome, Failed))
        yield pa.record_batch([pa.array([pickled], pa.binary())], names=["outcome"])

    return run


def attempted(work: Callable[[], Result], *, last: bool) -> Result | Failed:
    """A task's result, or the error that another try would raise, too.

    Args:
        work: The task.
        last: Whether Spark will not try it again.

    Raises:
        Unavailable: it is not the last attempt, so Spark tries the task again.
    """
    try:
        return work()
    except Unavailable as error:
        if last:
            return Failed(error)
        raise
    except TableStoreError as error:
        return Failed(error)


def max_attempts(spark: SparkSession) -> int:
    """Returns how often Spark tries a task.

    NOTE: The context's settings count. A program that asks for a session with another master gets the one that is
    there, whose own settings then name that master.
    """
    context = SparkContext._active_spark_context  # None with Spark Connect
    settings = spark.conf if context is None else context.getConf()
    return attempts_of(settings.get("spark.master", "") or "", settings.get("spark.task.maxFailures", "4") or "4")


def attempts_of(master: str, max_failures: str) -> int:
    """Returns how often Spark tries a task: locally by ``local[cores, attempts]``, else ``maxFailures`` times."""
    local = _LOCAL_MASTER.fullmatch(master)
    return int(max_failures) if local is None else int(local[1] or 1)


def _loaded(pickled: bytes) -> Any:
    return pickle.loads(bytes(pickled))  # bytes of our own
