"""The bytes of texts as numpy sees them, without a copy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["slices"]


Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


def slices(values: pa.Array) -> tuple[Bytes, Numbers, Numbers]:
    """Returns the bytes of texts or binary values; where in them each value begins; and how many bytes it has.

    Args:
        values: Of type STRING or BINARY, or the large ones; where one is null its bytes mean nothing.
    """
    _, offsets, data = values.buffers()
    wide = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    kind = np.dtype(np.int64 if wide else np.int32)
    content = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    if not len(values):  # Arrow may have no offsets then
        return content, np.zeros(0, np.int64), np.zeros(0, np.int64)
    ends = np.frombuffer(offsets, kind, len(values) + 1, kind.itemsize * values.offset).astype(np.int64, copy=False)
    return content, ends[:-1], np.diff(ends)
