"""Writes through ``format("tablestore")``: tasks stage sorted runs, the driver folds them and makes the one commit.

`tablestore.spark.SparkStore.write` shuffles in Spark and folds each bucket in a task of its own, so it is the faster
way for much data. This one is for programs that know no more than a format's name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from filestore.commit.proposal import AppVersion
from filestore.delta.state import TableState
from filestore.errors import Conflict, InvalidRequest, TableStoreError, Unsupported
from filestore.files.writer import TableFiles
from filestore.layout import staged_path
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.model.definition import TableDefinition
from filestore.sorting.order import bucketed, by_arrival, slices_in_order
from filestore.sorting.runs import RunFiles, gathered
from filestore.storage.interface import Storage
from filestore.storage.local import LocalStorage
from filestore.storage.locations import storage_of
from filestore.storage.schemes import S3_SCHEMES, scheme_of
from managed_table.opened import OpenedTable
from tablestore.incoming.conform import conform
from tablestore.spark.jobs.runner import Attempt, Failed, attempted
from tablestore.spark.opened import opened, opened_by_name, storage_options
from tablestore.writing.overwrite import Overwrite, parse_spec, replacement
from tablestore.writing.write_job import TaskOutcome, WriteJob
from tablestore.writing.writer import TableWriter

__all__ = ["BatchWriter", "StreamWriter", "merged", "remove", "stage"]

Messages = Sequence[WriterCommitMessage | None]

_TASK_SHIFT = 40  # the ordinal's bits below the task's number


@dataclass
class _Staged(WriterCommitMessage):
    """The runs that a task staged, or the error that another try would raise, too."""

    runs: tuple[str, ...] = ()
    error: TableStoreError | None = None


class _Staging:
    """Stages rows in tasks and commits them in the driver, for batches and streams."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options = options
        store = opened(options).filestore
        state = store.state()
        _require_catalog(options, state)
        self._table_files: TableFiles = store.table_files(state)
        conform(_no_rows(schema), state.definition)  # bad columns are known before any work

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Staged:
        """Stages a task's rows, sorted. Spark tries again after errors that may pass; others go to `commit`."""
        rows = (conform(batch, self._table_files.definition) for batch in iterator if batch.num_rows)
        done = attempted(lambda: stage(self._table_files, rows, Attempt.current().task), last=False)
        return _Staged(error=done.error) if isinstance(done, Failed) else _Staged(done)

    def _commit(self, messages: Messages, *, overwrite: Overwrite, app: AppVersion | None) -> None:
        runs = _runs(messages)
        try:
            if errors := [m.error for m in messages if isinstance(m, _Staged) and m.error is not None]:
                raise errors[0]
            with opened_by_name(self._options) as table:
                _write(table, self._table_files, runs, overwrite, app)
        finally:
            remove(self._table_files, runs)

    def _abort(self, messages: Messages) -> None:
        remove(self._table_files, _runs(messages))


class BatchWriter(_Staging, DataSourceArrowWriter):
    """Writes ``df.write.format("tablestore")``: modes ``append`` (upserts, if the table has a key) and ``overwrite``.

    With ``overwrite``: ``partitionOverwriteMode = dynamic`` replaces the partitions that the rows have, and
    ``partition = day=2026-01-31,region=eu`` (or a JSON object) those with these values; without them, the whole table.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema)
        self._overwrite = _overwritten(options) if overwrite else False
        replacement(self._overwrite, self._table_files.definition)  # a bad option is known before any work

    def commit(self, messages: Messages) -> None:
        """Makes one commit, in the driver."""
        self._commit(messages, overwrite=self._overwrite, app=None)

    def abort(self, messages: Messages) -> None:
        """Removes what the tasks have staged, in the driver, after one of them failed."""
        self._abort(messages)


class StreamWriter(_Staging, DataSourceStreamArrowWriter):
    """Writes ``df.writeStream.format("tablestore")``: each micro-batch is one commit, exactly once.

    Options: ``checkpointLocation``, on the driver's disk or in S3: the query's id stands in it.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        self._checkpoint = _checkpoint(options, self._table_files.storage)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803  # Spark's name
        """Makes one commit, in the driver, unless this batch has one already."""
        query = json.loads(self._checkpoint.read())["id"]
        self._commit(messages, overwrite=False, app=AppVersion(f"spark.{query}", batchId))

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803  # Spark's name
        """Removes what the tasks have staged, in the driver, after one of them failed."""
        self._abort(messages)


def _require_catalog(options: Mapping[str, str], state: TableState) -> None:
    """Refuses options that bypass a catalog which holds the table's commits: `Unsupported` (``catalog-commits``)."""
    if state.catalog_commits and "location" in {name.lower() for name in options}:
        raise Unsupported(
            "the table's commits are held by its catalog's database, and these options name the table's location "
            "instead of the catalog: write with SparkStore.write or write_stream, or name the catalog: "
            ".option('catalog', <URL of the service>)",
            code="catalog-commits",
        )


def _write(
    table: OpenedTable, staged: TableFiles, runs: Iterable[str], overwrite: Overwrite, app: AppVersion | None
) -> None:
    columns = staged.definition.schema.to_arrow()

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        if job.table.definition.schema.to_arrow() != columns:
            raise Conflict(
                "the table's columns were changed while the rows were staged: nothing was written, write them again",
                code="staged-rows",
            )
        return [job.run(merged(staged, runs), "0.0")]

    TableWriter(table.filestore, table.log_config, table.ambient).write(run, overwrite=overwrite, app=app)


def _overwritten(options: Mapping[str, str]) -> Overwrite:
    """Returns what ``mode("overwrite")`` replaces."""
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


@dataclass(frozen=True, slots=True)
class _QueryFile:
    """The file of a checkpoint that names the query; Spark writes it before the first batch."""

    storage: Storage
    path: str

    def read(self) -> bytes:
        return self.storage.read(self.path)


def _checkpoint(options: Mapping[str, str], storage: Storage) -> _QueryFile:
    """Returns the file of a query's checkpoint. In S3 it is reached by the options, or else as the table's storage."""
    location = options.get("checkpointlocation") or options.get("checkpointLocation")
    if not location:
        raise InvalidRequest(
            "writeStream.format('tablestore') needs .option('checkpointLocation', …): the query's id in it is what "
            "makes a repeated batch known",
            code="missing-option",
        )
    scheme = scheme_of(location)
    if scheme in S3_SCHEMES:
        reached = storage_options(options) or storage.options()
        return _QueryFile(storage_of(location, reached), f"{location.rstrip('/')}/metadata")
    if scheme not in ("", "file"):
        raise Unsupported(
            f"checkpointLocation {location} is neither on a local disk nor in S3: use SparkStore.write_stream",
            code="checkpoint",
        )
    return _QueryFile(LocalStorage(), str(Path(urlsplit(location).path) / "metadata"))


def stage(table: TableFiles, batches: Iterable[pa.Table], task: int) -> tuple[str, ...]:
    """Writes a task's rows as sorted runs; returns their paths, relative to the table. After an error nothing stays.

    Args:
        table: The table.
        batches: Rows in the table's types.
        task: Its number: rows of a later task are later rows.
    """
    definition, files = table.definition, _files(table)
    runs: list[str] = []
    first = task << _TASK_SHIFT
    try:
        for parts in gathered(batches, definition.options["write-buffer-size"]):
            for number, rows in enumerate(parts):
                parts[number] = _numbered(rows, definition, first)
                first += rows.num_rows
            runs.append(files.put(slices_in_order(parts, by_arrival(definition))))
        files.share(runs)
    except BaseException:
        files.remove(runs)
        raise
    return tuple(runs)


def _numbered(rows: pa.Table, definition: TableDefinition, first: int) -> pa.Table:
    ordinals = np.arange(first, first + rows.num_rows)
    return bucketed(rows, definition).append_column(ORDINAL_COLUMN, pa.array(ordinals))


def remove(table: TableFiles, runs: Iterable[str]) -> None:
    """Removes runs. One that cannot be removed is logged and no error: nothing refers to it, commit or no commit."""
    _files(table).remove(runs)


def merged(table: TableFiles, runs: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """The rows of all runs in the order that `filestore.writing.write.write_sorted` wants. The runs stay."""
    return _files(table).merged(runs, by_arrival(table.definition))


def _files(table: TableFiles) -> RunFiles:
    return RunFiles(table.storage, table.location, lambda: staged_path(table.ambient.new_id()))
