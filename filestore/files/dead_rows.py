"""Separates the live rows of a file from the deleted ones, by its deletion vector."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from filestore.delta.vectors import bitmap, bitmap_of
from filestore.files.writer import TableFiles
from filestore.model.files import DataFile
from filestore.storage.interface import Storage

__all__ = ["DeadRows", "dead_rows_of"]

Mask = npt.NDArray[np.bool_]

_FEW = 4096


class DeadRows:
    """The deleted rows of a file with or without a deletion vector.

    It takes the memory of the stored vector, and once it is asked about many rows, a bit for each row of the file.

    Args:
        storage: The table's storage.
        location: The table's root.
        file: One of its files.
    """

    def __init__(self, storage: Storage, location: str, file: DataFile) -> None:
        self._rows = file.rows
        self._dead = None if file.vector is None else bitmap(storage, location, file.vector)
        self._bits: npt.NDArray[np.uint8] | None = None
        self.nbytes = 0 if file.vector is None else file.vector.size + file.rows // 8

    def alive(self, rows: npt.NDArray[np.int64]) -> Mask:
        """Marks the positions whose row is live."""
        if self._dead is None:
            return np.ones(len(rows), dtype=np.bool_)
        if self._bits is None and len(rows) <= _FEW:
            dead = bitmap_of(rows) & self._dead
            return np.isin(rows, np.array(dead.to_array(), dtype=np.int64), invert=True)
        bits = self._as_bits(self._dead)
        alive: Mask = np.equal(bits[rows >> 3] >> (rows & 7).astype(np.uint8) & 1, 0)
        return alive

    def alive_between(self, start: int, end: int) -> Mask:
        """Marks the live rows among those from `start` to before `end`."""
        if self._dead is None:
            return np.ones(end - start, dtype=np.bool_)
        bits = self._as_bits(self._dead)[start >> 3 : (end + 7) >> 3]
        dead = np.unpackbits(bits, count=end - (start & ~7), bitorder="little")[start & 7 :]
        return np.equal(dead, 0)

    def _as_bits(self, dead: BitMap64) -> npt.NDArray[np.uint8]:
        if self._bits is None:
            mask = np.zeros(self._rows, dtype=np.bool_)
            mask[np.array(dead.to_array(), dtype=np.int64)] = True
            self._bits = np.packbits(mask, bitorder="little")
        return self._bits


def dead_rows_of(table: TableFiles, file: DataFile) -> DeadRows:
    """Returns the deleted rows of a file, from the table's cache if the vector was read before."""

    def read() -> tuple[DeadRows, int]:
        dead = DeadRows(table.storage, table.location, file)
        return dead, dead.nbytes

    if table.cache is None or file.vector is None:
        return read()[0]
    return table.cache.decoded(("dead", table.path(file.path)), file.vector, read)
