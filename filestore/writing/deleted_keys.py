"""Writes runs of deleted keys under ``_runs``, which no Delta reader sees (FORMAT.md section 11.4)."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import pyarrow as pa

from filestore import layout
from filestore.files.sink import ParquetSink
from filestore.files.writer import TableFiles
from filestore.model.definition import TableDefinition
from filestore.model.files import Slot, Tombstones
from filestore.rows.keys import Key, encode_key, key_at

__all__ = ["DELETED_COLUMN", "DeletedKeysWriter", "tombstone_schema"]

DELETED_COLUMN = "_deleted"
"""The time of the delete, in milliseconds since 1970."""


def tombstone_schema(definition: TableDefinition) -> pa.Schema:
    """Returns a tombstone run's columns: the sort key, the sequence field if there is one, and `DELETED_COLUMN`."""
    names = dict.fromkeys((*definition.sort_key, *filter(None, [definition.sequence_field])))
    columns = [definition.schema.to_arrow().field(name).with_nullable(True) for name in names]
    return pa.schema([*columns, pa.field(DELETED_COLUMN, pa.int64(), nullable=False)])


class DeletedKeysWriter:
    """Writes the keys of delete rows, with their sequences and the time.

    After a lost race the commit looks them up again; a table with a sequence field remembers them for longer.
    """

    def __init__(self, table: TableFiles, slot: Slot) -> None:
        self._table = table
        self._path = layout.run_path(slot.partition, slot.bucket, table.ambient.new_id())
        self._slot = slot
        self._schema = tombstone_schema(table.definition)
        self._now_ms = table.ambient.now_ms()
        self._sink: ParquetSink | None = None
        self._rows = 0
        self._first: Key = ()
        self._last: Key = ()

    def write(self, rows: pa.Table) -> None:
        """Adds delete rows, in key order; rows that already have the time of their delete keep it."""
        if rows.num_rows == 0:
            return
        if DELETED_COLUMN not in rows.column_names:
            rows = rows.append_column(DELETED_COLUMN, pa.repeat(pa.scalar(self._now_ms, pa.int64()), rows.num_rows))
        keys = self._table.definition.sort_key
        self._first = self._first or key_at(rows, keys, 0)
        self._last = key_at(rows, keys, rows.num_rows - 1)
        self._rows += rows.num_rows
        if self._sink is None:
            self._sink = ParquetSink(self._table.storage, self._table.path(self._path), self._schema)
        self._sink.write(rows.select(self._schema.names).cast(self._schema))

    def finish(self) -> Tombstones | None:
        """Closes the run and makes it durable; returns None if there were no deletes."""
        if self._sink is None:
            return None
        size = self._sink.close()
        self._table.storage.sync(self._table.path(self._path))
        return Tombstones(
            path=self._path,
            slot=self._slot,
            size=size,
            rows=self._rows,
            modified_ms=self._now_ms,
            stats="{}",
            min_key=encode_key(self._first),
            max_key=encode_key(self._last),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Removes the run after an error."""
        if error is not None and self._sink is not None:
            self._sink.discard()
