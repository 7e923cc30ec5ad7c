"""Makes overlays, by which Spark natively scans versions with pending runs, or with an eventual log's later changes.

An overlay is a Delta table beside the version, which names the version's files with vectors of what the runs or the
log kill, and new rows beside them. A job makes it, a task a slot or a bucket, so rows never pass the driver; Catalyst
prunes columns and pushes filters. In a task rows are spilled beyond ``write-buffer-size``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from filestore import layout
from filestore.delta.by_slot import LookupFiles
from filestore.delta.state import TableState
from filestore.delta.vectors import vector_file
from filestore.files.leftovers import remove
from filestore.files.writer import TableFiles
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.model.files import Slot
from filestore.reading.overlay import PendingSlot, pending_slots
from filestore.reading.overlay_table import OverlayFile, commit_overlay, overlay_location, overlay_slot
from filestore.reading.tail_overlay import overlay_changes
from filestore.sorting.chunks import BUCKET_COLUMN
from filestore.sorting.external import sorted_batches
from filestore.table import FileStore
from tablestore.reading.log_tail import TailPart, VisibleTail
from tablestore.spark.batch.whole_files import read_whole
from tablestore.spark.jobs.local_disk import on_local_disk
from tablestore.spark.jobs.runner import run_tasks

__all__ = ["read_fresh", "read_overlaid"]

_Overlaid = tuple[tuple[Slot, tuple[OverlayFile, ...]], ...]


def read_overlaid(spark: SparkSession, store: FileStore, state: TableState) -> DataFrame:
    """A version with its pending runs merged. The first to read a version looks the runs' keys up.

    Raises:
        TableStoreError: a file of the version is missing or damaged, or the storage does not answer.
    """
    table, folder = store.table_files(state), layout.overlay_path(state.version)
    location = overlay_location(table, state.version)
    if not table.storage.exists(layout.join(location, layout.log_entry_path(0))):
        tasks = [_Pending(pending, location) for pending in pending_slots(state)]
        merged = run_tasks(spark, table, tasks, _merge_pending, "merge runs of", partial(_discard, folder=folder))
        commit_overlay(table, state, set(state.pending.slots), _files(merged), location)
    return read_whole(spark, location, state)


def read_fresh(spark: SparkSession, tail: VisibleTail, state: TableState) -> DataFrame | None:
    """A version with its log's tail on top, as far as the log goes now; None if the log shows nothing more.

    The driver asks the log how far each bucket goes, and a task reads its bucket that far.

    Args:
        spark: The session.
        tail: The log of a table without pending runs.
        state: Its newest version.

    Raises:
        Unavailable: the log does not answer.
        NotFound: ``log-gap``: retention took what was about to be read.
        Corrupt: ``log-replaced``.
    """
    parts = tail.parts(state)
    if not parts:
        return None
    table = tail.filestore.table_files(state)
    folder = layout.fresh_overlay_path(state.version, table.ambient.new_id())
    base = state.lookup_files(table.ambient.now_ms())
    tasks = [_Tail(part, base.of_bucket(part.bucket), folder) for part in parts]
    merged = run_tasks(spark, table, tasks, _merge_tail, "merge the log of", partial(_discard, folder=folder))
    if not any(merged):
        return None
    slots = {slot for done in merged for slot, _ in done}
    commit_overlay(table, state, slots, _files(merged), table.path(folder))
    return read_whole(spark, table.path(folder), state)


@dataclass(frozen=True, slots=True)
class _Pending:
    """A slot's pending runs, and where the overlay is."""

    slot: PendingSlot
    location: str


def _merge_pending(table: TableFiles, task: _Pending) -> _Overlaid:
    return ((task.slot.slot, overlay_slot(table, task.slot, task.location)),)


@dataclass(frozen=True, slots=True)
class _Tail:
    """A bucket's changes in the log, and the live files below them."""

    part: TailPart
    base: LookupFiles
    folder: str


def _merge_tail(table: TableFiles, task: _Tail) -> _Overlaid:
    definition, bucket = table.definition, task.part.bucket
    changes = sorted_batches(
        _numbered(task.part.changes(table.ambient), bucket),
        [*definition.partition_by, *definition.sort_key],
        definition.options["write-buffer-size"],
        lambda: on_local_disk(bucket),
    )
    return tuple(overlay_changes(table, task.base, changes, task.folder))


def _numbered(tables: Iterable[pa.Table], bucket: int) -> Iterator[pa.RecordBatch]:
    """Adds to each row its place in the log, which decides between rows of one key."""
    count = 0
    for rows in tables:
        numbers = np.arange(count, count + rows.num_rows)
        count += rows.num_rows
        numbered = rows.append_column(ORDINAL_COLUMN, pa.array(numbers))
        buckets = pa.repeat(pa.scalar(bucket, pa.int32()), rows.num_rows)
        yield from numbered.append_column(BUCKET_COLUMN, buckets).to_batches()


def _files(overlaid: Iterable[_Overlaid]) -> Iterator[OverlayFile]:
    return (file for done in overlaid for _, files in done for file in files)


def _discard(table: TableFiles, done: Iterable[_Overlaid], folder: str) -> None:
    """Removes what slots of an overlay wrote that nobody commits. Another reader may be making the same overlay."""
    made = set()
    for overlaid in _files(done):
        if overlaid.own:
            made.add(layout.join(folder, overlaid.file.path))
        elif overlaid.file.path.startswith(f"{folder}/"):
            made.add(overlaid.file.path)
        if overlaid.own_vector and overlaid.file.vector is not None:
            made.add(layout.join(folder, vector_file(overlaid.file.vector)))
    remove(table, made)
