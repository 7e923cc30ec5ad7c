"""Finds keys of which two writers have log records, and makes records of the rows that the table has for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from filestore.delta.state import TableState
from filestore.files.writer import TableFiles
from filestore.lazily import pl
from filestore.model.log_range import LogTransaction
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.reading.get import get_rows
from filestore.rows.casting import cast_rows
from filestore.rows.frames import arrow_table, frame_of
from log.table.store import LogStore

__all__ = ["balanced", "key_frame", "of_part", "record_keys", "shared_keys", "stored_records"]


def record_keys(
    log: LogStore, transactions: Sequence[LogTransaction], key: Sequence[str], bucket: int
) -> Iterator[pa.Table]:
    """Yields the keys of transactions' records in a bucket, in batches with each key once.

    Raises:
        NotFound: ``log-gap``: retention has removed some.
    """
    for batch in log.read(transactions, bucket=bucket, columns=key):
        yield distinct(pa.Table.from_batches([batch.rows]).select(key))


def shared_keys(
    log: LogStore,
    mine: Sequence[LogTransaction],
    theirs: Sequence[LogTransaction],
    key: Sequence[str],
    bucket: int,
) -> Iterator[pa.Table]:
    """Yields the keys of `mine` of which `theirs` have records, too. It needs the memory of a batch of each."""
    if not mine or not theirs:
        return
    for own in record_keys(log, mine, key, bucket):
        left, found = frame_of(own), []
        for other in record_keys(log, theirs, key, bucket):
            found.append(left.join(frame_of(other), on=list(key), how="semi"))
            left = left.join(frame_of(other), on=list(key), how="anti")
            if left.is_empty():
                break
        if shared := [part for part in found if not part.is_empty()]:
            yield arrow_table(pl.concat(shared), own.schema)


def stored_records(table: TableFiles, state: TableState, keys: pa.Table) -> pa.Table:
    """Returns the records that make a replay end with the table's rows: ``+U`` rows, or ``-D`` for keys without a row.

    Args:
        table: The table, with the definition of `state`.
        state: The version.
        keys: Keys, each once.
    """
    definition = state.definition
    key, schema = list(definition.primary_key), definition.schema.to_arrow()
    fields = [f.with_nullable(f.name not in key) for f in schema]
    target = pa.schema([*fields, pa.field(KIND_COLUMN, pa.string(), nullable=False)])
    rows = get_rows(table, state, cast_rows(keys, pa.schema([schema.field(name) for name in key])))
    gone = frame_of(keys.select(key)).join(frame_of(rows.select(key)), on=key, how="anti")
    puts = cast_rows(rows.append_column(KIND_COLUMN, pa.repeat(str(RowKind.UPDATE_AFTER), rows.num_rows)), target)
    columns = {name: gone[name].to_arrow() for name in key}
    takes = [columns[f.name].cast(f.type) if f.name in columns else pa.nulls(len(gone), f.type) for f in schema]
    takes.append(pa.repeat(str(RowKind.DELETE), len(gone)))
    return pa.concat_tables([puts, pa.Table.from_arrays(takes, schema=target)])


def balanced(records: pa.Table) -> pa.Table:
    """Returns the records, each preceded by its opposite, so that complete changes add and remove no row in total.

    A reader that applies them by key ends with these records, and a reader that counts rows gets the same as before.
    """
    at = records.schema.get_field_index(KIND_COLUMN)
    gone = pc.equal(records[KIND_COLUMN], str(RowKind.DELETE))
    kinds = pc.if_else(gone, str(RowKind.UPDATE_AFTER), str(RowKind.UPDATE_BEFORE))
    return pa.concat_tables([records.set_column(at, records.schema.field(at), kinds), records])


def key_frame(rows: pa.Table, key: Sequence[str]) -> pl.DataFrame:
    """Returns the key's columns, named by numbers, since users' names may have a meaning for polars."""
    return frame_of(rows.select(list(key)).rename_columns([f"key {at}" for at in range(len(key))]))


def of_part(keys: pl.DataFrame, part: int, parts: int) -> pl.DataFrame:
    """Returns the keys of one part of all keys; the parts have about the same size."""
    return keys if parts == 1 else keys.filter(keys.hash_rows() % parts == part)


def distinct(keys: pa.Table) -> pa.Table:
    """Returns each key once."""
    return arrow_table(frame_of(keys).unique(maintain_order=True), keys.schema)
