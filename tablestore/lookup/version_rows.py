"""The rows of one version that have some keys, in the columns that a look-up join reads.

By the primary key they are looked up as `tablestore.Table.get` does. By other columns the files are read that may have
them, by their partitions, buckets and bounds, and of these only the rows with one of the keys are kept. It takes the
memory of the keys, of the rows that are found, and of a batch of a scan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from filestore.delta.state import TableState
from filestore.files.writer import TableFiles
from filestore.lazily import pl
from filestore.model.schema import Schema
from filestore.reading.get import find_rows
from filestore.reading.scan import plan_scan, scan_frames
from filestore.rows.bucketing import bucket_of
from filestore.rows.frames import arrow_table, frame_of, gatherable, narrowed, polars_schema
from filestore.rows.reshape import reshaped
from tablestore.lookup.matching import Matches
from tablestore.lookup.request import LookupPlan

__all__ = ["VersionRows"]

_NUMBER = "_number"
_LISTED = 1024
"""A condition lists at most so many values; for more it has their bounds."""


@dataclass(frozen=True, slots=True)
class VersionRows:
    """One version of a table, for a look-up join.

    Attributes:
        table: The table's files, with the definition of that version.
        state: The version.
        plan: The join. Rows have its columns, whatever names and types these have in the version.
    """

    table: TableFiles
    state: TableState
    plan: LookupPlan

    def all(self) -> pl.DataFrame:
        """Reads all rows that can match."""
        if not self._has_keys:
            return self._empty
        return self._concat(scan_frames(self.table, plan_scan(self.state, self._stored.names)))

    def by_key(self, asked: Sequence[pl.Series]) -> Matches:
        """Looks rows up whose keys have the whole primary key, so that each matches at most one row.

        Args:
            asked: The columns `LookupPlan.keys` with their names and types, in any number of rows; nulls match nothing.
        """
        values = {series.name: series for series in asked}
        keys = self._stored_keys([values[name] for name in self.plan.primary_key])
        if not keys.height:
            none = np.empty(0, dtype=np.int64)
            return Matches(self._empty, none, none)
        schema = self.state.definition.schema.select(keys.columns[1:]).to_arrow()
        found = find_rows(self.table, self.state, arrow_table(keys[:, 1:], schema), self._stored.names)
        probes = keys[_NUMBER].to_numpy()[found.keys]
        matches = Matches(self._concat(iter([frame_of(found.rows)])), probes, found.places)
        for name in values.keys() - set(self.plan.primary_key):
            matches = matches.with_equal(name, values[name])
        return matches

    def near(self, asked: pl.DataFrame) -> pl.DataFrame:
        """Reads the rows that have one of the keys, and perhaps others.

        Args:
            asked: The columns `LookupPlan.keys` with their types, without nulls; each key once.
        """
        keys = self._stored_keys(asked.get_columns()).drop(_NUMBER)
        if not keys.height:
            return self._empty
        return self._concat(gatherable(frame).join(keys, on=keys.columns, how="semi") for frame in self._near(keys))

    def _stored_keys(self, asked: Sequence[pl.Series]) -> pl.DataFrame:
        """Returns keys as the version has them, behind the column `_NUMBER` with their positions; without nulls."""
        if not self._has_keys:
            return pl.DataFrame({_NUMBER: []})
        names, types = self.columns, polars_schema(self.state.definition.schema.to_arrow())
        # a value that does not fit the type that the column had is in no row
        keys = pl.DataFrame([narrowed(s, types[names[s.name]]).alias(names[s.name]) for s in asked])
        return keys.with_row_index(_NUMBER).drop_nulls()

    def _near(self, keys: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Reads the files that may have rows with the keys."""
        definition = self.state.definition
        conditions = [found for name in keys.columns if (found := _condition(keys[name])) is not None]
        where = reduce(pl.Expr.__and__, conditions) if conditions else None
        plan = plan_scan(self.state, self._stored.names, where)
        if set(definition.bucket_key) <= set(keys.columns) and definition.bucket_key and definition.buckets > 1:
            schema = definition.schema.select(definition.bucket_key).to_arrow()
            named = arrow_table(keys.select(definition.bucket_key), schema)
            plan = plan.of_buckets(set(bucket_of(named, definition.bucket_key, definition.buckets).tolist()))
        return scan_frames(self.table, plan)

    def shaped(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Converts rows with all columns of the version."""
        return self._concat(iter([rows.select(self._stored.names)]))

    @property
    def columns(self) -> dict[str, str]:
        """The columns that the version has, each with its name there."""
        known = {column.id: column.name for column in self.state.definition.schema.numbered()}
        return {column.name: known[column.id] for column in self.plan.wanted if column.id in known}

    @property
    def _has_keys(self) -> bool:
        """Returns whether a row can match: in a version that is older than a column the column is null."""
        return set(self.plan.keys) <= self.columns.keys()

    @property
    def _stored(self) -> Schema:
        return self.state.definition.schema.numbered().select(self.columns.values())

    @property
    def _empty(self) -> pl.DataFrame:
        return pl.DataFrame(schema=polars_schema(self.plan.wanted.to_arrow()))

    def _concat(self, frames: Iterator[pl.DataFrame]) -> pl.DataFrame:
        written, wanted = self._stored, self.plan.wanted
        if [(c.name, c.type) for c in written] == [(c.name, c.type) for c in wanted]:
            return pl.concat([self._empty, *frames])
        nullable = Schema(tuple(replace(column, nullable=True) for column in written))
        shaped = (frame_of(reshaped(arrow_table(f, nullable.to_arrow()), nullable, wanted)) for f in frames)
        return pl.concat([self._empty, *shaped])


def _condition(values: pl.Series) -> pl.Expr | None:
    """A condition that rows with one of the values fulfil, by which files are left out; None for types without order.

    Floats are left out, since NaN is beyond all bounds.
    """
    kind = values.dtype
    if not (kind.is_integer() or kind.is_decimal() or kind.is_temporal() or kind == pl.String):
        return None
    column, values = pl.col(values.name), values.unique()
    if len(values) <= _LISTED:
        return column.is_in(values.implode())
    return column.is_between(pl.lit(values.min(), dtype=kind), pl.lit(values.max(), dtype=kind))
