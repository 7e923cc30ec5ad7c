"""The rows of one version by key: all of them in memory if they are few, else looked up for each piece of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Protocol

from filestore.delta.state import TableState
from filestore.files.writer import TableFiles
from filestore.lazily import pl
from filestore.reading.get import find_rows
from filestore.reading.scan import plan_scan, scan_frames
from filestore.rows.frames import arrow_table, frame_of, narrowed, polars_schema

__all__ = ["SMALL_BYTES", "InMemory", "KeyedRows", "LookedUp", "is_small", "keyed_rows", "stored_bytes"]

_READING = Lock()
SMALL_BYTES = 64 << 20
"""A table whose files have at most this many bytes is read as a whole."""


class KeyedRows(Protocol):
    """The rows of one version of a table with a primary key."""

    def of(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Returns the rows that have one of the keys, and perhaps others.

        Args:
            keys: The columns of the primary key, without nulls; each key once. They may have wider types.
        """
        ...


def stored_bytes(state: TableState) -> int:
    """Returns the bytes of a version's files, those that are not merged yet among them."""
    return state.totals.size + sum(run.size for run in state.pending)


def is_small(state: TableState, most: int) -> bool:
    """Returns whether the files of a version have at most so many bytes, so that a reader may keep all its rows."""
    return stored_bytes(state) <= most


def keyed_rows(table: TableFiles, state: TableState, columns: Sequence[str]) -> KeyedRows:
    """Chooses how to read the rows, by the size of the files.

    Args:
        table: The table.
        state: The version to read.
        columns: The columns that the result needs, the primary key among them.
    """
    return (InMemory if is_small(state, SMALL_BYTES) else LookedUp)(table, state, tuple(columns))


@dataclass(frozen=True)
class InMemory:
    """All rows of a small table, read once."""

    table: TableFiles
    state: TableState
    columns: tuple[str, ...]

    def of(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Implements `KeyedRows`."""
        return self._rows

    @property
    def _rows(self) -> pl.DataFrame:
        with _READING:  # the first thread that needs them reads them
            return self._read

    @cached_property
    def _read(self) -> pl.DataFrame:
        plan = plan_scan(self.state, self.columns)
        return pl.concat([pl.DataFrame(schema=polars_schema(plan.schema)), *scan_frames(self.table, plan)])


@dataclass(frozen=True)
class LookedUp:
    """The rows of a large table, looked up by key as `tablestore.Table.get` does."""

    table: TableFiles
    state: TableState
    columns: tuple[str, ...]

    def of(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Implements `KeyedRows`."""
        definition = self.table.definition
        schema = definition.schema.select(definition.primary_key).to_arrow()
        own = pl.DataFrame([narrowed(keys[name], kind) for name, kind in polars_schema(schema).items()]).drop_nulls()
        return frame_of(find_rows(self.table, self.state, arrow_table(own, schema), self.columns).rows)
