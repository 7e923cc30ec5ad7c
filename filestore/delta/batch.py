"""Some files of a version before they are objects, so that whoever chooses among many makes few."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.delta.adds import Mask, slot_columns
from filestore.lazily import pl
from filestore.model.partition_set import PartitionSet

__all__ = ["Batch", "Judge", "Memo", "in_partitions"]


class Memo:
    """Values that were derived from some actions, by any keys; `size` is their bytes."""

    def __init__(self) -> None:
        self._kept: dict[Any, Any] = {}
        self.size = 0

    def __contains__(self, key: object) -> bool:
        return key in self._kept

    def __getitem__(self, key: object) -> Any:
        return self._kept[key]

    def keep(self, key: object, value: object, size: int) -> None:
        """Keeps a value of so many bytes."""
        self._kept[key] = value
        self.size += size


class Batch:
    """Some files of a version, before they are objects.

    Args:
        count: Their number.
        read: Returns their actions, of type `ADD`.
        partition_by: The table's partition columns.
        memo: What was derived from the actions before. Whoever asks may add to it: it is kept with the files.
    """

    def __init__(self, count: int, read: Callable[[], pa.StructArray], partition_by: Sequence[str], memo: Memo) -> None:
        self._count = count
        self._read = read
        self.partition_by = partition_by
        self.memo = memo

    def __len__(self) -> int:
        return self._count

    @cached_property
    def adds(self) -> pa.StructArray:
        """The actions."""
        return self._read()

    @cached_property
    def partitions(self) -> list[pa.Array]:
        """The texts of each partition column."""
        return slot_columns(self.adds, self.partition_by)[0]

    @property
    def buckets(self) -> npt.NDArray[np.int64]:
        """The buckets."""
        if "buckets" not in self.memo:
            buckets = slot_columns(self.adds, self.partition_by)[1]
            self.memo.keep("buckets", buckets, buckets.nbytes)
        found: npt.NDArray[np.int64] = self.memo["buckets"]
        return found


Judge = Callable[[Batch], Mask]
"""Marks those of some files that may be wanted."""


def in_partitions(batch: Batch, partitions: PartitionSet) -> Mask:
    """Marks files of some partitions."""
    partition_by = batch.partition_by
    if partitions.whole_table or not partition_by:
        return np.full(len(batch), partitions.whole_table)
    values = batch.partitions
    names = [str(number) for number in range(len(partition_by))]
    frame = pl.DataFrame(dict(zip(names, (pl.Series(value, dtype=pl.String) for value in values), strict=True)))
    each = frame.unique()
    inside = [tuple(zip(partition_by, row, strict=True)) in partitions for row in each.iter_rows()]
    wanted = each.with_columns(inside=pl.Series(inside, dtype=pl.Boolean))
    mask: Mask = frame.join(wanted, on=names, how="left", nulls_equal=True, maintain_order="left")["inside"].to_numpy()
    return mask
