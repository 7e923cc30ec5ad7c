"""The deduplicate engine (FORMAT.md section 9): keeps the last row of a key, or the one with the highest sequence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filestore.lazily import pl
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.rows.keys import changes
from filestore.rows.ordering import ascending_positions

__all__ = ["ORDINAL_COLUMN", "beats", "former_rows", "reduce", "reduce_part"]

ORDINAL_COLUMN = "_ordinal"
"""The order of arrival in a write: of two rows with the same key and sequence the higher ordinal is later."""


def reduce(rows: pa.Table, keys: Sequence[str], sequence: str | None) -> pa.Table:
    """Returns the row of each key that is kept, in key order.

    Args:
        rows: Rows in key order; equal keys are in any order if there is an `ORDINAL_COLUMN`, else in arrival order.
        keys: The sort key.
        sequence: The sequence field, if the table has one. A null sequence is lower than every other.
    """
    if sequence is not None and (former := former_rows(rows, keys)).any():
        rows = rows.filter(pa.array(~former))
    new_key = changes(rows, keys)
    if new_key.all():
        return rows
    last = np.flatnonzero(np.append(new_key, True))
    if order := [name for name in (sequence, ORDINAL_COLUMN) if name is not None and name in rows.column_names]:
        group = pl.Series("_group", np.concatenate([[0], np.cumsum(new_key)]))
        # groups stay where they are, and the last row of each is the one that wins
        last = ascending_positions(pl.DataFrame([group, *(_series(n, rows.column(n)) for n in order)])).to_numpy()[last]
    return rows.take(pa.array(last))


def reduce_part(rows: pa.Table, keys: Sequence[str], sequence: str | None) -> pa.Table:
    """Returns what `reduce` still needs of some rows of a key, of which more follow.

    With a sequence and ordinals these are also the former rows of updates: what counts if the new row follows is not
    one of them. Without ordinals the order of the rows says which is later, so it stays.
    """
    if sequence is None or not {KIND_COLUMN, ORDINAL_COLUMN} <= set(rows.column_names):
        return reduce(rows, keys, sequence)
    begins = _are(rows, RowKind.UPDATE_BEFORE)
    waiting = rows.filter(pa.array(begins & ~former_rows(rows, keys)))
    return pa.concat_tables([reduce(rows.filter(pa.array(~begins)), keys, sequence), waiting])


def former_rows(rows: pa.Table, keys: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Marks each ``-U`` whose update has its new row directly behind it: that row says what becomes of the key.

    Else the former row would win over a new one with a lower sequence, and the key would lose its row.

    Args:
        rows: Rows in key order. Without `KIND_COLUMN` and `ORDINAL_COLUMN` none is marked.
        keys: The sort key.
    """
    former = np.zeros(rows.num_rows, dtype=np.bool_)
    if KIND_COLUMN not in rows.column_names or ORDINAL_COLUMN not in rows.column_names:
        return former
    begins = _are(rows, RowKind.UPDATE_BEFORE)
    if not begins.any():
        return former
    arrival = rows.column(ORDINAL_COLUMN).to_numpy()
    order = np.argsort(arrival, kind="stable")
    key = np.concatenate([[0], np.cumsum(changes(rows, keys))])[order]
    together = (key[1:] == key[:-1]) & (np.diff(arrival[order]) == 1)
    former[order[:-1][begins[order][:-1] & _are(rows, RowKind.UPDATE_AFTER)[order][1:] & together]] = True
    return former


def _are(rows: pa.Table, kind: RowKind) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.equal(rows.column(KIND_COLUMN), str(kind)), dtype=np.bool_)


def beats(new: pa.ChunkedArray, stored: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Marks the new rows that replace the stored ones: all but those with a lower sequence."""
    later = pl.select(_series("new", new), _series("stored", stored)).select(
        pl.col("stored").is_null() | (pl.col("new").is_not_null() & (pl.col("new") >= pl.col("stored")))
    )
    return later.to_series().to_numpy()


def _series(name: str, column: pa.ChunkedArray) -> pl.Series:
    return pl.Series(name, column)
