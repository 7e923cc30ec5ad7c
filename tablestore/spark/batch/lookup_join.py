"""A look-up join of a DataFrame, batch or streaming: its rows are joined where they are, without a shuffle.

A batch DataFrame reads the version that is the newest one when it is made, and each micro-batch of a streaming one the
version that is the newest one when it runs (`pinned_version`); both are in a column that the tasks read. Spark's Python
processes keep what they read for their next tasks: all rows of a small table, which they move to newer versions by the
changes, and of a large one the columns that its cache keeps.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator
from threading import Lock

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkNotImplementedError, PySparkTypeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark program gives it
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from filestore.cache.lru import Lru
from filestore.errors import InvalidRequest
from filestore.files.writer import TableFiles
from filestore.lazily import pl
from filestore.sorting.runs import gathered
from managed_table.opened import OpenedTable
from tablestore.lookup.lookups import Lookups
from tablestore.lookup.request import LookupPlan, LookupRequest
from tablestore.lookup.rows import check_one_time
from tablestore.reading.fresh import standing_changes
from tablestore.reading.log_tail import TailPart
from tablestore.reading.version_changes import PIECE_BYTES, PIECE_ROWS
from tablestore.spark.batch.pinned_version import LOG, PIN, VERSION, pickled_log
from tablestore.spark.jobs.local_disk import at_home
from tablestore.spark.jobs.python_processes import in_shared_processes
from tablestore.spark.jobs.runner import Attempt
from tablestore.spark.jobs.worker import collect_only_new_objects
from tablestore.spark.opened import identity_options

__all__ = ["joined_by_lookup"]

_TABLES = 16
_FIRST_ROW = (1 << 33) - 1
"""The bits of Spark's ``monotonically_increasing_id`` that count the rows of a partition."""


def joined_by_lookup(
    spark: SparkSession,
    table: OpenedTable,
    df: DataFrame,
    request: LookupRequest,
    *,
    fresh: bool,
) -> DataFrame:
    """Joins a DataFrame with a table; arguments and errors are those of `SparkStore.lookup_join`."""
    check_one_time(request, fresh=fresh)
    state = table.filestore.state()
    plan = LookupPlan.of(request, state.definition)
    plan.check(_checked_columns(df.schema, plan))
    if df.isStreaming:
        source = spark.read.format("tablestore").options(**identity_options(table))
        pinned = df.crossJoin(F.broadcast(source.option(PIN, "fresh" if fresh else "version").load()))
        pinned = _observed(pinned, f"lookup {table.identity.identifier}")
    else:
        log = F.lit(pickled_log(table, state) if fresh else None).cast("binary")
        pinned = df.select("*", F.lit(state.version).cast("long").alias(VERSION), log.alias(LOG))
    first = F.monotonically_increasing_id().bitwiseAND(F.lit(_FIRST_ROW)) == 0
    pinned = pinned.withColumn(LOG, F.when(first, F.col(LOG))) if fresh else pinned
    task = _task(table, table.filestore.table_files(state), plan)
    try:
        return in_shared_processes(pinned.mapInArrow(task, StructType([*df.schema.fields, *_fields(plan)])))
    except PySparkNotImplementedError as error:
        kinds = [field.dataType for field in df.schema if _arrow_type(field.dataType) is None]
        raise _not_passed(kinds[0] if kinds else df.schema) from error


def _not_passed(kind: DataType) -> InvalidRequest:
    return InvalidRequest(
        f"the rows have a column of type {kind.simpleString().upper()}, which Spark does not pass to Python: leave "
        "it out, or cast it to STRING",
        code="bad-lookup",
    )


def _arrow_type(kind: DataType) -> pa.DataType | None:
    """Returns the type as Arrow has it; None for one that Spark does not pass to Python."""
    try:
        return to_arrow_type(kind, timezone="UTC")
    except PySparkTypeError:
        return None


def _checked_columns(rows: StructType, plan: LookupPlan) -> pa.Schema:
    """The columns as Arrow has them; those that are not compared may have types that Arrow has no type for."""
    compared, columns = {plan.at, *(name for name, _ in plan.on)}, []
    for field in rows:
        kind = _arrow_type(field.dataType) if field.name in compared else pa.null()
        if kind is None:
            raise _not_passed(field.dataType)
        columns.append((field.name, kind))
    return pa.schema(columns)


def _fields(plan: LookupPlan) -> list[StructField]:
    columns = plan.wanted.select(name for name, _ in plan.columns) if plan.columns else ()
    found = StructType.fromJson(columns.plain().to_delta()) if columns else StructType()
    return [StructField(shown, field.dataType) for (_, shown), field in zip(plan.columns, found, strict=True)]


def _observed(pinned: DataFrame, name: str) -> DataFrame:
    """Puts the version into the progress of the query, as a metric with a name that the query does not have yet.

    In a session with our rules ``LookupMetrics.java`` chooses the name, for the query as a whole.
    """
    for number in itertools.count(1):
        try:
            return pinned.observe(name if number == 1 else f"{name} {number}", F.max(VERSION).alias("version"))
        except AnalysisException as error:
            if error.getCondition() != "DUPLICATED_METRICS_NAME":
                raise
    raise AssertionError("the loop has no end")


Batches = Iterable[pa.RecordBatch]


def _task(table: OpenedTable, files: TableFiles, plan: LookupPlan) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        lookups = _lookups_of(table, at_home(files, Attempt.current().task))
        changes: pl.DataFrame | None = None
        parts = (pa.Table.from_batches([batch]) for batch in batches)
        for number, some in enumerate(gathered(parts, PIECE_BYTES, PIECE_ROWS)):
            rows = pa.concat_tables(some)
            *own, versions, log = rows.columns
            version = versions[0].as_py()
            if number == 0 and (pickled := log[0].as_py()) is not None:
                changes = _beyond(table, version, pickle.loads(pickled))  # bytes of our own
            given = pa.table(own, schema=pa.schema(list(rows.schema)[:-2]))
            yield from lookups.lookup(given, plan, lookups.moment(version), changes).to_batches()
        collect_only_new_objects()

    return run


def _beyond(table: OpenedTable, version: int, parts: list[TailPart]) -> pl.DataFrame | None:
    """Reads what the log has beyond the version."""
    state, ambient = table.filestore.state(version), table.ambient
    chunks = itertools.chain.from_iterable(part.changes(ambient) for part in parts)
    return standing_changes(table.filestore.table_files(state), state, chunks)


_lookups: Lru[Lookups] = Lru()
_lock = Lock()


def _lookups_of(table: OpenedTable, files: TableFiles) -> Lookups:
    """Returns the look-ups of a table in this process, which later tasks use, too."""
    key, now_ms = (table.identity.table_id, table.identity.location), table.ambient.now_ms()
    with _lock:
        found = _lookups.get(key, now_ms)
        if found is None:
            found = Lookups(table.filestore, files.cache)
            _lookups.put(key, found, 1, now_ms)
            _lookups.shrink(_TABLES, 0)
    return found
