"""Change data to files under ``_change_data`` (FORMAT.md section 13)."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from filestore import layout
from filestore.files.columns import stored_rows
from filestore.files.writer import TableFiles, abandon, encoding_of
from filestore.model.files import ChangeFile, Slot
from filestore.storage import writing

__all__ = ["ChangeWriter"]


class ChangeWriter:
    """Writes the changes of one slot: a row group a chunk, a new file at the target size, none without a change."""

    def __init__(self, table: TableFiles, slot: Slot) -> None:
        self._table = table
        self._slot = slot
        self._target_bytes: int = table.definition.options["target-file-size"]
        self._path: str | None = None
        self._sink: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._done: list[ChangeFile] = []

    def write(self, rows: pa.Table) -> None:
        """Takes changes, with the columns of `filestore.changelog.images.change_schema`."""
        if rows.num_rows == 0:
            return
        rows = stored_rows(rows, self._table.definition.schema)
        if self._path is None:
            self._path = layout.change_path(self._table.ambient.new_id())
        with writing(self._path):
            if self._writer is None or self._sink is None:
                self._sink = self._table.storage.open_write(self._table.path(self._path))
                self._writer = pq.ParquetWriter(self._sink, rows.schema, **encoding_of(self._table.definition, rows))
            self._writer.write_table(rows, row_group_size=rows.num_rows)
            full = self._sink.tell() >= self._target_bytes
        if full:
            self._roll()

    def finish(self) -> tuple[ChangeFile, ...]:
        """Closes what is open, and makes everything durable."""
        self._roll()
        for file in self._done:
            self._table.storage.sync(self._table.path(file.path))
        return tuple(self._done)

    def _roll(self) -> None:
        if self._path is None or self._writer is None or self._sink is None:
            return
        with writing(self._path):
            self._writer.close()
            size = int(self._sink.tell())
            self._sink.close()
        self._done.append(ChangeFile(self._path, self._slot, size))
        self._path = self._writer = self._sink = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """On an error removes what was written: nothing refers to it."""
        if error is None:
            return
        abandon(self._writer, self._sink)
        for path in filter(None, (self._path, *(file.path for file in self._done))):
            self._table.storage.delete(self._table.path(path))
