"""Cuts tables into pieces that fit into memory."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["BATCH_ROWS", "slices"]

BATCH_ROWS = 65_536
"""Rows of a batch, at most, on either side: what bounds a writer's and a reader's memory."""

BATCH_BYTES = 16 << 20


def slices(rows: pa.Table, max_rows: int = BATCH_ROWS, max_bytes: int = BATCH_BYTES) -> list[pa.Table]:
    """Cuts a table into pieces, in order, that are bounded in rows and, for rows of even width, in bytes."""
    if not rows.num_rows:
        return []
    by_bytes = max(1, rows.num_rows * max_bytes // max(1, rows.nbytes))
    step = min(max_rows, by_bytes)
    return [rows.slice(at, step) for at in range(0, rows.num_rows, step)]
