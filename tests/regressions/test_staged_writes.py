"""Found while reviewing ``write.format("tablestore")``: what the driver's commit reports, and which files it leaves."""

from __future__ import annotations

import logging
import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from filestore.errors import InvalidRequest, Unavailable
from filestore.storage.local import LocalStorage
from tablestore import Store, Table
from tablestore.spark.batch.sink import BatchWriter, _Staged, stage
from tablestore.spark.opened import identity_options
from tests.faults import FailAt, FaultyStorage
from tests.warehouses import orphans, rows


def writer_of(table: Table) -> BatchWriter:
    options = {"path": table.identifier, **identity_options(table.opened)}
    return BatchWriter(options, StructType.fromJson(table.definition.schema.to_delta()), overwrite=False)


def staged(table: Table, *ids: int) -> _Staged:
    files = table.filestore.table_files(table.filestore.state())
    return _Staged(stage(files, [pa.table({"id": pa.array(ids, pa.int64())})], 0))


def test_a_commit_stands_though_its_runs_cannot_be_removed(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """The job failed after its commit, so its retry wrote the rows of an append table twice."""
    table = store.create_table("shop.events", "id BIGINT")
    message, writer = staged(table, 1, 2), writer_of(table)
    read_only = FailAt(1, Unavailable("a disk that is read-only"), operation="delete")
    writer._table_files = replace(writer._table_files, storage=FaultyStorage(LocalStorage(), read_only))
    with caplog.at_level(logging.WARNING):
        writer.commit([message])
    assert [row["id"] for row in rows(table)] == [1, 2]
    assert "a disk that is read-only" in caplog.text
    assert Path(table.location, message.runs[0]).exists()
    assert len(orphans(table)) == 1


def test_a_tasks_error_is_raised_by_the_commit_once_all_runs_are_gone(store: Store) -> None:
    """When the task raised the error, Spark retried the task, which failed again."""
    table = store.create_table("shop.events", "id BIGINT")
    bad = _Staged(error=InvalidRequest("column 'id' holds 0.5", code="bad-value"))
    with pytest.raises(InvalidRequest, match=r"holds 0\.5"):
        writer_of(table).commit([staged(table, 1, 2), pickle.loads(pickle.dumps(bad)), None])
    assert table.filestore.state().version == 0
    assert orphans(table) == []
