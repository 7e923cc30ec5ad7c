"""The change data of a fold, as rows (FORMAT.md section 13). Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filestore.lazily import pl
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.model.changelog import CHANGE_TYPE_COLUMN, ChangelogProducer, ChangeType
from filestore.model.definition import TableDefinition
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.rows.equality import same_rows
from filestore.rows.fitting import fitted
from filestore.rows.frames import arrow_table
from filestore.rows.keys import changes

__all__ = [
    "StoredMatches",
    "as_log_changes",
    "change_schema",
    "changes_as_written",
    "images",
    "in_arrival_order",
    "log_changes",
    "recorded",
    "unchanged",
]

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]

_TYPES = {
    RowKind.INSERT: ChangeType.INSERT,
    RowKind.UPDATE_BEFORE: ChangeType.UPDATE_BEFORE,
    RowKind.UPDATE_AFTER: ChangeType.UPDATE_AFTER,
    RowKind.DELETE: ChangeType.DELETE,
}
_KINDS = {str(change): str(kind) for kind, change in _TYPES.items()}


def recorded(definition: TableDefinition, *, empty: bool, overwrite: bool) -> ChangelogProducer:
    """Decides how a write produces its change data; `ChangelogProducer.NONE` where readers derive it from the files.

    Args:
        definition: The table's definition.
        empty: Whether the table has no row and no tombstone, so that every row that is added is an insert.
        overwrite: Whether the rows replace the table's: then the change data is computed when all are written
            (`filestore.operations.replaced_rows`).
    """
    producer = definition.changelog_producer
    if overwrite or not definition.primary_key or (empty and producer.images):
        return ChangelogProducer.NONE
    return producer


def change_schema(definition: TableDefinition) -> pa.Schema:
    """The columns of a change file: all nullable, as older versions wrote them."""
    fields = [field.with_nullable(True) for field in definition.schema.to_arrow()]
    return pa.schema([*fields, pa.field(CHANGE_TYPE_COLUMN, pa.string(), nullable=False)])


def changes_as_written(rows: pa.Table, definition: TableDefinition) -> pa.Table:
    """Converts rows to changes, in their order. Rows without a kind are inserts."""
    types = pa.repeat(str(ChangeType.INSERT), rows.num_rows)
    if KIND_COLUMN in rows.column_names:
        named = {str(kind): str(change) for kind, change in _TYPES.items()}
        types = pl.Series(rows.column(KIND_COLUMN)).replace_strict(named).to_arrow()
    return _typed(rows, types, change_schema(definition))


def in_arrival_order(rows: pa.Table, definition: TableDefinition) -> pa.Table:
    """Sorts a chunk's rows by key, and rows of the same key by arrival."""
    if ORDINAL_COLUMN not in rows.column_names or not rows.num_rows:
        return rows
    key = np.concatenate([[0], np.cumsum(changes(rows, definition.sort_key))])
    return rows.take(pa.array(np.lexsort((rows.column(ORDINAL_COLUMN).to_numpy(), key))))


@dataclass(frozen=True, slots=True)
class StoredMatches:
    """The stored rows that have the keys of some rows of a chunk.

    Attributes:
        probes: For each stored row the position of the chunk's row with the same key.
        rows: The stored rows with all columns.
    """

    probes: Rows
    rows: pl.DataFrame


def unchanged(stored: StoredMatches, rows: pl.DataFrame) -> Mask:
    """Marks the stored rows to which the chunk's row is equal, bit by bit."""
    return same_rows(stored.rows, rows[stored.probes])


def images(
    before: pl.DataFrame | None, replaced: Mask, after: pa.Table | None, known: Mask, definition: TableDefinition
) -> pa.Table:
    """Returns the changes of a chunk.

    Args:
        before: The stored rows that are removed from the table; None if there are none.
        replaced: For each of them whether another row replaces it.
        after: The rows that are added to the table; None if there are none.
        known: For each of them whether it replaces a stored row.
        definition: The table's definition.
    """
    schema = change_schema(definition)
    parts = [schema.empty_table()]
    if before is not None and before.height:
        types = pc.if_else(pa.array(replaced), str(ChangeType.UPDATE_BEFORE), str(ChangeType.DELETE))
        stored = arrow_table(before.select(definition.schema.names), pa.schema(list(schema)[:-1]))
        parts.append(_typed(stored, types, schema))
    if after is not None and after.num_rows:
        types = pc.if_else(pa.array(known), str(ChangeType.UPDATE_AFTER), str(ChangeType.INSERT))
        parts.append(_typed(after, types, schema))
    return pa.concat_tables(parts)


def log_changes(changes: pa.Table, places: Rows) -> pa.Table:
    """Converts images to changes for the log: key by key, a removed row right before the row that replaces it.

    Args:
        changes: The result of `images`.
        places: For each change the position of its key in the chunk.
    """
    return as_log_changes(changes).take(pa.array(np.argsort(places, kind="stable")))


def as_log_changes(changes: pa.Table) -> pa.Table:
    """Converts change data to changes for the log, in their order."""
    kinds = pl.Series(changes.column(CHANGE_TYPE_COLUMN)).replace_strict(_KINDS, return_dtype=pl.String).to_arrow()
    return changes.drop_columns([CHANGE_TYPE_COLUMN]).append_column(KIND_COLUMN, kinds.cast(pa.string()))


def _typed(rows: pa.Table, types: pa.Array, schema: pa.Schema) -> pa.Table:
    columns = fitted(rows, pa.schema(list(schema)[:-1]))
    return columns.append_column(schema.field(CHANGE_TYPE_COLUMN), types.cast(pa.string()))
