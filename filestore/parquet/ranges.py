"""Says where the parts of a Parquet file are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import pyarrow.parquet as pq

from filestore.storage.interface import ByteRange

__all__ = ["FOOTER_END", "Chunks", "footer_range"]

FOOTER_END = 8
"""The footer's length and a magic number, with which a file ends (Parquet format, "File format")."""


class Chunks:
    """The column chunks of a file.

    Args:
        footer: Its footer.
    """

    def __init__(self, footer: pq.FileMetaData) -> None:
        self._footer = footer
        self._known: dict[tuple[int, int], ByteRange] = {}

    def ranges(self, group: int, columns: Iterable[str] | None = None) -> list[ByteRange]:
        """Returns where the bytes of a row group's columns are: of top-level ones, or of all if None."""
        leaves = range(self._count) if columns is None else [n for name in columns for n in self._leaves.get(name, ())]
        return [self._range(group, leaf) for leaf in leaves]

    def whole(self, group: int) -> ByteRange:
        """Returns where a row group is: its chunks are in the order of the columns (FORMAT.md section 7.1)."""
        return self._range(group, 0)[0], self._range(group, self._count - 1)[1]

    @property
    def _count(self) -> int:
        return len(self._footer.schema)

    def _range(self, group: int, leaf: int) -> ByteRange:
        if (group, leaf) not in self._known:  # it takes microseconds, and most readers want some columns only
            self._known[group, leaf] = _range(self._footer.row_group(group).column(leaf))
        return self._known[group, leaf]

    @cached_property
    def _leaves(self) -> Mapping[str, list[int]]:
        """The leaf columns of each top-level column; and of what begins like one, since a name may have dots itself."""
        found: dict[str, list[int]] = {}
        schema = self._footer.schema
        for leaf in range(len(schema)):
            parts = schema.column(leaf).path.split(".")
            for length in range(1, len(parts) + 1):
                found.setdefault(".".join(parts[:length]), []).append(leaf)
        return found

    def ends(self) -> list[int]:
        """Returns where each column chunk and each Bloom filter ends."""
        groups = [self._footer.row_group(group) for group in range(self._footer.num_row_groups)]
        chunks = [group.column(leaf) for group in groups for leaf in range(group.num_columns)]
        filters = [c.bloom_filter_offset + c.bloom_filter_length for c in chunks if c.bloom_filter_length is not None]
        return [*(_range(chunk)[1] for chunk in chunks), *filters]


def footer_range(footer: pq.FileMetaData, size: int) -> ByteRange:
    """Returns where the footer of a file of that size is."""
    return size - footer.serialized_size - FOOTER_END, size


def _range(chunk: pq.ColumnChunkMetaData) -> ByteRange:
    dictionary = chunk.dictionary_page_offset if chunk.has_dictionary_page else None
    start = int(min(filter(None, (dictionary, chunk.data_page_offset))))
    return start, start + chunk.total_compressed_size
