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
        self._known: dict[int, list[ByteRange]] = {}

    def ranges(self, group: int, columns: Iterable[str] | None = None) -> list[ByteRange]:
        """Returns where the bytes of a row group's columns are: of top-level ones, or of all if None."""
        if group not in self._known:
            row_group = self._footer.row_group(group)
            self._known[group] = [_range(row_group.column(leaf)) for leaf in range(row_group.num_columns)]
        chunks = self._known[group]
        return chunks if columns is None else [chunks[leaf] for name in columns for leaf in self._leaves.get(name, ())]

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
