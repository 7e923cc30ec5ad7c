"""Writes a file under ``_runs``, which no Delta reader sees."""

from __future__ import annotations

import pyarrow as pa

from filestore import layout
from filestore.contexts import Discarding
from filestore.files.sink import ParquetSink
from filestore.files.writer import TableFiles
from filestore.model.files import Slot
from filestore.rows.keys import Key, encode_key, key_at

__all__ = ["RunWriter"]


class RunWriter(Discarding):
    """Writes rows in key order to one file of a slot, which its first row creates, and removes it after an error."""

    def __init__(self, table: TableFiles, slot: Slot) -> None:
        self._table = table
        self._slot = slot
        self._path = ""
        self._sink: ParquetSink | None = None
        self._rows = 0
        self._first: Key = ()
        self._last: Key = ()

    def _add(self, rows: pa.Table, group_rows: int | None = None, **how: object) -> None:
        """Writes rows; a new file gets their columns, and `how` for `ParquetSink`."""
        keys = self._table.definition.sort_key
        if self._sink is None:
            self._first = key_at(rows, keys, 0)
            self._path = layout.run_path(self._slot.partition, self._slot.bucket, self._table.ambient.new_id())
            self._sink = ParquetSink(self._table.storage, self._table.path(self._path), rows.schema, **how)
        self._sink.write(rows, group_rows)
        self._last = key_at(rows, keys, rows.num_rows - 1)
        self._rows += rows.num_rows

    def _closed(self) -> int | None:
        """Closes the file and makes it durable; returns its size, or None if there were no rows."""
        if self._sink is None:
            return None
        size = self._sink.close()
        self._table.sync(self._path)
        return size

    @property
    def _bounds(self) -> tuple[str, str]:
        """The first and the last key as texts."""
        return encode_key(self._first), encode_key(self._last)

    def discard(self) -> None:
        """Removes the file."""
        if self._sink is not None:
            self._sink.discard()
