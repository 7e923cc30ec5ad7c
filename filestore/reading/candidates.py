"""Chooses the files of a version that are worth a closer look, many at once. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from filestore.delta.adds import Mask
from filestore.delta.batch import Batch
from filestore.files.batch_bounds import batch_bounds, partition_bounds
from filestore.lazily import pl
from filestore.model.definition import TableDefinition
from filestore.reading.pruning import may_hold

__all__ = ["Wanted"]


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """Marks those of some files that may contain a row for which a condition is true (`filestore.delta.batch.Judge`).

    Attributes:
        condition: The condition.
        columns: Its columns.
        buckets: The buckets of such rows; None: any.
        definition: The table's definition.
    """

    condition: pl.Expr
    columns: Collection[str]
    buckets: Collection[int] | None
    definition: TableDefinition

    def __call__(self, batch: Batch) -> Mask:
        """Returns the marks. Statistics are decoded only if partitions and buckets leave a file."""
        mask = np.ones(len(batch), np.bool_)
        if self.buckets is not None:
            mask &= np.isin(batch.buckets, list(self.buckets))
        if mask.any():
            mask &= may_hold(self.condition, partition_bounds(batch, self.columns, self.definition))
        if mask.any() and not set(self.columns) <= set(self.definition.partition_by):
            mask &= may_hold(self.condition, batch_bounds(batch, self.columns, self.definition))
        return mask
