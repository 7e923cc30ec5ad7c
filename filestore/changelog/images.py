"""What a fold's change data is, as rows (FORMAT.md section 13). Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.model.changelog import CHANGE_TYPE_COLUMN, ChangelogProducer, ChangeType
from filestore.model.definition import TableDefinition
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.rows.equality import same_rows
from filestore.rows.fitting import fitted
from filestore.rows.frames import arrow_table
from filestore.rows.keys import changes

__all__ = ["Met", "as_they_came", "change_schema", "images", "in_arrival_order", "recorded", "told", "unchanged"]

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
    """What a write has to write down; `ChangelogProducer.NONE` where readers infer it from the files that come and go.

    Args:
        definition: The table's.
        empty: The table holds no row and remembers no delete, so that every row that is put is an insert.
        overwrite: The rows replace the table's: what that changes is told when all are written
            (`filestore.reading.replaced_rows`).
    """
    producer = definition.changelog_producer
    if overwrite or not definition.primary_key or (empty and producer.images):
        return ChangelogProducer.NONE
    return producer


def change_schema(definition: TableDefinition) -> pa.Schema:
    """The columns of a change file. Those of `input` may lack values that only stored rows must have."""
    fields = [field.with_nullable(True) for field in definition.schema.to_arrow()]
    return pa.schema([*fields, pa.field(CHANGE_TYPE_COLUMN, pa.string(), nullable=False)])


def as_they_came(rows: pa.Table, definition: TableDefinition) -> pa.Table:
    """A chunk's rows as changes: by key, and of a key in the order in which they arrived. Without a kind: inserts."""
    rows = in_arrival_order(rows, definition)
    types = pa.repeat(str(ChangeType.INSERT), rows.num_rows)
    if KIND_COLUMN in rows.column_names:
        named = {str(kind): str(change) for kind, change in _TYPES.items()}
        types = pl.Series(rows.column(KIND_COLUMN)).replace_strict(named).to_arrow()
    return _typed(rows, types, change_schema(definition))


def in_arrival_order(rows: pa.Table, definition: TableDefinition) -> pa.Table:
    """A chunk's rows by key, and of a key in the order in which they arrived."""
    if ORDINAL_COLUMN not in rows.column_names:
        return rows
    key = np.concatenate([[0], np.cumsum(changes(rows, definition.sort_key))])
    return rows.take(pa.array(np.lexsort((rows.column(ORDINAL_COLUMN).to_numpy(), key))))


@dataclass(frozen=True, slots=True)
class Met:
    """Stored rows that some rows of a chunk meet.

    Attributes:
        probes: For each, the row of the chunk that has its key.
        rows: Their values, all columns.
    """

    probes: Rows
    rows: pl.DataFrame


def unchanged(met: Met, rows: pl.DataFrame) -> Mask:
    """For each stored row whether the chunk's row is the same, bit by bit."""
    return same_rows(met.rows, rows[met.probes])


def images(
    before: pl.DataFrame | None, replaced: Mask, after: pa.Table | None, known: Mask, definition: TableDefinition
) -> pa.Table:
    """The changes of a chunk.

    Args:
        before: Stored rows that are not in the table any more; None for none.
        replaced: For each whether another row took its place.
        after: Rows that are in the table now; None for none.
        known: For each whether it took another one's place.
        definition: The table's.
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


def told(changes: pa.Table, places: Rows) -> pa.Table:
    """Images as the log tells them: key after key, a row that leaves right before the one that takes its place.

    Args:
        changes: What `images` gives.
        places: For each the place of its key in the chunk.
    """
    kinds = pl.Series(changes.column(CHANGE_TYPE_COLUMN)).replace_strict(_KINDS, return_dtype=pl.String).to_arrow()
    rows = changes.drop_columns([CHANGE_TYPE_COLUMN]).append_column(KIND_COLUMN, kinds.cast(pa.string()))
    return rows.take(pa.array(np.argsort(places, kind="stable")))


def _typed(rows: pa.Table, types: pa.Array, schema: pa.Schema) -> pa.Table:
    columns = fitted(rows, pa.schema(list(schema)[:-1]))
    return columns.append_column(schema.field(CHANGE_TYPE_COLUMN), types.cast(pa.string()))
