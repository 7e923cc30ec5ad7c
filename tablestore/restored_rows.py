"""What a rollback changes in a slot, row by row of the log: found from the files and vectors that differ.

Memory: a row group for each sorted run that differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl
import pyarrow as pa

from compaction.choice import sorted_runs
from filestore.frames import arrow_table, frame_of
from filestore.model.files import DataFile
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.row_groups import RowGroups
from filestore.sorting.merge import merge
from filestore.writer import TableFiles

__all__ = ["restored_rows"]

_RETURNS = "_returns"


def restored_rows(table: TableFiles, base: Sequence[DataFile], target: Sequence[DataFile]) -> Iterator[pa.Table]:
    """The changes that lead from a slot's rows to those of an older version, in key order, with `KIND_COLUMN`.

    A key gives at most one change: ``-D`` of a row that goes, ``+I`` of one that comes back, ``+U`` of one that is
    another again. Rows that only stand in another file give none.

    Args:
        table: The table; it has a primary key.
        base: The slot's files in the newest version.
        target: Its files in the older one.
    """
    before, after = {f.path: f for f in base}, {f.path: f for f in target}
    going = _runs(table, before, after, returns=False)
    coming = _runs(table, after, before, returns=True)
    keys = table.definition.sort_key
    for rows in merge([*going, *coming], keys):
        yield from _changes(table, frame_of(rows), keys)


def _runs(
    table: TableFiles, files: Mapping[str, DataFile], others: Mapping[str, DataFile], *, returns: bool
) -> list[Iterator[pa.Table]]:
    """The sorted runs of one side, each with only the rows that the other side does not have in the same place."""
    differing = [f for path, f in files.items() if path not in others or others[path].vector != f.vector]
    return [
        (rows for file in run for rows in _own_rows(table, file, others.get(file.path), returns=returns))
        for run in sorted_runs(differing, table.definition)
    ]


def _own_rows(table: TableFiles, file: DataFile, other: DataFile | None, *, returns: bool) -> Iterator[pa.Table]:
    groups = RowGroups(table, file)
    shared = None if other is None else RowGroups(table, other)
    schema = pa.schema([f.with_nullable(True) for f in table.file_schema])
    for number in range(len(groups)):
        mask = groups.alive(number) if shared is None else groups.alive(number) & ~shared.alive(number)
        if mask.any():
            rows = arrow_table(groups.read(number, schema.names, mask), schema)
            yield rows.append_column(_RETURNS, pa.repeat(returns, rows.num_rows))


def _changes(table: TableFiles, rows: pl.DataFrame, keys: Sequence[str]) -> Iterator[pa.Table]:
    going, coming = rows.filter(~pl.col(_RETURNS)).drop(_RETURNS), rows.filter(pl.col(_RETURNS)).drop(_RETURNS)
    old = going.join(coming, on=keys, how="semi", maintain_order="left")
    new = coming.join(going, on=keys, how="semi", maintain_order="left")
    same = pl.Series([True]).new_from_index(0, new.height)
    for name in new.columns:
        same &= old[name].eq_missing(new[name])
    parts = (
        (going.join(coming, on=keys, how="anti", maintain_order="left"), RowKind.DELETE),
        (coming.join(going, on=keys, how="anti", maintain_order="left"), RowKind.INSERT),
        (new.filter(~same), RowKind.UPDATE_AFTER),
    )
    schema = pa.schema([f.with_nullable(True) for f in table.file_schema])
    for frame, kind in parts:
        if frame.height:
            yield arrow_table(frame, schema).append_column(KIND_COLUMN, pa.repeat(str(kind), frame.height))
