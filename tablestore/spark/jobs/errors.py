"""Converts exceptions of Spark to our errors.

Spark passes exceptions between its processes as text. Our own jobs do not depend on that: their tasks return errors as
values (`tablestore.spark.jobs.runner`). There is only the text if Spark itself calls our code or the user's, or if a
process dies:

- a read of ``format("tablestore")`` fails in a task or while it is planned, or a streaming query stops. The user's own
  call of Spark raises that exception, and `error_of` finds our error in it, with its class, message and code;
- a value does not fit its column, which an expression of Spark notices;
- Spark lost an executor or a Python worker, ran out of memory, or the job was cancelled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

import filestore.errors
from filestore.errors import InvalidRequest, TableStoreError, Unavailable

__all__ = ["BAD_VALUE", "crash_in", "error_in", "error_of", "failure_of", "raised_by_python"]

BAD_VALUE = "tablestore: bad-value: "
"""The beginning of the message with which an expression of Spark fails for a value that does not fit."""

# as Python prints the errors of `filestore.errors`: the class, the message, and the code as a note below it
_PRINTED = re.compile(r"^filestore\.errors\.(\w+): ((?:(?!^filestore\.errors\.).)*?)\ncode: ([\w-]+)", re.M | re.S)
# as expressions in plans of SQL raise them, such as that of a changed key
_REFUSED = re.compile(r"\[tablestore: ([\w-]+)\] (.*)", re.S)
_NO_REASON = re.compile(r"An error occurred while calling|\s*at [\w.$]+\(")  # py4j's first line, and stacks
_LONGEST_REASON = 500
_MEMORY: Final = (
    "give Spark more memory (spark.executor.memory, spark.executor.memoryOverhead), or the table a smaller "
    "write-buffer-size, and try again"
)
_CRASHES: Final = tuple(
    (re.compile(pattern), code, sentence)
    for pattern, code, sentence in (
        (
            r"SparkContext was shut down|stopped SparkContext|SparkContext has been shutdown",
            "spark-stopped",
            "the Spark session was stopped while its job ran. Make a new session and try again",
        ),
        (
            r"\[SPARK_JOB_CANCELLED\]|\[OPERATION_CANCELED\]|Job \d+ cancelled",
            "spark-cancelled",
            "the Spark job was cancelled. Try again if that was not meant",
        ),
        (
            r"\bjava\.lang\.OutOfMemoryError|\bSparkOutOfMemoryError|\bUNABLE_TO_ACQUIRE_MEMORY"
            r"|exceeding (?:physical |virtual )?memory limits|\bOOMKilled|^(?:[\w.]+\.)?\w*MemoryError\b",
            "spark-memory",
            f"Spark ran out of memory in a task: {_MEMORY}",
        ),
        (
            r"Cannot run program \"[^\"]*python[^\"]*\"",
            "spark-no-python",
            "one of Spark's hosts has no Python of this name. Put it on the PATH there, or set PYSPARK_PYTHON to one "
            "that all hosts have, and try again",
        ),
        (
            r"No module named '(?:tablestore|filestore|managed_table|log|compaction|catalog_service|pyarrow|polars)\b",
            "spark-no-package",
            "Spark's hosts lack Tablestore, or a package that it needs. Install it there, or make an archive with "
            "`tablestore spark-archive` and give it to spark_session (docs/spark.md, Clusters), and try again",
        ),
        (
            r"Python worker exited unexpectedly|Python worker failed to connect back|Python worker process terminated",
            "spark-worker-died",
            f"a Python worker of Spark died, most often because its machine had no memory left: {_MEMORY}",
        ),
        (
            r"ExecutorLostFailure \(executor [^)]*\)|Remote RPC client disassociated",
            "spark-executor-lost",
            "Spark lost an executor that ran one of the tasks. Look into its log, and try again",
        ),
        (
            r"\b(?:Metadata)?FetchFailed(?:Exception)?\b",
            "spark-shuffle-lost",
            "Spark lost rows between two stages of the job, most often with the executor that held them. Try again",
        ),
        (
            r"No space left on device",
            "spark-disk-full",
            "a disk of Spark's executors is full (spark.local.dir). Make room, and try again",
        ),
    )
)


def error_of(exception: BaseException) -> TableStoreError | None:
    """The error of ours that an exception of Spark holds; None if it holds none.

    For reads and writes of ``format("tablestore")`` and for streaming queries, whose errors Spark hands on as text.

    Args:
        exception: Such as `pyspark.errors.PySparkException` or `pyspark.errors.StreamingQueryException`.
    """
    if isinstance(exception, TableStoreError):
        return exception
    condition, parameters, text = _described(exception)
    raised = parameters.get("errorMessage", "") if condition == "USER_RAISED_EXCEPTION" else ""
    if raised.startswith(BAD_VALUE):
        return InvalidRequest(raised.removeprefix(BAD_VALUE), code="bad-value")
    if (refused := _REFUSED.fullmatch(raised)) is not None:
        return InvalidRequest(refused[2], code=refused[1])
    return error_in(text)


def failure_of(exception: BaseException) -> TableStoreError | None:
    """Converts the failure of one of our jobs to our error; None for an error of the user's own expressions.

    Args:
        exception: The exception that Spark raised.
    """
    if (ours := error_of(exception)) is not None:
        return ours
    if isinstance(exception, Py4JError) and not isinstance(exception, Py4JJavaError):
        return Unavailable(
            "Spark's Java process does not answer: it ended, or was killed. Start a new session in a new process",
            code="spark-stopped",
        )
    if (raised := raised_by_python(exception)) is not None:
        return crash_in(raised)
    condition, _, text = _described(exception)
    return None if condition == "USER_RAISED_EXCEPTION" else crash_in(text)


def raised_by_python(exception: BaseException) -> str | None:
    """Returns what was raised in a Python worker, the last line of its traceback; None if Spark says something else."""
    condition, parameters, text = _described(exception)
    if condition != "PYTHON_EXCEPTION":
        return None
    return parameters.get("traceback", text).strip().rpartition("\n")[2]


def error_in(text: str) -> TableStoreError | None:
    """The error of ours in a printed traceback; of several the last, which is the one that was raised."""
    printed = _PRINTED.findall(text)
    if not printed:
        return None
    name, message, code = printed[-1]
    kind = getattr(filestore.errors, name, TableStoreError)
    return kind(message, code=code) if isinstance(kind, type) and issubclass(kind, TableStoreError) else None


def crash_in(text: str) -> Unavailable | None:
    """Converts Spark's text about a job whose processes died, or which was cancelled, to an error; else None."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _NO_REASON.match(line)]
    for pattern, code, sentence in _CRASHES:
        if any(pattern.search(line) for line in lines):
            reason = lines[0].removeprefix(": ").rpartition("most recent failure: ")[2]
            return Unavailable(f"{sentence}. Spark says: {reason[:_LONGEST_REASON]}", code=code)
    return None


def _described(exception: BaseException) -> tuple[str | None, Mapping[str, str], str]:
    if isinstance(exception, PySparkException):
        return exception.getCondition(), exception.getMessageParameters() or {}, str(exception)
    return None, {}, str(exception)
