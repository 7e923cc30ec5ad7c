"""Runs statements in Spark, which starts with the first of them.

This module imports Spark, so `tablestore.shell.session` imports it when it is needed.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody writes it
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from filestore.errors import InvalidRequest, TableStoreError
from tablestore.jars import delta_jars, find_java
from tablestore.shell.interruptible import Interruptible
from tablestore.shell.results import Result
from tablestore.spark import spark_session
from tablestore.spark.jobs.errors import failure_of
from tablestore.spark.settings import catalog_settings

__all__ = ["SPARK", "SparkEngine", "SparkPlace", "error_of_statement"]

SPARK = "Spark"

_LOG_SHOWN = 10_000
_TASKS_POLL_S = 0.1

_SHOWN = (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    NullType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)
_OURS = re.compile(r"\[tablestore: (?P<code>[\w-]+)\]\s*(?P<message>.*)", re.S)
_CONDITION = re.compile(r"\[(?P<code>[A-Z][A-Z0-9_.]*)\]\s*(?P<message>.*)", re.S)
_BEHIND_MESSAGE = re.compile(r"\n\s*\n|\n(?=== SQL|['+!]|JVM stacktrace)|\s*SQLSTATE: \w+(?=;? *(?:line|$))")
_PLACE = re.compile(r"\s*[;.]?\s*(?:SQLSTATE: \w+)?\s*;?\s*line (?P<line>\d+),? pos(?:ition)? (?P<at>\d+)")


@dataclass(frozen=True, slots=True)
class SparkPlace:
    """The place of a catalog, as Spark needs it.

    Attributes:
        catalog: Its name in statements.
        uri: A warehouse, or the URL of a service.
        settings: What the catalog needs beside it, such as ``brokers``.
        secrets: Settings that are files with secrets: ``token-file`` and ``database-file``, and what is in them.
        storage_options: How to reach S3; None: no S3.
        conf: Settings of Spark.
    """

    catalog: str
    uri: str
    settings: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    storage_options: Mapping[str, str] | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


class SparkEngine:
    """A session of Spark whose current catalog is the store.

    Args:
        place: Where that is.
        database: The current database; None: what Spark takes.

    Raises:
        Unavailable: no Java, or the jars cannot be fetched.
    """

    def __init__(self, place: SparkPlace, database: str | None = None) -> None:
        self._catalog = place.catalog
        self._folder = tempfile.TemporaryDirectory(prefix="tablestore-sql-")
        self._owns = SparkContext._active_spark_context is None
        self._calls = Interruptible(_cancel_jobs)
        try:
            self._session = self._calls.call(lambda: self._start(place, database))
        except (PySparkException, Py4JError) as error:
            self.close()
            raise error_of_statement(error) from error
        except (TableStoreError, KeyboardInterrupt):
            self.close()
            raise

    def _start(self, place: SparkPlace, database: str | None) -> SparkSession:
        settings = catalog_settings({place.catalog: place.uri})
        prefix = f"spark.sql.catalog.{place.catalog}"
        settings |= {f"{prefix}.{name}": value for name, value in place.settings.items()}
        for name, secret in place.secrets.items():
            file = Path(self._folder.name, name)  # in a folder that only this user reads
            file.write_text(secret, encoding="utf-8")
            settings[f"{prefix}.{name}"] = str(file)
        conf = {"spark.sql.warehouse.dir": f"{self._folder.name}/warehouse", **place.conf}
        # PySpark logs each error as JSON with stacks of Java, beside raising it
        PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
        find_java()
        delta_jars()  # fetched while messages can still be seen
        with _unheard(Path(self._folder.name, "log")) if self._owns else nullcontext():
            running = spark_session(
                "tablestore sql",
                conf,
                storage_options=place.storage_options,
                catalogs={place.catalog: place.uri},
            )
        session = running.newSession()  # another one of this process keeps its current names
        # Spark looks catalogs up in the settings of the session that is active in the thread
        jvm = session._jvm
        assert jvm is not None
        jvm.SparkSession.setActiveSession(session._jsparkSession)
        for name, value in settings.items():
            session.conf.set(name, value)
        session.catalog.setCurrentCatalog(place.catalog)
        if database is not None:
            session.catalog.setCurrentDatabase(database)
        # the jobs of this thread, which runs all statements: a task that waits for something is interrupted, too
        session.sparkContext.setJobGroup("tablestore sql", "tablestore sql", interruptOnCancel=True)
        return session

    @property
    def current(self) -> tuple[str, str]:
        """The current catalog and database."""
        catalog = self._session.catalog
        return self._calls.call(lambda: (catalog.currentCatalog(), catalog.currentDatabase()))

    def run(self, statement: str, limit: int | None = None) -> Result:
        """Runs a statement.

        Args:
            statement: One statement, without a semicolon behind it.
            limit: How many rows are needed at most.

        Raises:
            TableStoreError: Spark's error, with our code or the name of its condition.
            KeyboardInterrupt: Ctrl-C, after the statement has ended.
        """
        try:
            return self._calls.call(lambda: self._run(statement, limit))
        except (PySparkException, Py4JError) as error:
            raise error_of_statement(error) from error

    def _run(self, statement: str, limit: int | None) -> Result:
        rows = self._session.sql(statement)
        if not rows.columns:
            return Result(SPARK)
        rows = _shown(rows)
        if limit is None:
            return Result(SPARK, _arrow_schema(rows), self._calls.each(lambda: _streamed(rows)))
        found = rows.limit(limit).toArrow()
        return Result(SPARK, found.schema, iter([found]))

    def tasks(self, seconds: float = 0) -> int:
        """Returns how many tasks of ended statements still run, after waiting for their end.

        A task ends soon after its statement if it waits, or asks whether it is cancelled. Spark's own code does not
        ask while it compares the rows of a join without keys, for minutes if there are many.
        """
        return self._calls.call(lambda: self._running(seconds))

    def _running(self, seconds: float) -> int:
        context = self._session.sparkContext
        jvm, scheduler = self._session._jvm, context._jsc.sc().taskScheduler()
        assert jvm is not None
        for wait in (*[_TASKS_POLL_S] * round(seconds / _TASKS_POLL_S), None):
            by_executor = jvm.scala.jdk.javaapi.CollectionConverters.asJava(scheduler.runningTasksByExecutors())
            running = sum(map(int, by_executor.values()))
            if not running or wait is None:
                break
            threading.Event().wait(wait)
        return running

    @property
    def owned(self) -> bool:
        """Returns whether this object started Spark, and may end it."""
        return self._owns

    def end(self) -> None:
        """Ends Spark's process with all tasks that run in it; the next engine starts another one."""
        gateway = SparkContext._gateway
        self.close()
        if self._owns and gateway is not None:
            process = gateway.proc
            gateway.shutdown()
            process.kill()
            process.wait()
            SparkContext._gateway = SparkContext._jvm = None

    def close(self) -> None:
        """Stops Spark, unless it ran before."""
        self._calls.close()
        if self._owns and (running := SparkContext._active_spark_context) is not None:
            SparkSession(running).stop()
        self._folder.cleanup()


def _cancel_jobs() -> None:
    """Ends the jobs that run. While Spark starts or ends there are none."""
    if (running := SparkContext._active_spark_context) is not None:
        running.cancelAllJobs()


@contextmanager
def _unheard(log: Path) -> Iterator[None]:
    """Makes Java write to a file what it writes to standard error, from its start on: errors reach Python anyway.

    What it wrote is printed after all if the block fails, since it may say why.
    """
    sys.stderr.flush()
    before = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    except BaseException:
        os.write(before, log.read_bytes()[-_LOG_SHOWN:])
        raise
    finally:
        os.dup2(before, 2)
        os.close(before)


def _shown(rows: DataFrame) -> DataFrame:
    """Casts what Arrow or JSON lacks to texts, such as intervals; two columns may have one name."""
    fields = rows.schema.fields
    if all(_is_shown(column.dataType) for column in fields):
        return rows
    numbered = rows.toDF(*(f"c{number}" for number in range(len(fields))))
    columns = [
        F.col(f"c{number}") if _is_shown(column.dataType) else F.col(f"c{number}").cast("string").alias(f"c{number}")
        for number, column in enumerate(fields)
    ]
    return numbered.select(*columns).toDF(*(column.name for column in fields))


def _is_shown(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _is_shown(kind.elementType)
    if isinstance(kind, MapType):
        return _is_shown(kind.keyType) and _is_shown(kind.valueType)
    if isinstance(kind, StructType):
        return all(_is_shown(inner.dataType) for inner in kind.fields)
    return isinstance(kind, _SHOWN)


def _arrow_schema(rows: DataFrame) -> pa.Schema:
    return rows.limit(0).toArrow().schema


def _packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Makes one value of each batch: the bytes of an Arrow stream. It runs in Spark's workers."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.record_batch({"batch": [sink.getvalue().to_pybytes()]})


def _streamed(rows: DataFrame) -> Iterator[pa.Table]:
    """Yields all rows, one of Spark's partitions at a time.

    `DataFrame.toArrow` would hold all of them, and `DataFrame.toLocalIterator` makes Python's values of each.
    """
    names = rows.columns
    numbered = rows.toDF(*(f"c{number}" for number in range(len(names))))
    one = StructType([StructField("batch", BinaryType())])
    try:
        for row in numbered.mapInArrow(_packed, one).toLocalIterator():
            yield pa.ipc.open_stream(row.batch).read_all().rename_columns(names)
    except (PySparkException, Py4JError) as error:
        raise error_of_statement(error) from error


def error_of_statement(error: Exception) -> TableStoreError:
    """Spark's error as one of ours: the sentence, without plans and stacks of Java.

    Its code is ours if we raised it, and else the name of Spark's condition, such as ``TABLE_OR_VIEW_NOT_FOUND``.
    """
    text = str(error)
    if found := _OURS.search(text):
        return InvalidRequest(_sentence(found["message"]), code=found["code"])
    if (ours := failure_of(error)) is not None:
        return ours
    messages = [text, *_thrown(error)]
    for message in messages:
        if found := _CONDITION.search(message):
            return InvalidRequest(_sentence(found["message"]), code=found["code"])
    # Py4J's own text is about its call, and Java's first message may be about a thread that waited
    return InvalidRequest(f"Spark refused the statement: {_sentence(messages[-1])}", code="spark-failed")


def _thrown(error: Exception) -> list[str]:
    """The messages of the exceptions of Java behind an error of Python, the innermost last."""
    java = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    if isinstance(java, Py4JJavaError):
        java = java.java_exception
    if not isinstance(java, JavaObject):
        return []
    return [str(cause.getMessage() or cause.toString()) for cause in itertools.islice(_causes(java), 20)]


def _causes(java: Any) -> Iterator[Any]:
    while java is not None:
        yield java
        java = java.getCause()


def _sentence(text: str) -> str:
    """Returns a message without what is for developers of Spark, and with the place in the statement."""
    message = _BEHIND_MESSAGE.split(text, maxsplit=1)[0]
    place = _PLACE.search(text) or re.search(r"\(line (?P<line>\d+), pos(?:ition)? (?P<at>\d+)\)", text)
    message = " ".join(_PLACE.sub("", message).split()).rstrip(";").rstrip()
    return f"{message} (line {place['line']}, position {place['at']})" if place else message
