"""Reads and caches footers of data files: a data file never changes, so a later read need not parse them again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from filestore.files.parquet import ParquetReader
from filestore.files.writer import TableFiles
from filestore.parquet.checksums import Checksums
from filestore.parquet.pages import PageIndex
from filestore.parquet.ranges import Chunks

__all__ = ["Footer", "footer_of"]

_EXPANDED = 5  # with its page index a parsed footer takes about so many times its bytes in the file


@dataclass(frozen=True, eq=False)
class Footer:
    """A Parquet file's footer.

    Attributes:
        metadata: The row groups and their statistics.
        schema: The columns as an Arrow schema.
        chunks: Where the column chunks are.
        checksums: Those of the file's bytes; None if it has none, as files of before.
    """

    metadata: pq.FileMetaData
    schema: pa.Schema
    chunks: Chunks
    checksums: Checksums | None

    @classmethod
    def of(cls, parquet: ParquetReader) -> Footer:
        """Returns the footer of an open file."""
        return cls(parquet.footer, parquet.arrow_schema, parquet.chunks, parquet.checksums)

    @cached_property
    def types(self) -> Mapping[str, pa.DataType]:
        """The types of the top-level columns by name."""
        return {field.name: field.type for field in self.schema}

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """The position of each row group's first row, and at the end the number of rows."""
        groups = [self.metadata.row_group(i).num_rows for i in range(self.metadata.num_row_groups)]
        return np.cumsum([0, *groups])

    @cached_property
    def pages(self) -> PageIndex:
        """The places of the column chunks' pages."""
        return PageIndex(self.metadata)

    @cached_property
    def size(self) -> int:
        """The bytes of all columns, uncompressed but encoded."""
        return sum(self.metadata.row_group(i).total_byte_size for i in range(self.metadata.num_row_groups))

    @cached_property
    def _leaves(self) -> Mapping[str, int]:
        columns = self.metadata.schema
        return {columns.column(n).path: n for n in range(len(columns))}

    def leaf(self, column: str) -> int | None:
        """The index of a top-level column among the leaf columns; None if the file does not have it."""
        return self._leaves.get(column)


def footer_of(table: TableFiles, path: str) -> Footer:
    """The footer of a data file, from the table's cache if it was read before.

    Raises:
        NotFound: there is no such file.
        Corrupt: ``data-file``, ``checksum``.
    """
    whole = table.path(path)

    def read() -> tuple[Footer, int]:
        with ParquetReader(table.storage, whole) as parquet:
            footer = Footer.of(parquet)
        return footer, footer.metadata.serialized_size * _EXPANDED

    return read()[0] if table.cache is None else table.cache.decoded(("footer", whole), None, read)
