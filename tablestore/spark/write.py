"""A write as one Spark job: each bucket goes to one task, which sorts and folds it in a Python worker.

Spark hashes and shuffles natively. The worker sorts, since it only has to sort the keys, where Spark moves whole rows
about: measured, a load takes a fifth less (DESIGN.md 20). What does not fit into memory is sorted in runs on the
executor's local disk.
"""

from __future__ import annotations

import os
import pickle
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark program gives it
from pyspark.sql.types import DataType, StringType, StructType

from filestore.errors import CommitUnknown, InvalidRequest, TableStoreError, Unavailable
from filestore.files.writer import TableFiles
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.model.definition import TableDefinition
from filestore.model.rowkind import KIND_COLUMN
from filestore.model.schema import Column as OwnColumn
from filestore.model.schema import Schema
from filestore.sorting.chunks import BUCKET_COLUMN
from filestore.sorting.external import sorted_batches
from filestore.sorting.runs import RunFiles
from filestore.storage import LocalStorage, temporary_folder
from tablestore.fitting import fit
from tablestore.spark.casts import BAD_VALUE, fitted
from tablestore.writing.write_job import Runner, TaskOutcome, WriteJob

__all__ = [
    "Arranged",
    "arranged",
    "at_home",
    "canonical",
    "conformed",
    "known_error",
    "on_local_disk",
    "spark_runner",
    "spark_type",
]

_OUTCOME = "outcome binary"


def spark_runner(df: DataFrame, definition: TableDefinition) -> Runner:
    """Runs a write's tasks over a DataFrame's rows.

    Raises:
        InvalidRequest: columns that the table lacks, or that it needs.
    """
    known = definition, arranged(conformed(df, definition.schema), definition)

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        nonlocal known
        if known[0] != job.table.definition:  # it was changed since
            changed = job.table.definition
            known = changed, arranged(conformed(df, changed.schema), changed)
        rows = known[1]
        try:
            collected = rows.frame.mapInArrow(_task(job, rows.names), _OUTCOME).collect()
        except PySparkException as error:
            if (ours := known_error(str(error))) is None:
                raise
            raise ours from error
        return [pickle.loads(bytes(row.outcome)) for row in collected]  # bytes of our own workers

    return run


def known_error(text: str) -> TableStoreError | None:
    """The error of ours that Spark has wrapped in text, if it is one."""
    # behind the message of `raise_error` Spark puts a state of its own
    if bad := re.search(rf"{BAD_VALUE}([^\n]*?)(?: SQLSTATE: \w{{5}})?$", text, re.MULTILINE):
        return InvalidRequest(bad[1], code="bad-value")
    if lost := re.search(r"filestore\.errors\.(Unavailable|CommitUnknown): ([^\n]*)", text):
        return (Unavailable if lost[1] == "Unavailable" else CommitUnknown)(lost[2])
    return None


def conformed(df: DataFrame, schema: Schema) -> DataFrame:
    """A table's columns in its order and types, and ``_kind`` if the rows have one.

    Raises:
        InvalidRequest: ``duplicate-column``, ``unknown-column``, ``missing-column`` or ``bad-type``.
    """
    names = df.columns
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InvalidRequest(f"the rows have two columns {twice[0]!r}: rename one", code="duplicate-column")
    known = {*schema.names, KIND_COLUMN}
    if unknown := [name for name in names if name not in known]:
        raise InvalidRequest(
            f"the rows have a column {unknown[0]!r} that the table lacks; its columns are {', '.join(schema.names)}",
            code="unknown-column",
        )
    given = {field.name: field.dataType for field in df.schema}
    columns = [
        _column(given, column, field.dataType) for column, field in zip(schema.columns, spark_type(schema), strict=True)
    ]
    if KIND_COLUMN in given:
        columns.append(F.col(KIND_COLUMN).cast(StringType()))
    try:
        return df.select(*columns)
    except AnalysisException as error:
        raise InvalidRequest(f"the rows do not fit the table: {error}", code="bad-type") from error


def _column(given: Mapping[str, DataType], column: OwnColumn, wanted: DataType) -> Column:
    name = column.name
    if name not in given:
        if column.nullable:
            return F.lit(None).cast(wanted).alias(name)
        raise InvalidRequest(f"the rows lack the column {name!r}, which is NOT NULL", code="missing-column")
    return fitted(_named(name), given[name], wanted, name).alias(name)


def _named(column: str) -> Column:
    """The column of exactly that name, whatever is in it."""
    return F.col("`" + column.replace("`", "``") + "`")


def spark_type(schema: Schema) -> StructType:
    """A table's schema as Spark's."""
    return StructType.fromJson(schema.plain().to_delta())


@dataclass(frozen=True, slots=True)
class Arranged:
    """Rows with each slot whole in one task; in an unpartitioned table the task's number is the bucket's.

    Attributes:
        frame: The rows. Columns have names of ours, since `mapInArrow` takes none with a backtick in it.
        names: What the columns are.
    """

    frame: DataFrame
    names: tuple[str, ...]


def arranged(df: DataFrame, definition: TableDefinition) -> Arranged:
    """Numbers the rows, and sends each to its task.

    Columns get their new names before the shuffle: behind it, each row would be copied once more.
    """
    if definition.primary_key:
        # the shuffle forgets the order, and of two rows with one key the later has to win
        df = df.withColumn(ORDINAL_COLUMN, F.monotonically_increasing_id())
    names = tuple(df.columns)
    df = df.toDF(*(f"c{number}" for number in range(len(names))))
    column = dict(zip(names, map(F.col, df.columns), strict=True))
    buckets = definition.buckets
    key = [column[name] for name in definition.bucket_key]
    bucket = (F.pmod(F.hash(*key), F.lit(buckets)) if buckets > 1 else F.lit(0)).cast("int")
    if not definition.partition_by:
        return Arranged(df.repartitionById(buckets, bucket), names)
    tasks = max(buckets, int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or buckets))
    slot = [*(column[name] for name in definition.partition_by), F.col(BUCKET_COLUMN)]
    df = df.withColumn(BUCKET_COLUMN, bucket)
    return Arranged(df.repartitionById(tasks, F.pmod(F.hash(*slot), F.lit(tasks))), (*names, BUCKET_COLUMN))


def _task(job: WriteJob, names: Sequence[str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        task = context.partitionId()
        named = (batch.rename_columns(names) for batch in batches)
        own = job.table.definition.schema.to_arrow()
        rows = _in_order(canonical(named, own), at_home(job.table, task), task)
        outcome = _attempt(job, rows, f"{task}.{context.taskAttemptId()}")
        yield pa.record_batch([pa.array([pickle.dumps(outcome)], pa.binary())], names=["outcome"])

    return run


def _in_order(batches: Iterable[pa.RecordBatch], table: TableFiles, task: int) -> Iterator[pa.RecordBatch]:
    """Rows as `filestore.writing.write.write_sorted` wants them."""
    definition = table.definition
    slot = [*definition.partition_by, BUCKET_COLUMN] if definition.partition_by else []
    memory = definition.options["write-buffer-size"]
    bucket = pa.scalar(task, pa.int32())
    for batch in sorted_batches(batches, [*slot, *definition.sort_key], memory, lambda: on_local_disk(table, task)):
        yield batch if slot else batch.append_column(BUCKET_COLUMN, pa.repeat(bucket, batch.num_rows))


def local_disk(task: int) -> str:
    """One of the folders that Spark gives its executors for temporary files."""
    folders = os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")
    return folders[task % len(folders)]


def at_home(table: TableFiles, task: int) -> TableFiles:
    """The table in a task: what its look-ups keep stays in the worker for the next tasks, on the executor's disk."""
    if table.cache is not None:
        table.cache.folder = local_disk(task)
    return table


@contextmanager
def on_local_disk(table: TableFiles, task: int) -> Iterator[RunFiles]:
    """A place for runs among Spark's own temporary files: what a killed worker leaves goes with its executor."""
    with temporary_folder("tablestore-runs-", local_disk(task)) as folder:
        yield RunFiles(LocalStorage(), folder, lambda: f"{table.ambient.new_id()}.parquet")


def _attempt(job: WriteJob, batches: Iterable[pa.RecordBatch], attempt: str) -> TaskOutcome:
    """Errors that another try cures go to Spark, which retries the task; the others come back as they are."""
    try:
        return job.run(batches, attempt)
    except Unavailable:
        raise
    except TableStoreError as error:
        return TaskOutcome(error=error)


def canonical(batches: Iterable[pa.RecordBatch], own: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Spark's Arrow in a table's own types: its timestamps carry the session's zone."""
    known = {field.name: field.with_nullable(True) for field in own}
    for batch in batches:
        if batch.num_rows == 0:
            continue
        fields = [known.get(field.name, field) for field in batch.schema]
        columns = [fit(pa.chunked_array([batch.column(f.name)]), f) for f in fields]
        yield from pa.table(columns, schema=pa.schema(fields)).to_batches()
