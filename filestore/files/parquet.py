"""Opens data files and reads their footers and row groups. Damaged bytes raise `Corrupt`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from filestore.contexts import Closing
from filestore.errors import Corrupt, NotFound
from filestore.files.bloom import BloomFilter
from filestore.storage import Storage

__all__ = ["ParquetReader", "readable"]


class ParquetReader(Closing):
    """Reads one Parquet file by row group.

    Args:
        storage: The file's storage.
        path: Its whole path.

    Raises:
        NotFound: there is no such file.
        Corrupt: ``data-file``; reading may raise it, too.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        self._path = path
        self._source = storage.open_read(path)
        with readable(path):
            self._file = pq.ParquetFile(self._source)
        self._arrow_schema: pa.Schema | None = None  # kept because pyarrow converts the schema at each access

    @property
    def footer(self) -> pq.FileMetaData:
        """The schema, the row groups and their statistics."""
        return self._file.metadata

    @property
    def schema(self) -> pq.ParquetSchema:
        """The leaf columns."""
        return self._file.schema

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns as an Arrow schema."""
        if self._arrow_schema is None:
            self._arrow_schema = self._file.schema_arrow
        return self._arrow_schema

    @property
    def group_rows(self) -> list[int]:
        """The number of rows of each row group."""
        return [self.footer.row_group(i).num_rows for i in range(self.footer.num_row_groups)]

    def leaf(self, column: str) -> int:
        """The index of a top-level column among the leaf columns; a STRUCT may have a field of the same name."""
        return next(n for n in range(len(self.schema)) if self.schema.column(n).path == column)

    def read(self, group: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Reads a row group; all columns if None."""
        with readable(self._path):
            return self._file.read_row_group(group, None if columns is None else list(columns), use_threads=False)

    def bloom_filter(self, group: int, leaf: int) -> BloomFilter | None:
        """Reads the Bloom filter of a leaf column of a row group, if it has one of a known kind."""
        chunk = self.footer.row_group(group).column(leaf)
        if chunk.bloom_filter_offset is None or chunk.bloom_filter_length is None:
            return None
        with readable(self._path):
            self._source.seek(chunk.bloom_filter_offset)
            return BloomFilter.parse(self._source.read_buffer(chunk.bloom_filter_length))

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
        self._source.close()


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Translates errors of decoding a file: damaged bytes raise `Corrupt`, and a missing file `NotFound`."""
    try:
        yield
    except FileNotFoundError as error:  # possible if the footer was cached
        raise NotFound(f"file {path} does not exist", code="file-not-found") from error
    except (pa.ArrowException, pl.exceptions.PolarsError, OSError) as error:
        raise Corrupt(
            f"{path} cannot be read as Parquet ({error}): restore the file, or the table to an earlier state; "
            "`tablestore doctor` lists all that is damaged",
            code="data-file",
        ) from error
