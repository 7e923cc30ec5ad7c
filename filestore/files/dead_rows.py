"""The dead rows of a file: which of some positions are alive."""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from filestore.delta.vectors import bitmap
from filestore.model.files import DataFile
from filestore.storage import Storage

__all__ = ["DeadRows"]

Mask = npt.NDArray[np.bool_]

_FEW = 4096


class DeadRows:
    """Of a file with a deletion vector, or none.

    Memory: the vector as it is stored, and once it is asked for many rows, a bit a row of the file.

    Args:
        storage: Where the table lies.
        location: Its root.
        file: One of its files.
    """

    def __init__(self, storage: Storage, location: str, file: DataFile) -> None:
        self._rows = file.rows
        self._dead = None if file.vector is None else bitmap(storage, location, file.vector)
        self._bits: npt.NDArray[np.uint8] | None = None
        self.nbytes = 0 if file.vector is None else file.vector.size + file.rows // 8

    def alive(self, rows: npt.NDArray[np.int64]) -> Mask:
        """For each of those positions whether its row is alive."""
        if self._dead is None:
            return np.ones(len(rows), dtype=np.bool_)
        if self._bits is None and len(rows) <= _FEW:
            dead = BitMap64(array("Q", rows.astype(np.uint64).tobytes())) & self._dead
            return np.isin(rows, np.array(dead.to_array(), dtype=np.int64), invert=True)
        if self._bits is None:
            self._bits = self._as_bits(self._dead)
        alive: Mask = np.equal(self._bits[rows >> 3] >> (rows & 7).astype(np.uint8) & 1, 0)
        return alive

    def _as_bits(self, dead: BitMap64) -> npt.NDArray[np.uint8]:
        mask = np.zeros(self._rows, dtype=np.bool_)
        mask[np.array(dead.to_array(), dtype=np.int64)] = True
        return np.packbits(mask, bitorder="little")
