"""Compacts a table because somebody asks for it: pending runs, sorted runs and tombstones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from compaction.compact import CompactionRunner, compact_table
from compaction.tombstones import clean_tombstones
from filestore.model.snapshot import Snapshot
from filestore.operations.fold import FoldRunner, fold_table
from filestore.rows.partitions import chosen_partitions
from filestore.table import FileStore

__all__ = ["compact_on_request"]


def compact_on_request(
    store: FileStore,
    *,
    full: bool = False,
    partitions: Iterable[Mapping[str, Any]] | None = None,
    fold_runner: FoldRunner | None = None,
    runner: CompactionRunner | None = None,
) -> Snapshot | None:
    """Folds pending runs, merges sorted runs, and cleans tombstones; returns the last snapshot, or None without any.

    Args:
        store: The table.
        full: Works on all buckets, and not only on those that need it.
        partitions: The partitions whose runs are folded and merged, as a user names them; all if None.
        fold_runner: Runs the folds; in threads of this process if None.
        runner: Runs the compactions; likewise.

    Raises:
        Conflict: others were faster in all buckets. What was committed before stays.
        InvalidRequest: the table has no such partition columns.
    """
    base = store.state()
    within = chosen_partitions(partitions, base.definition)
    folded = fold_table(store, full, fold_runner, within, base)
    compacted = compact_table(store, full, runner, within, base if folded is None else None)
    return clean_tombstones(store) or compacted or folded
