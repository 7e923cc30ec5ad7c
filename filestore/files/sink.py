"""A Parquet file that is being written, with checksums: its owner must close or discard it.

All Parquet files of tables are written here, so that rule 8 of FORMAT.md section 7 holds for each of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from filestore.contexts import Discarding
from filestore.errors import TableStoreError, Unavailable
from filestore.files.leaves import skippable
from filestore.parquet.checksums import SummedFile
from filestore.storage.interface import Storage
from filestore.storage.local import writing

__all__ = ["ParquetSink"]


class ParquetSink(Discarding):
    """Creates a file and writes row groups into it.

    Whatever its owner wants, FLOAT and DOUBLE columns get no statistics and no dictionary (decision 115).

    Args:
        storage: The storage of the file.
        path: The whole path, at which no file exists yet.
        schema: The columns.
        how: Arguments of `pyarrow.parquet.ParquetWriter`.

    Raises:
        Unavailable: the storage refuses. The file is removed; after an error of a method call `discard` for that.
    """

    def __init__(self, storage: Storage, path: str, schema: pa.Schema, **how: object) -> None:
        self._storage = storage
        self._path = path
        try:
            self._file = storage.open_write(path)
        except Unavailable:
            with contextlib.suppress(Unavailable):  # the storage may have created it all the same
                storage.delete(path)
            raise
        self._summed = SummedFile(self._file)
        self._writer: pq.ParquetWriter | None = None
        try:
            with writing(path):
                sink = pa.PythonFile(self._summed, "w")
                self._writer = pq.ParquetWriter(sink, schema, write_page_checksum=True, **how | _sound(schema, how))
        except BaseException:
            self.discard()
            raise

    @property
    def bytes_written(self) -> int:
        """The bytes written so far."""
        return self._summed.tell()

    def write(self, rows: pa.Table, group_rows: int | None = None) -> None:
        """Writes rows, at least one, as row groups of that size; as one if None."""
        assert self._writer is not None
        with writing(self._path):
            self._writer.write_table(rows, row_group_size=group_rows or rows.num_rows)

    def close(self) -> int:
        """Finishes the file, which is not durable yet; returns its size in bytes."""
        assert self._writer is not None
        with writing(self._path):
            self._summed.hold()
            self._writer.close()
            self._summed.finish()
            size = int(self._file.tell())
            self._file.close()
        return size

    def discard(self) -> None:
        """Closes and removes the file in any state. It ignores errors: the caller reports the one that led here.

        A file that cannot be removed is an orphan.
        """
        for thing in filter(None, (self._writer, self._file)):
            with contextlib.suppress(OSError, pa.ArrowException, TableStoreError):
                thing.close()
        with contextlib.suppress(Unavailable):
            self._storage.delete(self._path)


def _sound(schema: pa.Schema, how: Mapping[str, object]) -> dict[str, object]:
    """Returns what is left of the wanted statistics and dictionaries: those that hide no row, whoever reads them."""
    sound = list(skippable(schema))
    wanted = how.get("use_dictionary", True)
    chosen = wanted if isinstance(wanted, list) else sound if wanted else []
    return {"write_statistics": sound, "use_dictionary": [name for name in chosen if name in sound] or False}
