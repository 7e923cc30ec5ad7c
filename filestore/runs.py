"""Runs under ``_runs``: rows of a write in progress, which no Delta reader may see (FORMAT.md section 11)."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from filestore import layout
from filestore.model.files import Slot
from filestore.storage import writing
from filestore.writer import TableFiles, abandon

__all__ = ["DeletedKeysWriter"]


class DeletedKeysWriter:
    """Keeps the keys of delete rows (with their sequence) until the commit: it may have to look them up again."""

    def __init__(self, table: TableFiles, slot: Slot) -> None:
        definition = table.definition
        names = dict.fromkeys((*definition.sort_key, *filter(None, [definition.sequence_field])))
        self._table = table
        self._path = layout.run_path(slot.partition, slot.bucket, table.ambient.new_id())
        self._schema = pa.schema([definition.schema.to_arrow().field(n).with_nullable(True) for n in names])
        self._writer: pq.ParquetWriter | None = None
        self._sink: pa.NativeFile | None = None

    def write(self, rows: pa.Table) -> None:
        """Adds delete rows, in key order."""
        if rows.num_rows == 0:
            return
        with writing(self._table.path(self._path)):
            if self._writer is None:
                self._sink = self._table.storage.open_write(self._table.path(self._path))
                self._writer = pq.ParquetWriter(self._sink, self._schema)
            self._writer.write_table(rows.select(self._schema.names).cast(self._schema), row_group_size=rows.num_rows)

    def finish(self) -> str | None:
        """Closes the run; its relative path, or None without deletes."""
        if self._writer is None or self._sink is None:
            return None
        with writing(self._table.path(self._path)):
            self._writer.close()
            self._sink.close()
        return self._path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """On an error removes the run."""
        if error is not None and self._sink is not None:
            abandon(self._writer, self._sink)
            self._table.storage.delete(self._table.path(self._path))
