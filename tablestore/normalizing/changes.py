"""What a batch of upserts changed, read from the version of the state that took it: as often as it is asked for."""

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
from filestore.rows.reshape import reshaped
from filestore.table import FileStore

__all__ = ["NormalizedBatch", "normalized_schema"]


def normalized_schema(schema: Schema) -> pa.Schema:
    """The columns of changes: those of the rows, all nullable, and `KIND_COLUMN`."""
    columns = (field.with_nullable(True) for field in schema.to_arrow())
    return pa.schema([*columns, pa.field(KIND_COLUMN, pa.string(), nullable=False)])


@dataclass(frozen=True, slots=True)
class NormalizedBatch:
    """The complete changes that a batch of upserts made. Going over it reads them, each time anew.

    Attributes:
        number: 0 for a state's first batch, and on by one. The same batch has the same number whenever it is applied,
            so a table takes it once with ``write(…, app=(name, number))``.
        positions: Where the batch ended.
        version: The state's version that has it.
    """

    number: int
    positions: Mapping[str, int]
    version: int
    _state: FileStore
    _schema: Schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Arrow batches with ``_kind``, a key's ``-U`` right before its ``+U``. Memory: two row groups.

        Raises:
            NotFound: ``snapshot-expired``: so many batches came since that this one was let go.
        """
        schema = normalized_schema(self._schema)
        with self._state.reading(self.version):
            base = self._state.state(self.version)
            for rows in _changes(self._state.files(base), self._state.required(self.version)):
                yield from reshaped(rows, base.definition.schema, self._schema).cast(schema).to_batches()


def _changes(table: TableFiles, commit: Commit) -> Iterator[pa.Table]:
    """What is written down; without that, the rows of new files came to an empty table (FORMAT.md section 13)."""
    definition = table.definition
    if files := change_files(commit, definition):
        for file in files:
            yield from recorded_changes(table, file)
        return
    for action in (action["add"] for action in commit.actions if "add" in action):
        for rows in read_file(table, data_file(action, definition.partition_by)):
            yield rows.append_column(KIND_COLUMN, pa.repeat(str(RowKind.INSERT), rows.num_rows))
