"""Checks that each slot has one live row of a key, by merging its sorted files by key ranges (FORMAT.md section 12.3).

It takes the memory of the keys of one row group for each file whose range contains the current key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from filestore.checks.report import Findings, Invariant
from filestore.files.live_rows import read_file
from filestore.files.writer import TableFiles
from filestore.model.files import DataFile, Slot
from filestore.rows.frames import frame_of
from filestore.rows.keys import Key, decode_key, encode_key, key_at

__all__ = ["check_unique", "up_to"]


def check_unique(table: TableFiles, slot: Slot, files: Sequence[DataFile], findings: Findings) -> None:
    """Reports the first key of the slot that has two live rows."""
    keys = table.definition.sort_key
    types = [table.definition.schema.column(name).type for name in keys]
    waiting = [(decode_key(f.min_key, types), f) for f in files if f.min_key is not None]
    waiting.sort(key=lambda pair: pair[0])
    cursors: list[_Cursor] = []
    while waiting or cursors:
        if not cursors:
            cursors.append(_Cursor(table, waiting.pop(0)[1]))
        cursors = [c for c in cursors if c.fill()]
        if not cursors:
            continue
        horizon = min(c.last for c in cursors)
        if waiting and waiting[0][0] <= horizon:
            cursors.append(_Cursor(table, waiting.pop(0)[1]))
            continue
        rows = pa.concat_tables(c.take(horizon) for c in cursors)
        if (twice := _doubled(rows, keys)) is not None:
            findings.add(
                Invariant.UNIQUE_KEY,
                f"key {encode_key(twice)} has more than one live row in bucket {slot.bucket} of partition "
                f"{dict(slot.partition)}, in files {', '.join(sorted(f.path for f in files))}",
                f"{slot}",
            )
            return


class _Cursor:
    """Reads a file's live keys in order."""

    def __init__(self, table: TableFiles, file: DataFile) -> None:
        self._keys = table.definition.sort_key
        self._groups: Iterator[pa.Table] = read_file(table, file, self._keys)
        self._rows: pa.Table | None = None

    def fill(self) -> bool:
        """Reads until there are rows; returns False at the file's end."""
        while self._rows is None or not self._rows.num_rows:
            self._rows = next(self._groups, None)
            if self._rows is None:
                return False
            self._rows = self._rows.select(self._keys)
        return True

    @property
    def last(self) -> Key:
        assert self._rows is not None
        return key_at(self._rows, self._keys, self._rows.num_rows - 1)

    def take(self, horizon: Key) -> pa.Table:
        """Removes and returns the rows up to that key."""
        assert self._rows is not None
        count = pc.sum(up_to(self._rows, self._keys, horizon)).as_py() or 0
        taken, self._rows = self._rows.slice(0, count), self._rows.slice(count)
        return taken


def up_to(rows: pa.Table, keys: Sequence[str], bound: Key) -> pa.ChunkedArray:
    """Marks the rows whose key is at most the bound; compares column by column from the last."""
    result: pa.ChunkedArray | None = None
    for name, value in zip(reversed(keys), reversed(bound), strict=True):
        column = rows.column(name)
        limit = pa.scalar(value, column.type)
        below = pc.less(column, limit)
        here = pc.equal(column, limit)
        result = pc.or_(below, here if result is None else pc.and_(here, result))
    assert result is not None
    return result


def _doubled(rows: pa.Table, keys: Sequence[str]) -> Key | None:
    twice = frame_of(rows).is_duplicated().arg_true()
    return key_at(rows, keys, int(twice[0])) if len(twice) else None
