"""Writes and reads small Parquet files as a whole, in memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from filestore.parquet.checksums import SummedFile, read_checksums
from filestore.storage.interface import ByteRange

__all__ = ["check_parquet", "decoded_parquet", "parquet_bytes", "parquet_rows"]


def parquet_bytes(rows: pa.Table, more: Iterable[pa.Table] = (), *, dictionaries: Sequence[str] | bool = True) -> bytes:
    """Returns rows as a Parquet file with checksums.

    Args:
        rows: The rows.
        more: Further rows of the same schema; each of these tables becomes a row group.
        dictionaries: The columns that have a dictionary.
    """
    target = pa.BufferOutputStream()
    summed = SummedFile(target)
    settings = {"compression": "zstd", "use_dictionary": dictionaries, "write_page_checksum": True}
    with pq.ParquetWriter(pa.PythonFile(summed, "w"), rows.schema, **settings) as writer:
        for table in itertools.chain([rows], more):
            writer.write_table(table)
        summed.hold()
    summed.finish()
    return bytes(target.getvalue())


def parquet_rows(data: bytes, path: str) -> pa.Table:
    """Reads the rows of a file, which are compared with its checksums if it has them.

    Args:
        data: The file.
        path: Its path, for errors.

    Raises:
        Corrupt: ``checksum``.
        pyarrow.ArrowException, OSError: it is no Parquet file, or a damaged one without checksums.
    """
    return decoded_parquet(data, summed=check_parquet(data, path))


def decoded_parquet(data: bytes, *, summed: bool) -> pa.Table:
    """Returns the rows of a file that `check_parquet` has checked: it says whether there are checksums of ours.

    Raises:
        pyarrow.ArrowException, OSError: as `parquet_rows`.
    """
    return pq.read_table(pa.BufferReader(data), page_checksum_verification=not summed)


def check_parquet(data: bytes, path: str) -> bool:
    """Checks all bytes of a file; returns whether it has checksums. For errors see `parquet_rows`."""
    source = _InMemory(data)
    sums = read_checksums(source, path)
    if sums is not None:
        sums.check(source.read, [(0, sums.starts[-1])])
    return sums is not None


class _InMemory:
    """Bytes that are read as those of a file."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, start: int, end: int) -> bytes:
        """Returns some of the bytes."""
        return self._data[start:end]

    def fetch(self, ranges: Iterable[ByteRange]) -> None:
        """Does nothing."""
