"""Writes runs of deleted keys under ``_runs``, which no Delta reader sees (FORMAT.md section 11.4)."""

from __future__ import annotations

from functools import cached_property

import pyarrow as pa

from filestore.model.definition import TableDefinition
from filestore.model.files import Tombstones
from filestore.rows.casting import cast_rows
from filestore.writing.run_writer import RunWriter

__all__ = ["DELETED_COLUMN", "DeletedKeysWriter", "tombstone_schema"]

DELETED_COLUMN = "_deleted"
"""The time of the delete, in milliseconds since 1970."""


def tombstone_schema(definition: TableDefinition) -> pa.Schema:
    """Returns a tombstone run's columns: the sort key, the sequence field if there is one, and `DELETED_COLUMN`."""
    names = dict.fromkeys((*definition.sort_key, *filter(None, [definition.sequence_field])))
    columns = [definition.schema.to_arrow().field(name).with_nullable(True) for name in names]
    return pa.schema([*columns, pa.field(DELETED_COLUMN, pa.int64(), nullable=False)])


class DeletedKeysWriter(RunWriter):
    """Writes the keys of delete rows, with their sequences and the time.

    After a lost race the commit looks them up again; a table with a sequence field remembers them for longer.
    """

    @cached_property
    def _now_ms(self) -> int:
        """The time of the first delete."""
        return self._table.ambient.now_ms()

    def write(self, rows: pa.Table) -> None:
        """Adds delete rows, in key order; rows that already have the time of their delete keep it."""
        if rows.num_rows == 0:
            return
        if DELETED_COLUMN not in rows.column_names:
            rows = rows.append_column(DELETED_COLUMN, pa.repeat(pa.scalar(self._now_ms, pa.int64()), rows.num_rows))
        self._add(cast_rows(rows, tombstone_schema(self._table.definition)))

    def finish(self) -> Tombstones | None:
        """Closes the run and makes it durable; returns None if there were no deletes."""
        size = self._closed()
        if size is None:
            return None
        first, last = self._bounds
        return Tombstones(
            path=self._path,
            slot=self._slot,
            size=size,
            rows=self._rows,
            modified_ms=self._now_ms,
            stats="{}",
            min_key=first,
            max_key=last,
        )
