"""The deduplicate engine (FORMAT.md section 9): keeps the last row of a key, or the one with the highest sequence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from filestore.rows.keys import changes
from filestore.rows.ordering import ascending_positions

__all__ = ["ORDINAL_COLUMN", "beats", "reduce"]

ORDINAL_COLUMN = "_ordinal"
"""The order of arrival in a write: of two rows with the same key and sequence the higher ordinal is later."""


def reduce(rows: pa.Table, keys: Sequence[str], sequence: str | None) -> pa.Table:
    """Returns the row of each key that is kept, in key order.

    Args:
        rows: Rows in key order; equal keys are in any order if there is an `ORDINAL_COLUMN`, else in arrival order.
        keys: The sort key.
        sequence: The sequence field, if the table has one. A null sequence is lower than every other.
    """
    new_key = changes(rows, keys)
    if new_key.all():
        return rows
    last = np.flatnonzero(np.append(new_key, True))
    if order := [name for name in (sequence, ORDINAL_COLUMN) if name is not None and name in rows.column_names]:
        group = pl.Series("_group", np.concatenate([[0], np.cumsum(new_key)]))
        # groups stay where they are, and the last row of each is the one that wins
        last = ascending_positions(pl.DataFrame([group, *(_series(n, rows.column(n)) for n in order)])).to_numpy()[last]
    return rows.take(pa.array(last))


def beats(new: pa.ChunkedArray, stored: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Marks the new rows that replace the stored ones: all but those with a lower sequence."""
    later = pl.select(_series("new", new), _series("stored", stored)).select(
        pl.col("stored").is_null() | (pl.col("new").is_not_null() & (pl.col("new") >= pl.col("stored")))
    )
    return later.to_series().to_numpy()


def _series(name: str, column: pa.ChunkedArray) -> pl.Series:
    return pl.Series(name, column)
