"""Reads the change data that a version names, as changes with their row kinds (FORMAT.md section 13)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from filestore.changelog.images import change_schema
from filestore.delta.actions import file_key, slot_of
from filestore.delta.log import Commit
from filestore.files.columns import FileColumns
from filestore.files.parquet import ParquetReader
from filestore.files.writer import TableFiles
from filestore.lazily import pl
from filestore.model.changelog import CHANGE_TYPE_COLUMN, ChangeType
from filestore.model.definition import TableDefinition
from filestore.model.files import ChangeFile
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.rows.casting import cast_rows
from filestore.rows.frames import frame_of

__all__ = ["change_files", "recorded_changes"]

_KINDS = {
    str(ChangeType.INSERT): str(RowKind.INSERT),
    str(ChangeType.UPDATE_BEFORE): str(RowKind.UPDATE_BEFORE),
    str(ChangeType.UPDATE_AFTER): str(RowKind.UPDATE_AFTER),
    str(ChangeType.DELETE): str(RowKind.DELETE),
}
_ORDER = "_order"


def change_files(commit: Commit, definition: TableDefinition) -> list[ChangeFile]:
    """Returns the change files of a version, by slot. Pure."""
    actions = (action["cdc"] for action in commit.actions if "cdc" in action)
    found = [ChangeFile(file_key(a), slot_of(a, definition.partition_by), a["size"]) for a in actions]
    return sorted(found, key=lambda file: (repr(file.slot), file.path))


@dataclass(frozen=True, slots=True)
class _Layout:
    """Chooses the columns of a change file to read, and converts its rows."""

    definition: TableDefinition

    def shaped(self, rows: pa.Table) -> pa.Table:
        """Replaces the change type by `KIND_COLUMN`, and sorts the changes: a row before the row that replaces it.

        As they arrived, rows of a key stay in the order of their arrival.
        """
        kinds = pl.Series(rows.column(CHANGE_TYPE_COLUMN)).replace_strict(_KINDS).cast(pl.String).to_arrow()
        schema = change_schema(self.definition)
        values = cast_rows(rows, pa.schema(list(schema)[:-1]))
        changes = values.append_column(KIND_COLUMN, kinds.cast(pa.string()))
        if not changes.num_rows:
            return changes
        keys = frame_of(changes.select(list(self.definition.primary_key)))
        second = np.zeros(changes.num_rows, dtype=np.bool_)
        if self.definition.changelog_producer.images:
            second = pl.Series(kinds).is_in([str(RowKind.INSERT), str(RowKind.UPDATE_AFTER)]).to_numpy()
        order = keys.with_columns(pl.Series(_ORDER, second)).select(
            pl.arg_sort_by([*self.definition.primary_key, _ORDER], maintain_order=True)
        )
        return changes.take(order.to_series().to_arrow())


def recorded_changes(table: TableFiles, file: ChangeFile) -> Iterator[pa.Table]:
    """Reads the changes of a change file with `KIND_COLUMN`, row group by row group.

    Args:
        table: The table in the version that names the file.
        file: One of `change_files`.

    Raises:
        NotFound: the file was removed, which may happen when the version has expired.
    """
    shape = _Layout(table.definition)
    names = [*table.definition.schema.names, CHANGE_TYPE_COLUMN]
    with ParquetReader(table.storage, table.path(file.path)) as parquet:
        columns = FileColumns.of(table.definition.schema, parquet)
        for group in range(parquet.footer.num_row_groups):
            rows = columns.read(parquet, group, names)
            if rows.num_rows:
                yield shape.shaped(rows)
