"""Finds rows by a condition on a few columns, which the look-up cache keeps if they are searched again and again.

A scan decodes the columns of a condition from Parquet each time, and of each row group with a wanted row all other
columns, too. Here the columns of the condition are memory-mapped once they were searched twice, and of the others only
the wanted rows are read: for few rows all over a large table that is many times faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from filestore.files.writer import TableFiles
from filestore.lazily import pl
from filestore.lookup.file_lookup import FileLookup
from filestore.model.files import DataFile

__all__ = ["search"]


def search(
    table: TableFiles, files: Iterable[DataFile], condition: pl.Expr, columns: Sequence[str], most: int
) -> Iterator[pl.DataFrame]:
    """Yields the live rows of files for which a condition is true, in pieces.

    Args:
        table: The table.
        files: Files without pending runs above them.
        condition: It is evaluated for deleted rows, too, so it must not fail for any value of its columns.
        columns: The columns of the result.
        most: The most rows of a piece.
    """
    for file in files:
        lookup = FileLookup(table, file, cache=table.cache)
        rows = lookup.rows_where(condition)
        for start in range(0, len(rows), most):
            yield lookup.frame_at(rows[start : start + most], columns)
        lookup.close()
