"""Opens data files and reads their footers and row groups. Damaged bytes raise `Corrupt`.

What is read is compared with the file's checksums before it is decoded; of files without those only with Parquet's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq

from filestore.contexts import Closing
from filestore.decoding import decoding
from filestore.errors import NotFound
from filestore.files.bloom import BloomFilter
from filestore.parquet.checksums import Checksums, read_checksums
from filestore.parquet.ranges import FOOTER_END, Chunks
from filestore.storage.interface import ByteRange, ReadableFile, Storage
from filestore.storage.refusals import NO_FILE

__all__ = ["ParquetReader", "fetch_few", "readable"]

_FETCHED_BYTES = 8 << 20


class ParquetReader(Closing):
    """Reads one Parquet file by row group.

    Args:
        storage: The file's storage.
        path: Its whole path.

    Raises:
        NotFound: there is no such file.
        Corrupt: ``data-file``, ``checksum``: they are raised by the first use of the footer, and by reading.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        self._path = path
        self._is_local = storage.local_path(path) is not None
        with readable(path):
            self._source = storage.open_read(path)
        self._open = ExitStack()
        self._arrow_schema: pa.Schema | None = None  # kept because pyarrow converts the schema at each access

    @cached_property
    def checksums(self) -> Checksums | None:
        """The checksums of the file's bytes; None if it has none, as files of before."""
        with readable(self._path):  # stores of objects are asked here for the first time
            return read_checksums(self._source, self._path)

    @cached_property
    def _file(self) -> pq.ParquetFile:
        checked = self.checksums is not None
        with readable(self._path):
            needed = () if self._is_local else _footer_ranges(self._source)
            file = self._open.enter_context(self._source.part(needed)).file
            return pq.ParquetFile(file, page_checksum_verification=not checked)

    @property
    def size(self) -> int:
        """The size of the file in bytes, of a damaged one, too."""
        return self._source.size

    @property
    def footer(self) -> pq.FileMetaData:
        """The schema, the row groups and their statistics."""
        return self._file.metadata

    @cached_property
    def chunks(self) -> Chunks:
        """The places of the column chunks."""
        return Chunks(self.footer)

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
        ranges = [self.chunks.whole(group)] if columns is None else self.chunks.ranges(group, columns)
        with readable(self._path), self._part(ranges) as part:
            if self._is_local:
                return self._file.read_row_group(group, names, use_threads=False)
            file = pq.ParquetFile(part, metadata=self.footer, page_checksum_verification=self.checksums is None)
            return file.read_row_group(group, names, use_threads=False)

    @contextmanager
    def _part(self, ranges: Sequence[ByteRange]) -> Iterator[pa.NativeFile]:
        """Opens a part of the file with these bytes, which were checked."""
        sums = self.checksums
        pieces = ranges if sums is None else sums.pieces(ranges)
        with self._source.part(pieces) as part:
            if sums is not None:
                sums.check(part.view, pieces)
            yield part.file

    def damaged(self) -> list[ByteRange]:
        """Checks every byte of the file, and returns those parts that are damaged; none without checksums."""
        if self.checksums is None:
            return []
        with self._source.part([(0, self.size)]) as part:
            return list(self.checksums.damaged(part.view))

    def fetch(self, groups: Iterable[int], columns: Sequence[str]) -> None:
        """Fetches columns of row groups side by side that are read next, unless they are large or on this machine."""
        if not self._is_local:
            fetch_few(self._source, [found for group in groups for found in self.chunks.ranges(group, columns)])

    def bloom_filter(self, group: int, leaf: int) -> BloomFilter | None:
        """Reads the Bloom filter of a leaf column of a row group, if it has one of a known kind."""
        chunk = self.footer.row_group(group).column(leaf)
        if chunk.bloom_filter_offset is None or chunk.bloom_filter_length is None:
            return None
        start, length = chunk.bloom_filter_offset, chunk.bloom_filter_length
        with readable(self._path), self._part([(start, start + length)]) as part:
            part.seek(start)
            return BloomFilter.parse(part.read_buffer(length))

    def close(self) -> None:
        """Closes the file."""
        self._open.close()
        self._source.close()


def fetch_few(source: ReadableFile, ranges: Sequence[ByteRange]) -> None:
    """Fetches bytes of an open file side by side, for readers that follow; not more than a few MB."""
    if sum(end - start for start, end in ranges) <= _FETCHED_BYTES:
        source.fetch(ranges)


def _footer_ranges(source: ReadableFile) -> list[ByteRange]:
    """Returns where a Parquet file's footer is, which may be longer than the end that every part has."""
    if source.size < FOOTER_END:
        return []
    end = source.size - FOOTER_END
    length = int.from_bytes(source.read(end, end + 4), "little")
    return [(max(0, end - length), source.size)]


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Translates errors of decoding a file: damaged bytes raise `Corrupt`, and a missing file `NotFound`."""
    with decoding(f"the Parquet file {path}", code="data-file"):
        try:
            yield
        except FileNotFoundError as error:  # possible if the footer was cached
            raise _missing(path) from error
        except NotFound as error:
            if error.code != NO_FILE:
                raise
            raise _missing(path) from error


def _missing(path: str) -> NotFound:
    return NotFound(
        f"file {path} does not exist: if its version has expired, read a newer one; if not, the file was lost: restore "
        "it from a backup, or roll the table back to a version before it",
        code=NO_FILE,
    )
