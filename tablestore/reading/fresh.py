"""Merges the log's records beyond the newest snapshot into a read (``fresh=True``).

With ``log.consistency = transactional`` a change becomes visible together with its snapshot, so there is never such a
tail. Where records are visible earlier (`tablestore.reading.log_tail`), the last record of a key wins, or with a
sequence field the highest, as it will in the next snapshot. For engines that merge values the log has rows that are
merged already. It needs memory for one row of each key of the tail.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from filestore.delta.state import TableState
from filestore.files.writer import TableFiles
from filestore.lazily import pl
from filestore.model.definition import TableDefinition
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.reading.get import get_rows
from filestore.reading.predicate import Condition, Predicate
from filestore.reading.scan import plan_scan, scan, scan_frames
from filestore.rows.frames import arrow_table, frame_of, gatherable
from filestore.table import FileStore
from tablestore.reading.log_tail import VisibleTail

__all__ = ["fresh_rows", "last_of_each_key", "standing", "standing_changes"]

_PUTS = [str(RowKind.INSERT), str(RowKind.UPDATE_AFTER)]
_STORED = "_stored"


def last_of_each_key(chunks: Iterable[pa.Table], definition: TableDefinition) -> pl.DataFrame | None:
    """Returns the change of each key that wins; None without any. Pure.

    Args:
        chunks: Changes with all columns and `KIND_COLUMN`, in their order.
        definition: The table's. With a sequence field the highest wins, of equal ones the last; null is the lowest.
    """
    names = [*definition.schema.names, KIND_COLUMN]
    keys, sequence = list(definition.primary_key), definition.sequence_field
    held: pl.DataFrame | None = None
    for chunk in chunks:
        rows = frame_of(chunk.select(names))
        rows = rows if held is None else pl.concat([held, rows])
        if sequence is not None:
            rows = rows.sort(sequence, nulls_last=False, maintain_order=True)
        held = rows.unique(keys, keep="last", maintain_order=True)
    return held


def standing(tail: pl.DataFrame, stored: pl.DataFrame, definition: TableDefinition) -> pl.DataFrame:
    """Returns the changes that win against the stored rows: with a sequence field those that are not lower. Pure.

    Args:
        tail: One change of each key.
        stored: The keys and sequences of stored rows.
        definition: The table's.
    """
    sequence = definition.sequence_field
    if sequence is None:
        return tail
    keys = list(definition.primary_key)
    joined = gatherable(tail).join(
        stored.select(*keys, pl.col(sequence).alias(_STORED)), on=keys, how="left", maintain_order="left"
    )
    late = pl.col(_STORED).is_not_null() & (pl.col(sequence).is_null() | (pl.col(sequence) < pl.col(_STORED)))
    return joined.filter(~late).drop(_STORED)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The columns and rows that are read."""

    columns: Sequence[str]
    condition: Condition | None

    def of(self, rows: pl.DataFrame) -> pl.DataFrame:
        if self.condition is None or not rows.height:
            return rows.select(self.columns)
        if not self.condition.columns:  # 1 = 1
            always = bool(self.condition.wanted(pl.DataFrame(height=1)).all())
            return (rows if always else rows.clear()).select(self.columns)
        return rows.filter(self.condition.wanted(rows.select(self.condition.columns))).select(self.columns)


def standing_changes(table: TableFiles, state: TableState, chunks: Iterable[pa.Table]) -> pl.DataFrame | None:
    """Returns the changes of a log that win against a version, one for each key; None without any.

    Args:
        table: The table.
        state: The version.
        chunks: The changes that the log has beyond it, in their order.
    """
    definition = state.definition
    changes = last_of_each_key(chunks, definition)
    if changes is None or (sequence := definition.sequence_field) is None:
        return changes
    keys = list(definition.primary_key)
    asked = arrow_table(changes.select(keys), definition.schema.select(keys).to_arrow())
    stored = get_rows(table, state, asked, list(dict.fromkeys((*keys, sequence))))
    return standing(changes, frame_of(stored), definition)


def fresh_rows(
    store: FileStore, state: TableState, tail: VisibleTail, columns: Sequence[str] | None, where: Predicate | None
) -> Iterator[pa.Table]:
    """Yields the rows of a version with the tail merged into them; rows of files are not kept in memory.

    Args:
        store: The table.
        state: Its newest version.
        tail: The records of its log beyond it.
        columns: Which columns; all if None.
        where: Which rows.
    """
    definition, table = state.definition, store.table_files(state)
    schema = (definition.schema if columns is None else definition.schema.select(columns)).to_arrow()
    changes = standing_changes(table, state, tail.changes(state))
    if changes is None:
        yield from scan(table, plan_scan(state, columns, where))
        return
    keys = list(definition.primary_key)
    wide = list(dict.fromkeys((*schema.names, *keys)))
    for rows in scan_frames(table, plan_scan(state, wide, where)):
        left = gatherable(rows).join(changes.select(keys), on=keys, how="anti", maintain_order="left")
        if left.height:
            yield arrow_table(left.select(schema.names), schema)
    wanted = _Wanted(schema.names, None if where is None else Condition.of(where, definition.schema))
    puts = wanted.of(changes.filter(pl.col(KIND_COLUMN).is_in(_PUTS)))
    if puts.height:
        yield arrow_table(puts, schema)
