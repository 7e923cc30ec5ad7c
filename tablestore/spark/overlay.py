"""A version with pending runs as a DataFrame: its overlay is made by a Spark job, and scanned natively."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from filestore import layout
from filestore.delta.state import TableState
from filestore.files.writer import TableFiles
from filestore.reading.overlay import PendingSlot, pending_slots
from filestore.reading.overlay_table import OverlayFile, commit_overlay, overlay_location, overlay_slot
from filestore.table import FileStore

__all__ = ["read_overlaid"]


def read_overlaid(spark: SparkSession, store: FileStore, state: TableState) -> DataFrame:
    """A version with its pending runs merged, as a native Delta scan: Catalyst prunes columns and pushes filters.

    The first to read a version looks the runs' keys up, a task a slot.
    """
    table = store.files(state)
    location = overlay_location(table, state.version)
    if not table.storage.exists(layout.join(location, layout.log_entry_path(0))):
        files = [file for slot in _slots(spark, table, pending_slots(state), location) for file in slot]
        commit_overlay(table, state, state.pending(), files, location)
    return spark.read.format("delta").load(location)


def _slots(
    spark: SparkSession, table: TableFiles, slots: Sequence[PendingSlot], location: str
) -> list[tuple[OverlayFile, ...]]:
    tasks = spark.range(0, len(slots), 1, len(slots))
    collected = tasks.mapInArrow(_task(table, slots, location), "files binary").collect()
    return [pickle.loads(bytes(row.files)) for row in collected]  # bytes of our own workers


def _task(
    table: TableFiles, slots: Sequence[PendingSlot], location: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                files = overlay_slot(table, slots[number], location)
                yield pa.record_batch([pa.array([pickle.dumps(files)], pa.binary())], names=["files"])

    return run
