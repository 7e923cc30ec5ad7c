"""Writes change data to files in ``_change_data`` (FORMAT.md section 13)."""

from __future__ import annotations

import pyarrow as pa

from filestore import layout
from filestore.changelog.images import change_schema
from filestore.contexts import Discarding
from filestore.files.columns import stored_rows
from filestore.files.sink import ParquetSink
from filestore.files.writer import TableFiles, encoding_of
from filestore.model.files import ChangeFile, Slot

__all__ = ["ChangeWriter"]


class ChangeWriter(Discarding):
    """Writes the changes of one slot: a row group for each chunk, files of the target size, none without a change."""

    def __init__(self, table: TableFiles, slot: Slot) -> None:
        self._table = table
        self._slot = slot
        self._target_bytes: int = table.definition.options["target-file-size"]
        self._path = ""
        self._sink: ParquetSink | None = None
        self._done: list[ChangeFile] = []

    def write(self, rows: pa.Table) -> None:
        """Writes changes, with the columns of `filestore.changelog.images.change_schema`."""
        if rows.num_rows == 0:
            return
        rows = stored_rows(rows, self._table.definition.schema)
        sink = self._sink or self._open(rows.schema, **encoding_of(self._table.definition, rows))
        sink.write(rows)
        if sink.bytes_written >= self._target_bytes:
            self._roll()

    def begin(self) -> None:
        """Creates a file even if no change follows."""
        definition = self._table.definition
        none = stored_rows(change_schema(definition).empty_table(), definition.schema)
        self._open(none.schema, compression=definition.options["file.compression"])

    def finish(self) -> tuple[ChangeFile, ...]:
        """Closes the open file, makes all files durable, and returns them."""
        self._roll()
        for file in self._done:
            self._table.sync(file.path)
        return tuple(self._done)

    def _open(self, schema: pa.Schema, **how: object) -> ParquetSink:
        self._path = layout.change_path(self._table.ambient.new_id())
        self._sink = ParquetSink(self._table.storage, self._table.path(self._path), schema, **how)
        return self._sink

    def _roll(self) -> None:
        if self._sink is not None:
            self._done.append(ChangeFile(self._path, self._slot, self._sink.close()))
            self._sink = None

    def discard(self) -> None:
        """Removes the written files: no version names them."""
        if self._sink is not None:
            self._sink.discard()
        for file in self._done:
            self._table.storage.delete(self._table.path(file.path))
