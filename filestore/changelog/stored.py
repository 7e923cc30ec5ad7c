"""Stored rows by position: what a fold reads of the rows that it replaces (FORMAT.md section 10).

They are the images before a change (FORMAT.md section 13).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from filestore.files.row_groups import RowGroups
from filestore.files.writer import TableFiles
from filestore.model.files import DataFile

__all__ = ["ParquetRows", "StoredRows"]

Rows = npt.NDArray[np.int64]


class StoredRows(Protocol):
    """Gives whole rows of a table's data files, which never change: an implementation may keep copies."""

    def at(self, file: DataFile, rows: Rows) -> pl.DataFrame:
        """The rows at those positions of a file, dead or alive, with the table's columns in their order.

        Args:
            file: A file of the table.
            rows: Ascending positions, at least one.
        """


class ParquetRows:
    """Reads them from the files themselves: each row group that holds one is decoded as a whole.

    Memory: what a call returns and one row group; the footer of each file that was read.
    """

    def __init__(self, table: TableFiles) -> None:
        self._table = table
        self._names = table.definition.schema.names
        self._files: dict[str, RowGroups] = {}

    def at(self, file: DataFile, rows: Rows) -> pl.DataFrame:
        """The rows at those ascending positions."""
        groups = self._files.get(file.path)
        if groups is None:
            groups = self._files[file.path] = RowGroups(self._table, file)
        return pl.concat(groups.read_at(rows, self._names))
