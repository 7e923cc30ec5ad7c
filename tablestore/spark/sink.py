"""Writing through ``format("tablestore")``: tasks stage sorted runs, the driver folds them and makes the one commit.

`tablestore.spark.SparkStore.write` shuffles in Spark and folds each bucket in a task of its own, so it is the faster
way for much data. This one is for programs that know no more than a format's name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from filestore.delta.conflict import AppVersion
from filestore.errors import Conflict, InvalidRequest, TableStoreError, Unavailable, Unsupported
from filestore.files.writer import TableFiles
from tablestore.handle import TableHandle
from tablestore.incoming import conform
from tablestore.spark.opened import opened
from tablestore.spark.staging import merged, remove, stage
from tablestore.writing.overwrite import Overwrite, parse_spec, replacement
from tablestore.writing.transaction import TableWriter
from tablestore.writing.write_job import TaskOutcome, WriteJob

__all__ = ["BatchWriter", "StreamWriter"]

Messages = Sequence[WriterCommitMessage | None]


@dataclass
class _Staged(WriterCommitMessage):
    """What a task put away, or the error for which another try would be in vain."""

    runs: tuple[str, ...] = ()
    error: TableStoreError | None = None


class _Staging:
    """What the tasks of both kinds of writers do."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = options
        store = opened(options).files()
        state = store.state()
        self._files: TableFiles = store.files(state)
        conform(_no_rows(schema), state.definition)  # bad columns are known before any work

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Staged:
        """In a task: puts its rows away, sorted. Errors that another try cures go to Spark, which retries the task."""
        context = TaskContext.get()
        assert context is not None
        rows = (conform(batch, self._files.definition) for batch in iterator if batch.num_rows)
        try:
            return _Staged(stage(self._files, rows, context.partitionId()))
        except Unavailable:
            raise
        except TableStoreError as error:
            return _Staged(error=error)

    def _commit(self, messages: Messages, *, overwrite: Overwrite, app: AppVersion | None) -> None:
        runs = _runs(messages)
        try:
            if errors := [m.error for m in messages if isinstance(m, _Staged) and m.error is not None]:
                raise errors[0]
            _write(opened(self._options), self._files, runs, overwrite, app)
        finally:
            remove(self._files, runs)

    def _abort(self, messages: Messages) -> None:
        remove(self._files, _runs(messages))


class BatchWriter(_Staging, DataSourceArrowWriter):
    """``df.write.format("tablestore")``: modes ``append`` (upserts, if the table has a key) and ``overwrite``.

    With ``overwrite``: ``partitionOverwriteMode = dynamic`` replaces the partitions that the rows have, and
    ``partition = day=2026-01-31,region=eu`` (or a JSON object) those with these values; without them, the whole table.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema)
        self._overwrite = _overwritten(options) if overwrite else False
        replacement(self._overwrite, self._files.definition)  # a bad option is known before any work

    def commit(self, messages: Messages) -> None:
        """In the driver: one commit."""
        self._commit(messages, overwrite=self._overwrite, app=None)

    def abort(self, messages: Messages) -> None:
        """In the driver, after a task failed."""
        self._abort(messages)


class StreamWriter(_Staging, DataSourceStreamArrowWriter):
    """``df.writeStream.format("tablestore")``: each micro-batch is one commit, exactly once.

    Options: ``checkpointLocation``, on a local disk: the query's id stands in it.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        self._checkpoint = _checkpoint(options)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803  # Spark's name
        """In the driver: one commit, unless this batch has one already."""
        query = json.loads((self._checkpoint / "metadata").read_text())["id"]
        self._commit(messages, overwrite=False, app=AppVersion(f"spark.{query}", batchId))

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803  # Spark's name
        """In the driver, after a task failed."""
        self._abort(messages)


def _write(
    table: TableHandle, staged: TableFiles, runs: Iterable[str], overwrite: Overwrite, app: AppVersion | None
) -> None:
    store, columns = table.files(), staged.definition.schema.to_arrow()

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        if job.table.definition.schema.to_arrow() != columns:
            raise Conflict(
                "the table's columns were changed while the rows were staged: nothing was written, write them again",
                code="staged-rows",
            )
        return [job.run(merged(staged, runs), "0.0")]

    TableWriter(store, table.log, table.ambient).write(run, overwrite=overwrite, app=app)


def _overwritten(options: Mapping[str, str]) -> Overwrite:
    """What ``mode("overwrite")`` replaces."""
    given = {name.lower(): value for name, value in options.items()}
    mode, partition = given.get("partitionoverwritemode", "static").lower(), given.get("partition")
    if mode not in ("static", "dynamic"):
        raise InvalidRequest(f"partitionOverwriteMode={mode!r}: use 'static' or 'dynamic'", code="bad-option-value")
    if mode == "dynamic":
        if partition is not None:
            raise InvalidRequest(
                "partitionOverwriteMode=dynamic replaces the partitions that the rows have: leave 'partition' out",
                code="bad-option-value",
            )
        return "dynamic"
    return True if partition is None else parse_spec(partition)


def _runs(messages: Messages) -> tuple[str, ...]:
    return tuple(path for message in messages if isinstance(message, _Staged) for path in message.runs)


def _no_rows(schema: StructType) -> pa.Table:
    """A table without rows of the frame's columns, all of null: their types are looked at with the rows."""
    return pa.table([pa.nulls(0)] * len(schema.names), names=schema.names)


def _checkpoint(options: Mapping[str, str]) -> Path:
    location = options.get("checkpointlocation") or options.get("checkpointLocation")
    if not location:
        raise InvalidRequest(
            "writeStream.format('tablestore') needs .option('checkpointLocation', …): the query's id in it is what "
            "makes a repeated batch known",
            code="missing-option",
        )
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        raise Unsupported(
            f"checkpointLocation {location} is not on a local disk: use SparkStore.write_stream", code="checkpoint"
        )
    return Path(parts.path)
