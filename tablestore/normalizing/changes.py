"""Reads the changes of a batch of upserts from the state's version that has the batch, as often as needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from filestore.delta.actions import data_file
from filestore.delta.log import Commit
from filestore.files.live_rows import read_file
from filestore.files.writer import TableFiles
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.model.schema import Schema
from filestore.reading.change_files import change_files, recorded_changes
from filestore.rows.casting import cast_rows
from filestore.rows.reshape import reshaped
from filestore.table import FileStore

__all__ = ["NormalizedBatch", "normalized_schema"]


def normalized_schema(schema: Schema) -> pa.Schema:
    """The columns of changes: those of the rows, all nullable, and `KIND_COLUMN`."""
    columns = (field.with_nullable(True) for field in schema.to_arrow())
    return pa.schema([*columns, pa.field(KIND_COLUMN, pa.string(), nullable=False)])


@dataclass(frozen=True, slots=True)
class NormalizedBatch:
    """The complete changes of a batch of upserts. Each iteration reads them again.

    Attributes:
        number: The batches of a state are numbered from 0. A batch has the same number whenever it is applied, so a
            table writes it once with ``write(…, app=(name, number))``.
        positions: The positions at the batch's end.
        version: The version of the state with the batch.
    """

    number: int
    positions: Mapping[str, int]
    version: int
    _state: FileStore
    _schema: Schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yields Arrow batches with ``_kind``, each -U right before its +U. It takes the memory of two row groups.

        Raises:
            NotFound: ``snapshot-expired``: after many more batches this one has been removed.
        """
        schema = normalized_schema(self._schema)
        with self._state.reading(self.version):
            base = self._state.state(self.version)
            for rows in _changes(self._state.table_files(base), self._state.required(self.version)):
                changes = reshaped(rows, base.definition.schema, self._schema)
                yield from cast_rows(changes, schema).to_batches()


def _changes(table: TableFiles, commit: Commit) -> Iterator[pa.Table]:
    """The version's change data; without any, the rows of its new files are inserts (FORMAT.md section 13)."""
    definition = table.definition
    if files := change_files(commit, definition):
        for file in files:
            yield from recorded_changes(table, file)
        return
    for action in (action["add"] for action in commit.actions if "add" in action):
        for rows in read_file(table, data_file(action, definition.partition_by)):
            yield rows.append_column(KIND_COLUMN, pa.repeat(str(RowKind.INSERT), rows.num_rows))
