"""Converts changes to upserts: each change has a key's new row, or deletes it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.model.rowkind import KIND_COLUMN, RowKind

__all__ = ["as_upserts", "upserts"]


def as_upserts(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Removes ``-U``: the row before an update is left out, and one that no update follows becomes a delete.

    Args:
        rows: Changes with `KIND_COLUMN`. A ``-U`` belongs to the ``+U`` that follows if both have the same key.
        key: The columns of the key.
    """
    kinds = rows[KIND_COLUMN]
    former = pc.equal(kinds, str(RowKind.UPDATE_BEFORE)).to_numpy()
    if not former.any():
        return rows
    followed = np.append(pc.equal(kinds, str(RowKind.UPDATE_AFTER)).to_numpy()[1:], False)
    same = former & followed
    for name in key:
        column = rows[name].combine_chunks()
        equal = pc.equal(column[:-1], column[1:]).fill_null(False).to_numpy(zero_copy_only=False)
        same &= np.append(equal, False)
    at = rows.column_names.index(KIND_COLUMN)
    moved = pc.if_else(pa.array(former & ~same), str(RowKind.DELETE), kinds)
    return rows.set_column(at, rows.schema.field(at), moved).filter(pa.array(~same))


def upserts(batches: Iterable[pa.Table], key: Sequence[str]) -> Iterator[pa.Table]:
    """Converts batches as `as_upserts` does: a ``+U`` may begin the batch after that of its ``-U``."""
    held: pa.Table | None = None
    for batch in batches:
        rows, held = batch if held is None else pa.concat_tables([held, batch]), None
        if rows.num_rows and rows[KIND_COLUMN][-1].as_py() == RowKind.UPDATE_BEFORE:
            held, rows = rows.slice(rows.num_rows - 1), rows.slice(0, rows.num_rows - 1)
        if rows.num_rows and (wanted := as_upserts(rows, key)).num_rows:
            yield wanted
    if held is not None:
        yield as_upserts(held, key)
