"""Columns as memory-mapped files without a name: other processes cannot see or damage them, and none has to be removed.

A file never has a name (`O_TMPFILE`), is closed once it is mapped, and the system frees it when the last Arrow buffer
over it is released: by eviction, at exit, or when the process is killed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO

import pyarrow as pa

__all__ = ["Mapped", "TooLarge", "map_columns"]


class TooLarge(Exception):
    """The columns are larger than the limit."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """A column, and its bytes on the disk."""

    column: pa.ChunkedArray
    size: int


def map_columns(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, folder: str | None = None, limit: int | None = None
) -> Mapping[str, Mapped]:
    """Writes each column to a file of its own and maps it, one chunk for each batch. It holds one batch in memory.

    Args:
        batches: The batches, all of that schema.
        schema: The columns.
        folder: The folder; the system's folder for temporary files if None.
        limit: The largest number of bytes of all columns.

    Raises:
        TooLarge: they take more.
        OSError: the disk is full, or fails.
    """
    with ExitStack() as open_files:
        columns = [_Column(field, open_files.enter_context(tempfile.TemporaryFile(dir=folder))) for field in schema]
        for batch in batches:
            for column, values in zip(columns, batch.columns, strict=True):
                column.write(values)
            if limit is not None and sum(column.size for column in columns) > limit:
                raise TooLarge(f"more than {limit} bytes")
        return {column.name: column.mapped() for column in columns}


class _Column:
    """A column that is being written, as an Arrow IPC file."""

    def __init__(self, field: pa.Field, file: IO[bytes]) -> None:
        self.name = field.name
        self._file = file
        self._schema = pa.schema([field])
        self._writer = pa.ipc.new_file(pa.PythonFile(file, "w"), self._schema)

    @property
    def size(self) -> int:
        return self._file.tell()

    def write(self, values: pa.Array) -> None:
        self._writer.write_batch(pa.record_batch([values], schema=self._schema))

    def mapped(self) -> Mapped:
        self._writer.close()
        self._file.flush()
        # the file has no name, so it is opened by its descriptor; once mapped it need not be open
        with pa.memory_map(f"/dev/fd/{self._file.fileno()}") as source:
            return Mapped(pa.ipc.open_file(source).read_all().column(0), self.size)
