"""One Parquet file under the pen: whoever began it closes it, or throws it away."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pyarrow.parquet as pq

from filestore.storage import Storage, writing

__all__ = ["ParquetSink"]


class ParquetSink:
    """Begins a file.

    Args:
        storage: Where.
        path: The whole path, which no file has yet.
        schema: The columns.
        how: How they are written: arguments of `pyarrow.parquet.ParquetWriter`.

    Raises:
        Unavailable: the storage refuses. Nothing stays; so it is with all methods, once `discard` is called.
    """

    def __init__(self, storage: Storage, path: str, schema: pa.Schema, **how: object) -> None:
        self._storage = storage
        self._path = path
        self._file = storage.open_write(path)
        self._writer: pq.ParquetWriter | None = None
        try:
            with writing(path):
                self._writer = pq.ParquetWriter(self._file, schema, **how)
        except BaseException:
            self.discard()
            raise

    @property
    def bytes_written(self) -> int:
        """How large the file is by now."""
        return int(self._file.tell())

    def write(self, rows: pa.Table, group_rows: int | None = None) -> None:
        """Writes rows, at least one, in row groups of that size; as one if None."""
        assert self._writer is not None
        with writing(self._path):
            self._writer.write_table(rows, row_group_size=group_rows or rows.num_rows)

    def close(self) -> int:
        """Ends the file, which is not durable yet; its size in bytes."""
        assert self._writer is not None
        with writing(self._path):
            self._writer.close()
            size = self.bytes_written
            self._file.close()
        return size

    def discard(self) -> None:
        """Closes the file, whatever state it is in, and removes it: the error that led here is the one to tell."""
        for thing in filter(None, (self._writer, self._file)):
            with contextlib.suppress(OSError, pa.ArrowException):
                thing.close()
        self._storage.delete(self._path)
