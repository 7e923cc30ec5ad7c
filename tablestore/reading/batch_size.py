"""Checks how many rows a reader wants in a batch."""

from __future__ import annotations

import sys

from filestore.errors import InvalidRequest

__all__ = ["batch_size"]


def batch_size(max_rows_per_batch: int | None) -> int | None:
    """Returns the most rows of a batch; None for batches as they are read. `InvalidRequest` (``bad-option-value``)."""
    if max_rows_per_batch is not None and max_rows_per_batch < 1:
        raise InvalidRequest(f"max_rows_per_batch={max_rows_per_batch} is not above zero", code="bad-option-value")
    return None if max_rows_per_batch is None else min(max_rows_per_batch, sys.maxsize)  # Arrow counts in C
