"""Runs the queries of maintained views in Spark (`tablestore.views.engines.either.Engine`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark program gives it
from pyspark.sql.types import DoubleType, FloatType, StringType

from filestore.errors import InvalidRequest, TableStoreError
from filestore.model.definition import TableDefinition
from filestore.model.names import quoted
from filestore.model.schema import Schema
from filestore.rows.casting import cast_rows
from tablestore.local_sql.refusal import NotLocalError
from tablestore.spark.batch.columns import spark_type
from tablestore.spark.batch.comparing import comparable, nearly_same, same
from tablestore.spark.batch.view_rows import ALIKE, NEW, STORED, TableReader, ViewRows, counted_alike, paired
from tablestore.spark.batch.view_session import in_view_session
from tablestore.spark.batch.views import spark_tasks
from tablestore.spark.batch.writing import spark_runner
from tablestore.spark.jobs.errors import failure_of, raised_by_python
from tablestore.table import Table
from tablestore.views.engines.query_work import QueryWork, RowCounts
from tablestore.views.tasks import Tasks
from tablestore.writing.write_job import TaskOutcome, WriteJob, WriteRunner

__all__ = ["SparkViews"]

T = TypeVar("T")

_COUNT = "_tablestore_count"
_TOO_LARGE = "spark.driver.maxResultSize"


@dataclass(frozen=True)
class SparkViews:
    """Computes the rows of views in Spark.

    Attributes:
        spark: The session.
        reader: Returns what reads tables in another session.
    """

    spark: SparkSession
    reader: Callable[[SparkSession, Callable[[str], Table]], TableReader]

    @property
    def tasks(self) -> Tasks:
        """Runs tasks in the session's workers."""
        return spark_tasks(self.spark)

    def schema(self, work: QueryWork) -> Schema:
        """Returns the columns of a query's result, without reading rows.

        Raises:
            InvalidRequest: ``view-query``: Spark refuses the query.
            Unsupported: ``view-query``: Spark says that the query has other rows each time, or reads what it does
                not name.
        """

        def analyzed(session: SparkSession) -> Schema:
            def empty(table: str, version: int) -> DataFrame:
                return session.createDataFrame([], spark_type(self._definition(work, table, version).schema))

            reader = TableReader(empty, _no_changes)
            with _sparks_words("Spark refuses the query"), ViewRows(session, reader, work) as rows:
                result = rows.result()
                return Schema.from_delta(json.loads(result.schema.json()))

        return in_view_session(self.spark, work.settings, analyzed)

    def rows(self, work: QueryWork, definition: TableDefinition) -> pa.Table:
        """Computes all rows of the result, with the columns of a table.

        Raises:
            NotLocalError: they are more than Spark gives a driver (``spark.driver.maxResultSize``).
            InvalidRequest: ``view-query``: Spark cannot compute them.
        """
        wanted = definition.schema.to_arrow()

        def computed(rows: ViewRows) -> pa.Table:
            try:
                found = rows.result().select(*map(quoted, wanted.names)).toArrow()
            except PySparkException as error:
                if _TOO_LARGE not in str(error):
                    raise
                raise NotLocalError(f"its rows are more than {_TOO_LARGE}") from error
            return cast_rows(found, pa.schema([field.with_nullable(True) for field in wanted]))

        return self._with_rows(work, computed)

    def runner(self, work: QueryWork, definition: TableDefinition) -> WriteRunner:
        """Returns what writes the rows of a refresh: all of them, or those that differ from the stored ones.

        It raises `InvalidRequest` (``view-query``) if Spark cannot compute them, as where a row divides by zero.
        """

        def run(job: WriteJob) -> Sequence[TaskOutcome]:
            def write(rows: ViewRows) -> Sequence[TaskOutcome]:
                found = rows.result() if work.replaces else rows.differing()
                work.require_tables()  # Spark has found the files by the tables' folders
                return spark_runner(found, definition, each_key_once=bool(definition.primary_key))(job)

            return self._with_rows(work, write)

        return run

    def compare(self, work: QueryWork) -> RowCounts:
        """Compares stored rows with the result. Sums of floating-point numbers may differ in their last digits."""

        def compared(rows: ViewRows) -> RowCounts:
            result, stored = rows.drawn() if work.samples else (rows.result(), rows.stored())
            key = self._definition(work, work.output, work.version).primary_key
            work.require_tables()
            if not key:
                return _as_bags(result, stored)
            return _by_key(result, stored, key, work.compared().names, exact=work.exact)

        return self._with_rows(work, compared)

    def _with_rows(self, work: QueryWork, do: Callable[[ViewRows], T]) -> T:
        def in_session(session: SparkSession) -> T:
            reader = self.reader(session, work.tables.__getitem__)
            with _sparks_words("Spark cannot compute the rows"), ViewRows(session, reader, work) as rows:
                return do(rows)

        return in_view_session(self.spark, work.settings, in_session)

    def _definition(self, work: QueryWork, name: str, version: int) -> TableDefinition:
        return work.state(name, version).definition


@contextmanager
def _sparks_words(what: str) -> Iterator[None]:
    """Converts what Spark raises about a query and its rows to an error that begins with `what`."""
    try:
        yield
    except PySparkException as error:
        if (failure := failure_of(error)) is not None:
            raise failure from error
        if (raised := raised_by_python(error)) is not None:
            message = f"Python failed in a task of Spark: {raised}. Report this"
            raise TableStoreError(message, code="internal") from error
        if isinstance(error, CapturedException):
            raise InvalidRequest(f"{what}: {_first_line(error)}", code="view-query") from error
        raise


def _no_changes(table: str, since: int, until: int) -> DataFrame:
    raise AssertionError("the columns of a result do not depend on changes")


def _by_key(
    result: DataFrame, stored: DataFrame, key: Sequence[str], names: Sequence[str], *, exact: bool
) -> RowCounts:
    """Compares rows by key, in the columns of some names."""
    types = {column.name: column.dataType for column in result.schema}
    equals = same if exact else nearly_same
    now, before = F.col(NEW), F.col(STORED)
    equal = reduce(and_, [equals(now.getField(n), before.getField(n), types[n]) for n in names])
    differs = now.isNull() | before.isNull() | (F.col(ALIKE) > 1) | ~equal
    found = paired(counted_alike(result, key), stored, key).agg(F.count_if(differs), F.count_if(now.isNotNull()))
    different, results = found.collect()[0]
    return RowCounts(different, results, stored.count())


def _as_bags(result: DataFrame, stored: DataFrame) -> RowCounts:
    """Compares rows of which each may be there several times. Floating-point numbers count with nine digits."""
    types = {column.name: column.dataType for column in result.schema}
    values = [
        F.format_string("%.8e", F.col(quoted(name)).cast(DoubleType())).cast(StringType()).alias(name)
        if isinstance(types[name], FloatType | DoubleType)
        else comparable(F.col(quoted(name)), types[name]).alias(name)
        for name in stored.columns
    ]
    sides = [rows.select(*values, F.lit(sign).alias(_COUNT)) for rows, sign in ((result, 1), (stored, -1))]
    groups = sides[0].unionAll(sides[1]).groupBy(*(F.col(quoted(name)) for name in stored.columns))
    more, new, old = F.sum(_COUNT), F.count_if(F.col(_COUNT) > 0), F.count_if(F.col(_COUNT) < 0)
    counted = groups.agg(F.struct(more.alias("more"), new.alias("new"), old.alias("old")).alias(_COUNT))
    found = counted.select(f"{_COUNT}.*").agg(
        *(F.coalesce(F.sum(c), F.lit(0)) for c in (F.abs("more"), F.col("new"), F.col("old")))
    )
    return RowCounts(*found.collect()[0])


def _first_line(error: Exception) -> str:
    """Returns what an error of Spark says about a query, without the state and the place in a text that it has not."""
    [first, *_] = str(error).strip().splitlines() or [type(error).__name__]
    return first.partition(" SQLSTATE: ")[0]
