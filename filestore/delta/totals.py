"""Sums over the files of a version. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from filestore.model.files import DataFile

__all__ = ["FileTotals"]


@dataclass(frozen=True, slots=True)
class FileTotals:
    """Sums over the live files of a version, which each version has from the one before it.

    Attributes:
        size: The bytes of the files.
        live_rows: The rows that readers see.
        vectors: How many files have deleted rows.
    """

    size: int = 0
    live_rows: int = 0
    vectors: int = 0

    @classmethod
    def of(cls, files: Iterable[DataFile]) -> FileTotals:
        """Returns the sums over some files."""
        listed = list(files)
        return cls(
            sum(file.size for file in listed),
            sum(file.live_rows for file in listed),
            sum(file.vector is not None for file in listed),
        )

    def changed(self, former: Iterable[DataFile], now: Iterable[DataFile]) -> FileTotals:
        """Returns the sums without some files, and with others."""
        less, more = FileTotals.of(former), FileTotals.of(now)
        return FileTotals(
            self.size - less.size + more.size,
            self.live_rows - less.live_rows + more.live_rows,
            self.vectors - less.vectors + more.vectors,
        )
