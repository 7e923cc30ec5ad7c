"""Opens data files and reads their footers and row groups. Damaged bytes raise `Corrupt`."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq

from filestore.contexts import Closing
from filestore.decoding import decoding
from filestore.files.bloom import BloomFilter
from filestore.storage.interface import ByteRange, ReadableFile, Storage
from filestore.storage.refusals import no_file

__all__ = ["ParquetReader", "column_ranges", "fetch_columns", "footer_range", "readable"]

_FETCHED_BYTES = 8 << 20
_FOOTER_END = 8  # the footer's length and a magic number (Parquet format, "File format")


class ParquetReader(Closing):
    """Reads one Parquet file by row group.

    Args:
        storage: The file's storage.
        path: Its whole path.

    Raises:
        NotFound: there is no such file.
        Corrupt: ``data-file``; it is raised by the first use of the footer, and by reading.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        self._path = path
        self._is_local = storage.local_path(path) is not None
        self._source = storage.open_read(path)
        self._open = ExitStack()
        self._arrow_schema: pa.Schema | None = None  # kept because pyarrow converts the schema at each access

    @cached_property
    def _file(self) -> pq.ParquetFile:
        with readable(self._path):
            needed = () if self._is_local else _footer_ranges(self._source)
            return pq.ParquetFile(self._open.enter_context(self._source.part(needed)).file)

    @property
    def size(self) -> int:
        """The size of the file in bytes, of a damaged one, too."""
        return self._source.size

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
        names = None if columns is None else list(columns)
        with readable(self._path):
            if self._is_local:
                return self._file.read_row_group(group, names, use_threads=False)
            with self._source.part(column_ranges(self.footer, group, columns)) as part:
                return pq.ParquetFile(part.file, metadata=self.footer).read_row_group(group, names, use_threads=False)

    def fetch(self, groups: Iterable[int], columns: Sequence[str]) -> None:
        """Fetches columns of row groups side by side that are read next, unless they are large or on this machine."""
        if not self._is_local:
            fetch_columns(self._source, self.footer, groups, columns)

    def bloom_filter(self, group: int, leaf: int) -> BloomFilter | None:
        """Reads the Bloom filter of a leaf column of a row group, if it has one of a known kind."""
        chunk = self.footer.row_group(group).column(leaf)
        if chunk.bloom_filter_offset is None or chunk.bloom_filter_length is None:
            return None
        start, length = chunk.bloom_filter_offset, chunk.bloom_filter_length
        with readable(self._path), self._source.part([(start, start + length)]) as part:
            part.file.seek(start)
            return BloomFilter.parse(part.file.read_buffer(length))

    def close(self) -> None:
        """Closes the file."""
        self._open.close()
        self._source.close()


def column_ranges(footer: pq.FileMetaData, group: int, columns: Iterable[str] | None = None) -> list[ByteRange]:
    """Returns where the bytes of a row group's columns are in the file: all columns if None. Pure."""
    wanted = None if columns is None else set(columns)
    row_group = footer.row_group(group)
    chunks = (row_group.column(number) for number in range(row_group.num_columns))
    return [
        (start := _start(chunk), start + chunk.total_compressed_size)
        for chunk in chunks
        if wanted is None or _top_level(chunk.path_in_schema, wanted)
    ]


def footer_range(footer: pq.FileMetaData, size: int) -> ByteRange:
    """Returns where the footer of a file of that size is. Pure."""
    return size - footer.serialized_size - _FOOTER_END, size


def _start(chunk: pq.ColumnChunkMetaData) -> int:
    dictionary = chunk.dictionary_page_offset if chunk.has_dictionary_page else None
    return int(min(filter(None, (dictionary, chunk.data_page_offset))))


def _top_level(path: str, wanted: Container[str]) -> bool:
    """Returns whether a leaf column belongs to one of the top-level columns. A name may contain dots itself."""
    parts = path.split(".")
    return any(".".join(parts[:length]) in wanted for length in range(1, len(parts) + 1))


def fetch_columns(source: ReadableFile, footer: pq.FileMetaData, groups: Iterable[int], names: Sequence[str]) -> None:
    """Fetches columns of row groups of an open file side by side, for readers that follow; not more than a few MB."""
    ranges = [found for group in groups for found in column_ranges(footer, group, names)]
    if sum(end - start for start, end in ranges) <= _FETCHED_BYTES:
        source.fetch(ranges)


def _footer_ranges(source: ReadableFile) -> list[ByteRange]:
    """Returns where a Parquet file's footer is, which may be longer than the end that every part has."""
    if source.size < _FOOTER_END:
        return []
    end = source.size - _FOOTER_END
    length = int.from_bytes(source.read(end, end + 4), "little")
    return [(max(0, end - length), source.size)]


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Translates errors of decoding a file: damaged bytes raise `Corrupt`, and a missing file `NotFound`."""
    with decoding(f"the Parquet file {path}", code="data-file"):
        try:
            yield
        except FileNotFoundError as error:  # possible if the footer was cached
            raise no_file(path) from error
