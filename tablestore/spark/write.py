"""A write as one Spark job: each bucket goes sorted to one task, which folds it in a Python worker.

Spark hashes, shuffles and sorts natively and spills when memory is short; the worker sees one sorted stream.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark program gives it
from pyspark.sql.types import StringType, StructType

from filestore.chunks import BUCKET_COLUMN
from filestore.errors import InvalidRequest, TableStoreError, Unavailable
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.model.definition import TableDefinition
from filestore.model.rowkind import KIND_COLUMN
from tablestore.incoming import fit
from tablestore.spark.casts import BAD_VALUE, fitted
from tablestore.transaction import Runner, TaskOutcome, WriteJob

__all__ = ["arranged", "spark_runner", "spark_type"]

_TASK_COLUMN = "_task"
_OUTCOME = "outcome binary"


def spark_runner(df: DataFrame, definition: TableDefinition) -> Runner:
    """Runs a write's tasks over a DataFrame's rows.

    Raises:
        InvalidRequest: columns that the table lacks, or that it needs.
    """
    rows = arranged(conformed(df, definition), definition)
    names = rows.columns
    numbered = rows.toDF(*(f"c{number}" for number in range(len(names))))  # mapInArrow takes no name with a ` in it

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        try:
            collected = numbered.mapInArrow(_task(job, names), _OUTCOME).collect()
        except PySparkException as error:
            if (ours := _known(str(error))) is None:
                raise
            raise ours from error
        return [pickle.loads(bytes(row.outcome)) for row in collected]  # bytes of our own workers

    return run


def _known(text: str) -> TableStoreError | None:
    """The error of ours that Spark has wrapped in text, if it is one."""
    # behind the message of `raise_error` Spark puts a state of its own
    if bad := re.search(rf"{BAD_VALUE}([^\n]*?)(?: SQLSTATE: \w{{5}})?$", text, re.MULTILINE):
        return InvalidRequest(bad[1], code="bad-value")
    if lost := re.search(r"filestore\.errors\.Unavailable: ([^\n]*)", text):
        return Unavailable(lost[1])
    return None


def conformed(df: DataFrame, definition: TableDefinition) -> DataFrame:
    """The table's columns in its order and types, and ``_kind`` if the rows have one."""
    if twice := [name for name in df.columns if df.columns.count(name) > 1]:
        raise InvalidRequest(f"the rows have two columns {twice[0]!r}: rename one", code="duplicate-column")
    known = {*definition.schema.names, KIND_COLUMN}
    if unknown := [name for name in df.columns if name not in known]:
        raise InvalidRequest(
            f"the rows have a column {unknown[0]!r} that the table lacks; its columns are "
            f"{', '.join(definition.schema.names)}",
            code="unknown-column",
        )
    columns = [_column(df, name, definition) for name in definition.schema.names]
    if KIND_COLUMN in df.columns:
        columns.append(F.col(KIND_COLUMN).cast(StringType()))
    try:
        return df.select(*columns)
    except AnalysisException as error:
        raise InvalidRequest(f"the rows do not fit the table: {error}", code="bad-type") from error


def _column(df: DataFrame, name: str, definition: TableDefinition) -> Column:
    column = definition.schema.column(name)
    wanted = spark_type(definition)[name].dataType
    if name not in df.columns:
        if column.nullable:
            return F.lit(None).cast(wanted).alias(name)
        raise InvalidRequest(f"the rows lack the column {name!r}, which is NOT NULL", code="missing-column")
    return fitted(_named(name), df.schema[name].dataType, wanted, name).alias(name)


def _named(column: str) -> Column:
    """The column of exactly that name, whatever is in it."""
    return F.col("`" + column.replace("`", "``") + "`")


def spark_type(definition: TableDefinition) -> StructType:
    """The table's schema as Spark's."""
    return StructType.fromJson(definition.schema.to_delta())


def arranged(df: DataFrame, definition: TableDefinition) -> DataFrame:
    """Rows as `filestore.write.fold_sorted` wants them: each slot whole in one task, sorted by key."""
    buckets = definition.buckets
    names = [_named(name) for name in definition.bucket_key]
    bucket = F.pmod(F.hash(*names), F.lit(buckets)) if buckets > 1 else F.lit(0)
    df = df.withColumn(BUCKET_COLUMN, bucket.cast("int"))
    if definition.primary_key:
        # before the shuffle, which forgets the order: of two rows with one key the later has to win
        df = df.withColumn(ORDINAL_COLUMN, F.monotonically_increasing_id())
    tasks, task = buckets, F.col(BUCKET_COLUMN)
    if definition.partition_by:
        tasks = max(buckets, int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or buckets))
        partition = [_named(name) for name in definition.partition_by]
        task = F.pmod(F.hash(*partition, F.col(BUCKET_COLUMN)), F.lit(tasks))
    df = df.withColumn(_TASK_COLUMN, task).repartitionById(tasks, F.col(_TASK_COLUMN)).drop(_TASK_COLUMN)
    order = [_named(name) for name in definition.sort_key]
    if definition.partition_by:
        order = [*(_named(n) for n in definition.partition_by), F.col(BUCKET_COLUMN), *order]
    return df.sortWithinPartitions(*order) if order else df


def _task(job: WriteJob, names: Sequence[str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        attempt = f"{context.partitionId()}.{context.taskAttemptId()}"
        named = (batch.rename_columns(names) for batch in batches)
        outcome = _attempt(job, _canonical(named, job.table.definition), attempt)
        yield pa.record_batch([pa.array([pickle.dumps(outcome)], pa.binary())], names=["outcome"])

    return run


def _attempt(job: WriteJob, batches: Iterable[pa.RecordBatch], attempt: str) -> TaskOutcome:
    """Errors that another try cures go to Spark, which retries the task; the others come back as they are."""
    try:
        return job.run(batches, attempt)
    except Unavailable:
        raise
    except TableStoreError as error:
        return TaskOutcome(error=error)


def _canonical(batches: Iterable[pa.RecordBatch], definition: TableDefinition) -> Iterator[pa.RecordBatch]:
    """Spark's Arrow in the table's own types: its timestamps carry the session's zone."""
    own = definition.schema.to_arrow()
    for batch in batches:
        if batch.num_rows == 0:
            continue
        fields = [own.field(f.name).with_nullable(True) if f.name in own.names else f for f in batch.schema]
        columns = [fit(pa.chunked_array([batch.column(f.name)]), f) for f in fields]
        yield from pa.table(columns, schema=pa.schema(fields)).to_batches()
