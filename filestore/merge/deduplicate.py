"""The deduplicate engine (FORMAT.md section 9): keeps the last row of a key, or the one with the highest sequence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from filestore.rows.keys import changes

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
    group = np.concatenate([[0], np.cumsum(new_key)])
    order = [name for name in (sequence, ORDINAL_COLUMN) if name is not None and name in rows.column_names]
    frame = pl.DataFrame({"group": group}).with_columns(_series(name, rows.column(name)) for name in order)
    winners = (
        frame.with_row_index("row")
        .sort(["group", *order, "row"], nulls_last=False)
        .group_by("group", maintain_order=True)
        .last()["row"]
    )
    return rows.take(winners.to_arrow())


def beats(new: pa.ChunkedArray, stored: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Marks the new rows that replace the stored ones: all but those with a lower sequence."""
    later = pl.select(_series("new", new), _series("stored", stored)).select(
        pl.col("stored").is_null() | (pl.col("new").is_not_null() & (pl.col("new") >= pl.col("stored")))
    )
    return later.to_series().to_numpy()


def _series(name: str, column: pa.ChunkedArray) -> pl.Series:
    return pl.Series(name, column)
