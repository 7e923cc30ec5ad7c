"""``fresh=True`` in Spark: a version with what an eventual log shows beyond it, as a native Delta scan.

The driver asks the log how far each bucket goes. A task a bucket reads that far, and leaves what stands at the end of
each key as a run beside the version's files, with vectors of what that kills: an overlay, as versions with pending runs
have. So Catalyst prunes columns and pushes filters. Rows never pass the driver; in a task they are spilled beyond
``write-buffer-size``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from filestore import layout
from filestore.delta.state import TableState
from filestore.errors import TableStoreError
from filestore.files.writer import TableFiles
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.model.files import DataFile, Slot
from filestore.reading.overlay_table import OverlayFile, commit_overlay
from filestore.reading.tail_overlay import overlay_changes
from filestore.sorting.chunks import BUCKET_COLUMN
from filestore.sorting.external import sorted_batches
from tablestore.reading.log_tail import TailPart, VisibleTail
from tablestore.spark.tasks import or_error, run_tasks
from tablestore.spark.write import on_local_disk

__all__ = ["read_fresh"]

_Overlaid = tuple[tuple[Slot, tuple[OverlayFile, ...]], ...]


def read_fresh(spark: SparkSession, tail: VisibleTail, state: TableState) -> DataFrame | None:
    """A version with its log's tail on top, as far as the log goes now; None if the log shows nothing more.

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
    table = tail.files.files(state)
    folder = layout.fresh_overlay_path(state.version, table.ambient.new_id())
    base = state.met(table.ambient.now_ms())
    tasks = [
        _Task(part, {slot: files for slot, files in base.items() if slot.bucket == part.bucket}, folder)
        for part in parts
    ]
    overlaid = [slot for done in run_tasks(spark, table, tasks, _attempt, _forget) for slot in done]
    if not overlaid:
        return None
    files = (file for _, named in overlaid for file in named)
    commit_overlay(table, state, {slot for slot, _ in overlaid}, files, table.path(folder))
    return spark.read.format("delta").load(table.path(folder))


@dataclass(frozen=True, slots=True)
class _Task:
    """A bucket's."""

    part: TailPart
    base: Mapping[Slot, Sequence[DataFile]]
    folder: str


def _attempt(table: TableFiles, task: _Task) -> _Overlaid | TableStoreError:
    return or_error(lambda: _overlay(table, task))


def _overlay(table: TableFiles, task: _Task) -> _Overlaid:
    definition, bucket = table.definition, task.part.bucket
    changes = sorted_batches(
        _numbered(task.part.changes(table.ambient), bucket),
        [*definition.partition_by, *definition.sort_key],
        definition.options["write-buffer-size"],
        lambda: on_local_disk(table, bucket),
    )
    return tuple(overlay_changes(table, task.base, changes, task.folder))


def _numbered(tables: Iterable[pa.Table], bucket: int) -> Iterator[pa.RecordBatch]:
    """Each row with its place in the log, which decides between rows of one key."""
    count = 0
    for rows in tables:
        numbers = np.arange(count, count + rows.num_rows)
        count += rows.num_rows
        numbered = rows.append_column(ORDINAL_COLUMN, pa.array(numbers))
        buckets = pa.repeat(pa.scalar(bucket, pa.int32()), rows.num_rows)
        yield from numbered.append_column(BUCKET_COLUMN, buckets).to_batches()


def _forget(table: TableFiles, done: Sequence[_Overlaid]) -> None:
    """The folder of an overlay that nobody committed goes with old overlays."""
