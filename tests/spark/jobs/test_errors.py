"""Maps exceptions of Spark to our errors, tested with real messages of Spark 4.2."""

from __future__ import annotations

import traceback

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from filestore.errors import CommitUnknown, InvalidRequest, NotFound, TableStoreError, Unavailable
from tablestore.spark import error_of
from tablestore.spark.jobs.errors import BAD_VALUE, crash_in, error_in, failure_of

STACK = """
	at org.apache.spark.scheduler.DAGScheduler.handleJobCancellation(DAGScheduler.scala:3233)
	at org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:12)"""
ABORTED = "An error occurred while calling o84.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to "
FAILED = ABORTED + "stage failure: Task 0 in stage 0.0 failed 3 times, most recent failure: "
LOST = "Lost task 0.2 in stage 0.0 (TID 7) (10.0.0.2 executor 3): "


def printed(*errors: BaseException) -> str:
    """Each raised while the one before it was handled."""
    try:
        for error in errors:
            try:
                raise error
            except TableStoreError as before:
                error = before
        raise error
    except TableStoreError:
        return traceback.format_exc()


def raised(condition: str, **parameters: str) -> PySparkException:
    text = "\n".join(parameters.values())
    return PySparkException(f"[{condition}] {text}", errorClass=condition, messageParameters=parameters)


@pytest.mark.parametrize(
    "error",
    [
        NotFound("version 7 is gone", code="log-gap"),
        CommitUnknown("look:\nfor the commit\n\nid"),
        Unavailable("code: none, and no more", code="log-unavailable"),
    ],
    ids=["one line", "many lines", "odd text"],
)
def test_an_error_is_found_in_its_traceback(error: TableStoreError) -> None:
    for text in (printed(error), f"An exception was thrown:\n{printed(error)}{STACK}", printed(error) * 2):
        found = error_in(text)
        assert found is not None
        assert (type(found), found.message, found.code) == (type(error), error.message, error.code)


def test_of_a_chain_the_error_that_was_raised_counts() -> None:
    text = printed(NotFound("first", code="a"))
    try:
        try:
            raise NotFound("first", code="a")
        except NotFound as first:
            raise InvalidRequest("second", code="b") from first
    except InvalidRequest:
        text = traceback.format_exc()
    found = error_in(text)
    assert isinstance(found, InvalidRequest)
    assert (found.message, found.code) == ("second", "b")
    assert error_in("Traceback (most recent call last):\nValueError: filestore.errors.NotFound: no\n") is None


def test_an_error_of_ours_is_found_in_any_exception_of_spark() -> None:
    text = printed(NotFound("gone", code="log-gap"))
    for exception in (
        raised("PYTHON_EXCEPTION", msg="An exception was thrown from the Python worker", traceback=text),
        raised("STREAM_FAILED", message=f"Query failed:\n{text} SQLSTATE: XXKST"),
        Py4JError(f"An error occurred while calling o1.start\n{text}"),
    ):
        found = error_of(exception)
        assert isinstance(found, NotFound)
        assert found.code == "log-gap"
    ours = NotFound("it")
    assert error_of(ours) is ours
    assert error_of(raised("DIVIDE_BY_ZERO", config="ansi")) is None
    assert error_of(ValueError("no")) is None


def test_a_value_that_does_not_fit_is_known_by_sparks_condition() -> None:
    found = error_of(raised("USER_RAISED_EXCEPTION", errorMessage=f"{BAD_VALUE}column 'n' holds 1.5\nand more"))
    assert isinstance(found, InvalidRequest)
    assert (found.message, found.code) == ("column 'n' holds 1.5\nand more", "bad-value")
    assert error_of(raised("USER_RAISED_EXCEPTION", errorMessage=f"a user's text with {BAD_VALUE}")) is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (
            f"{FAILED}{LOST}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider "
            f"setting 'spark.python.worker.faulthandler.enabled' configuration to 'true'{STACK}",
            "spark-worker-died",
        ),
        (
            f'{FAILED}{LOST}java.io.IOException: Cannot run program "python3.11": error=2, No such file or '
            f"directory{STACK}",
            "spark-no-python",
        ),
        (
            f"{FAILED}{LOST}org.apache.spark.SparkException: \nError from python worker:\n  python3.11: Error while "
            "finding module specification for 'tablestore.spark.daemon' (ModuleNotFoundError: No module named "
            f"'tablestore')\nPYTHONPATH was:\n  /opt/spark/python/lib/pyspark.zip{STACK}",
            "spark-no-package",
        ),
        (f"{FAILED}{LOST}ModuleNotFoundError: No module named 'filestore'{STACK}", "spark-no-package"),
        (
            f"{FAILED}{LOST}ExecutorLostFailure (executor 3 exited caused by one of the running tasks) Reason: Remote "
            f"RPC client disassociated. Likely due to containers exceeding thresholds, or network issues.{STACK}",
            "spark-executor-lost",
        ),
        (
            f"{FAILED}{LOST}ExecutorLostFailure (executor 3 exited caused by one of the running tasks) Reason: "
            "Container killed by YARN for exceeding physical memory limits. 5.5 GB of 5.5 GB physical memory used.",
            "spark-memory",
        ),
        (f"{FAILED}{LOST}java.lang.OutOfMemoryError: Java heap space{STACK}", "spark-memory"),
        (
            f"{FAILED}{LOST}org.apache.spark.memory.SparkOutOfMemoryError: [UNABLE_TO_ACQUIRE_MEMORY] Unable to "
            "acquire 65536 bytes of memory, got 0.",
            "spark-memory",
        ),
        (
            "An error occurred while calling o186.collectToPython.\n: org.apache.spark.SparkException: "
            f"[SPARK_JOB_CANCELLED] Job 3 cancelled part of cancelled job group mine SQLSTATE: XXKDA{STACK}",
            "spark-cancelled",
        ),
        (f"{ABORTED[:70]}Job 9 cancelled because SparkContext was shut down{STACK}", "spark-stopped"),
        (
            f"{ABORTED}stage failure: ResultStage 4 (collect) has failed the maximum allowable number of times: 4. "
            "Most recent failure reason: org.apache.spark.shuffle.MetadataFetchFailedException: Missing an output",
            "spark-shuffle-lost",
        ),
        (f"{FAILED}{LOST}java.io.IOException: No space left on device{STACK}", "spark-disk-full"),
    ],
    ids=lambda value: value if " " not in value else "",
)
def test_a_crash_of_sparks_own_is_unavailable_and_says_which(text: str, code: str) -> None:
    found = crash_in(text)
    assert found is not None
    assert found.code == code
    assert type(found) is Unavailable
    sentence, _, reason = found.message.partition(". Spark says: ")
    assert "ry again" in sentence
    assert reason
    assert "\tat " not in reason
    assert "calling o" not in reason


def test_what_is_neither_is_left_to_the_user() -> None:
    assert crash_in(f"{FAILED}{LOST}java.lang.ArithmeticException: / by zero{STACK}") is None
    for exception in (
        raised("USER_RAISED_EXCEPTION", errorMessage="No space left on device"),
        raised("PYTHON_EXCEPTION", msg="m", traceback="Traceback:\n  raise OSError('Job 3 cancelled')\nOSError: no\n"),
        raised("DIVIDE_BY_ZERO", config="ansi"),
    ):
        assert failure_of(exception) is None


def test_memory_that_python_lacks_and_a_java_process_that_is_gone() -> None:
    text = "Traceback (most recent call last):\nnumpy._core._exceptions._ArrayMemoryError: Unable to allocate 9 GiB\n"
    for exception, code in (
        (raised("PYTHON_EXCEPTION", msg="m", traceback=text), "spark-memory"),
        (raised("PYTHON_EXCEPTION", msg="m", traceback="Traceback:\nMemoryError\n"), "spark-memory"),
        (Py4JError("An error occurred while calling o52.sc"), "spark-stopped"),
    ):
        found = failure_of(exception)
        assert isinstance(found, Unavailable)
        assert found.code == code
