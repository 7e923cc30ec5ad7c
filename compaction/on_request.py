"""Compacts a table because somebody asks for it: pending runs, sorted runs and tombstones."""

from __future__ import annotations

from compaction.compact import CompactionRunner, compact_table
from compaction.tombstones import clean_tombstones
from filestore.model.partition_set import ALL_PARTITIONS, PartitionSet
from filestore.model.snapshot import Snapshot
from filestore.operations.fold import FoldRunner, fold_table
from filestore.table import FileStore

__all__ = ["compact_on_request"]


def compact_on_request(
    store: FileStore,
    *,
    full: bool = False,
    within: PartitionSet = ALL_PARTITIONS,
    fold_runner: FoldRunner | None = None,
    runner: CompactionRunner | None = None,
) -> Snapshot | None:
    """Folds pending runs, merges sorted runs, and cleans tombstones; returns the last snapshot, or None without any.

    Args:
        store: The table.
        full: Works on all buckets, and not only on those that need it.
        within: The partitions whose runs are folded and merged.
        fold_runner: Runs the folds; in threads of this process if None.
        runner: Runs the compactions; likewise.

    Raises:
        Conflict: others were faster in all buckets. What was committed before stays.
    """
    folded = fold_table(store, full, fold_runner, within)
    compacted = compact_table(store, full, runner, within)
    return clean_tombstones(store) or compacted or folded
