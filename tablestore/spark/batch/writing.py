"""Runs a write as one Spark job: each bucket goes to one task, which sorts and folds it in a Python worker.

Spark hashes and shuffles natively. The worker sorts, since it only has to sort the keys, where Spark moves whole rows
about: measured, a load takes a fifth less (decision 20). What does not fit into memory is sorted in runs on the
executor's local disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark program gives it

from filestore.files.writer import TableFiles
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.model.definition import TableDefinition
from filestore.model.names import quoted
from filestore.rows.fitting import putting
from filestore.rows.keys import changes
from filestore.sorting.chunks import BUCKET_COLUMN
from filestore.sorting.external import sorted_batches
from tablestore.incoming.conform import unread_by_deletes
from tablestore.spark.batch.columns import canonical, conformed
from tablestore.spark.jobs.local_disk import at_home, on_local_disk
from tablestore.spark.jobs.runner import Attempt, Job, run_partitions
from tablestore.spark.jobs.sent import Sent, sent
from tablestore.writing.write_job import TaskOutcome, WriteJob, WriteRunner, discard_outcomes, repeated_key

__all__ = ["Arranged", "arranged", "spark_runner"]

_BEFORE_ALL = 1 << 62
"""More than any ordinal: Spark's ids are those of a partition with 33 bits for its rows."""


def spark_runner(df: DataFrame, definition: TableDefinition, *, each_key_once: bool = False) -> WriteRunner:
    """Runs a write's tasks over a DataFrame's rows.

    Args:
        df: The rows.
        definition: The table's.
        each_key_once: Whether two rows that put one key are an error (``repeated-key``), of which else the later one
            counts. A put then follows a delete of its key, in whatever order they are.

    Raises:
        InvalidRequest: columns that the table lacks, or that it needs.
    """
    known = definition, arranged(conformed(df, definition.schema, unread_by_deletes(definition)), definition)

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        nonlocal known
        if known[0] != job.table.definition:  # it was changed since
            changed = job.table.definition
            known = changed, arranged(conformed(df, changed.schema, unread_by_deletes(changed)), changed)
        with sent(job, df.sparkSession) as for_tasks:
            work = _work(for_tasks, known[1].names, each_key_once=each_key_once)
            ours = Job(f"write {job.table.location}", work, partial(discard_outcomes, job.table))
            return run_partitions(known[1].frame, ours)

    return run


def _work(
    of: Sent[WriteJob], names: Sequence[str], *, each_key_once: bool
) -> Callable[[Attempt, Iterable[pa.RecordBatch]], TaskOutcome]:
    def work(attempt: Attempt, batches: Iterable[pa.RecordBatch]) -> TaskOutcome:
        job = of.get()
        table = at_home(job.table, attempt.task)
        named = (batch.rename_columns(names) for batch in batches)
        rows = _in_order(canonical(named, table.definition.schema.to_arrow()), table, attempt.task)
        if each_key_once:
            rows = each_once(rows, table.definition)
        return _attempt(job, rows, f"{attempt.task}.{attempt.attempt_id}")

    return work


def _attempt(job: WriteJob, rows: Iterable[pa.RecordBatch], attempt: str) -> TaskOutcome:
    """One attempt of a task."""
    return job.run(rows, attempt)


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

    Columns get their new names before the shuffle: behind it, each row would be copied once more. Expressions are text,
    since each function would be several calls of Java.
    """
    names, values = list(df.columns), [quoted(name) for name in df.columns]
    if definition.primary_key:
        # the shuffle forgets the order, and of two rows with one key the later has to win
        names.append(ORDINAL_COLUMN)
        values.append("monotonically_increasing_id()")
    column = {name: f"c{number}" for number, name in enumerate(names)}
    df = df.selectExpr(*(f"{value} AS {new}" for value, new in zip(values, column.values(), strict=True)))
    buckets = definition.buckets
    key = ", ".join(column[name] for name in definition.bucket_key)
    bucket = F.expr(f"CAST(pmod(hash({key}), {buckets}) AS INT)" if buckets > 1 else "0")
    if not definition.partition_by:
        return Arranged(df.repartitionById(buckets, bucket), tuple(names))
    slot = [*(F.col(column[name]) for name in definition.partition_by), F.col(BUCKET_COLUMN)]
    # without a number of its own Spark joins tasks that would have few rows, and most would have none
    return Arranged(df.withColumn(BUCKET_COLUMN, bucket).repartition(*slot), (*names, BUCKET_COLUMN))


def _in_order(batches: Iterable[pa.RecordBatch], table: TableFiles, task: int) -> Iterator[pa.RecordBatch]:
    """Sorts rows, and adds their bucket, as `filestore.writing.write.write_sorted` wants them."""
    definition = table.definition
    slot = [*definition.partition_by, BUCKET_COLUMN] if definition.partition_by else []
    memory = definition.options["write-buffer-size"]
    bucket = pa.scalar(task, pa.int32())
    for batch in sorted_batches(batches, [*slot, *definition.sort_key], memory, lambda: on_local_disk(task)):
        yield batch if slot else batch.append_column(BUCKET_COLUMN, pa.repeat(bucket, batch.num_rows))


def each_once(batches: Iterable[pa.RecordBatch], definition: TableDefinition) -> Iterator[pa.RecordBatch]:
    """Yields rows in key order, with their deletes before their puts.

    Raises:
        InvalidRequest: ``repeated-key``: two of them put one key. In a table with a ``sequence.field`` a delete can win
            over the put of its key, so that both are refused, too.
    """
    names = list(dict.fromkeys([*definition.partition_by, *definition.primary_key]))
    last: tuple[pa.Table, npt.NDArray[np.bool_]] | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = pa.Table.from_batches([batch])
        puts = putting(rows)
        keys, counted = rows.select(names), puts
        if definition.sequence_field is None and not puts.all():
            keys, counted = keys.filter(pa.array(puts)), puts[puts]
        if last is not None:
            keys, counted = pa.concat_tables([last[0], keys]), np.concatenate([last[1], counted])
        if keys.num_rows:
            _refuse_repeated(keys, counted, names)
            last = keys.slice(keys.num_rows - 1), counted[-1:]
        yield _deletes_first(batch, puts)


def _refuse_repeated(keys: pa.Table, puts: npt.NDArray[np.bool_], names: Sequence[str]) -> None:
    """Refuses rows of one key beside each other, unless both are deletes."""
    repeated = np.flatnonzero(~changes(keys, names) & (puts[1:] | puts[:-1]))
    if len(repeated):
        key = keys.slice(int(repeated[0]), 1).to_pylist()[0]
        raise repeated_key(key)


def _deletes_first(batch: pa.RecordBatch, puts: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    if puts.all():
        return batch
    place = batch.schema.get_field_index(ORDINAL_COLUMN)
    ordinals = batch.column(place).to_numpy()
    return batch.set_column(place, ORDINAL_COLUMN, pa.array(np.where(puts, ordinals, ordinals - _BEFORE_ALL)))
