"""`Fingerprint`: says whether two streams of rows have the same rows equally often, in whatever order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from filestore.lazily import pl
from filestore.rows.equality import by_bits

__all__ = ["Fingerprint"]

_SEEDS = (11, 23)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The number of rows, and sums of two hashes of each; comparable within a process.

    Streams with other rows have the same fingerprint by chance only.

    Attributes:
        rows: The number of rows.
        sums: For each of two hash functions the sum of the rows' hashes, modulo 2^64.
    """

    rows: int
    sums: tuple[int, ...]

    @classmethod
    def of(cls, pieces: Iterable[pl.DataFrame]) -> Fingerprint:
        """Reads a stream of rows. Columns count by their position, with their types."""
        rows, sums = 0, np.zeros(len(_SEEDS), np.uint64)
        for piece in pieces:
            rows += piece.height
            if piece.width and piece.height:
                exact = by_bits(piece)
                hashes = (exact.hash_rows(seed).to_numpy().sum(dtype=np.uint64) for seed in _SEEDS)
                sums += np.fromiter(hashes, np.uint64, len(_SEEDS))
        return cls(rows, tuple(sums.tolist()))
