"""Checks that no reader skips a row group of a file and loses rows by it (FORMAT.md section 12.2).

Files of edition 1 have bounds and dictionaries for FLOAT and DOUBLE columns. Bounds leave NaN out; a look-up of 0.0 in
a dictionary does not find -0.0.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.parquet import ColumnChunkMetaData

from filestore.files.leaves import Leaf, leaves
from filestore.files.parquet import ParquetReader

__all__ = ["HiddenValues"]


class HiddenValues:
    """Looks for values in a file that readers miss."""

    def __init__(self, parquet: ParquetReader) -> None:
        self._footer = parquet.footer
        floating = ((n, leaf) for n, leaf in enumerate(leaves(parquet.arrow_schema)) if leaf.floating)
        self._leaves = [(n, leaf) for n, leaf in floating if not leaf.repeated]  # nobody skips by parts of an ARRAY

    def columns(self, group: int) -> list[str]:
        """Returns the columns of a row group by which readers may skip it: there are none in newer files."""
        chunks = ((leaf.steps[0], self._footer.row_group(group).column(number)) for number, leaf in self._leaves)
        return list(dict.fromkeys(name for name, chunk in chunks if _is_bounded(chunk) or chunk.has_dictionary_page))

    def found(self, group: int, rows: pa.Table) -> Iterator[str]:
        """Yields what is hidden in a row group, of which `rows` has the columns to look at."""
        for number, leaf in self._leaves:
            if leaf.steps[0] not in rows.column_names:
                continue
            chunk = self._footer.row_group(group).column(number)
            if _is_bounded(chunk) and pc.any(pc.is_nan(_values(rows, leaf)), min_count=0).as_py():
                yield f"a NaN in {leaf.path!r} and bounds for it, which readers skip rows by"
            elif chunk.has_dictionary_page and _has_negative_zero(_values(rows, leaf)):
                yield f"-0.0 in {leaf.path!r} and a dictionary for it, in which readers do not find it as 0.0"


def _is_bounded(chunk: ColumnChunkMetaData) -> bool:
    return chunk.statistics is not None and chunk.statistics.has_min_max


def _values(rows: pa.Table, leaf: Leaf) -> pa.ChunkedArray:
    """Returns the leaf's values, those of null structs left out."""
    column = rows.column(leaf.steps[0])
    return pc.struct_field(column, list(leaf.steps[1:])) if len(leaf.steps) > 1 else column


def _has_negative_zero(values: pa.ChunkedArray) -> bool:
    numbers = values.drop_null().to_numpy()
    return bool(np.any(np.signbit(numbers) & (numbers == 0)))
