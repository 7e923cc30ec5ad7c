"""Reads the rows of given keys in one version; it finds keys in the same way as a write does.

A key determines its partition and bucket. Then the files with the most live rows are searched first, until all keys are
found, since a key has at most one live row. It takes the memory of the keys, of the found rows, and of `FileLookup`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from filestore.delta.state import TableState
from filestore.files.writer import TableFiles
from filestore.lookup.key_match import HASH
from filestore.lookup.locate import locate
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile
from filestore.reading.key_filters import RequestedKeys
from filestore.reading.overlay import PendingSlot, merged_keys, pending_slots
from filestore.rows.casting import cast_rows
from filestore.rows.frames import arrow_table, frame_of
from filestore.sorting.chunks import by_slot
from filestore.sorting.order import sort_rows

__all__ = ["get_rows"]

_NUMBER = "_number"


def get_rows(
    table: TableFiles,
    state: TableState,
    keys: pa.Table,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Returns the rows of those keys in the order of the keys: one row for a repeated key, none for an absent one.

    Args:
        table: The table, which must have a primary key.
        state: The version to read.
        keys: The columns of the primary key with their types, without nulls.
        columns: The columns, in the order of the result; all if None.

    Raises:
        NotFound: a column does not exist.
    """
    definition = state.definition
    schema = definition.schema.arrow_of(columns)
    values = [name for name in schema.names if name not in definition.primary_key]
    numbered = schema.append(pa.field(_NUMBER, pa.int64()))
    live, pending = state.slots(), {slot.slot: slot for slot in pending_slots(state)}
    parts = [
        cast_rows(part, numbered)
        for slot, probes in by_slot(sort_rows(_numbered(keys, definition), definition), definition)
        for part in (
            _of_merged_slot(table, state, pending[slot], probes, values)
            if slot in pending
            else _of_slot(table, live.get(slot, ()), probes, values)
        )
    ]
    if not parts:
        return schema.empty_table()
    found = pa.concat_tables(parts).combine_chunks()
    return found.take(pc.sort_indices(found.column(_NUMBER))).select(schema.names)


def _numbered(keys: pa.Table, definition: TableDefinition) -> pa.Table:
    """Returns each key once, with the number of its first position; without keys that no partition can have."""
    names = list(definition.primary_key)
    keys = keys.select(names).append_column(_NUMBER, pa.array(np.arange(keys.num_rows)))
    first = frame_of(keys.select(names)).select(pl.struct(pl.all()).is_first_distinct()).to_series()
    keys = keys.filter(first.to_arrow())
    for name in definition.partition_by:
        if pa.types.is_string(definition.schema.column(name).type):
            keys = keys.filter(pc.not_equal(keys.column(name), ""))  # Delta would read it as null
    return keys


def _of_merged_slot(
    table: TableFiles,
    state: TableState,
    pending: PendingSlot,
    probes: pa.Table,
    values: Sequence[str],
) -> Iterator[pa.Table]:
    """Does what `_of_slot` does, for a slot with pending runs: it merges only the changes of the requested keys."""
    keys = list(table.definition.primary_key)
    left = frame_of(probes.select([*keys, _NUMBER]))
    schema = pa.schema([*table.definition.schema.select([*keys, *values]).to_arrow(), (_NUMBER, pa.int64())])
    for merged in merged_keys(table, pending, [*keys, *values], RequestedKeys(table.definition, probes)):
        yield arrow_table(merged.rows.join(left, on=keys, how="inner"), schema)
        left = left.join(merged.keys, on=keys, how="anti", maintain_order="left")
    rest = probes.filter(pc.is_in(probes.column(_NUMBER), left[_NUMBER].to_arrow()))
    if rest.num_rows:
        yield from _of_slot(table, state.slots().get(pending.slot, ()), rest, values)


def _of_slot(
    table: TableFiles,
    files: Sequence[DataFile],
    probes: pa.Table,
    values: Sequence[str],
) -> Iterator[pa.Table]:
    """Returns the key columns, the numbers and the wanted columns of the rows in the files."""
    keys = probes.select([*table.definition.primary_key, _NUMBER])
    for _, lookup, asked, match in locate(table, files, keys):
        rows = asked.drop_columns(HASH).take(pa.array(match.probes))
        stored = lookup.rows_at(match.positions, values) if values else rows.select([])
        yield pa.table([*rows.columns, *stored.columns], names=[*rows.column_names, *stored.column_names])
