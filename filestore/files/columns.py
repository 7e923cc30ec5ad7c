"""Converts a data file's columns to the table's: other names, narrower types, missing columns (FORMAT.md section 7).

A file that was written before a change of the schema stays as it is. The table's schema has the names of its columns,
so reading a file needs only its own footer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from filestore.files.parquet import ParquetReader
from filestore.lazily import pl
from filestore.model.schema import Column, Schema
from filestore.rows.frames import polars_schema

__all__ = ["FileColumns", "stored_rows", "stored_schema"]

_FIELD_ID = "PARQUET:field_id"


@dataclass(frozen=True, slots=True, eq=False)
class FileColumns:
    """Converts one file's columns to the table's.

    Attributes:
        schema: The table's columns.
        stored: The types in the file, by the names there.
    """

    schema: Schema
    stored: Mapping[str, pa.DataType]

    @classmethod
    def of(cls, schema: Schema, parquet: ParquetReader) -> FileColumns:
        """Makes the conversion for an open file."""
        return cls(schema, {field.name: field.type for field in parquet.arrow_schema})

    def holds(self, name: str) -> bool:
        """Returns whether the file has a column of the table; otherwise the column is null in all its rows."""
        return self.schema.column(name).in_files in self.stored

    @property
    def casts(self) -> bool:
        """Returns whether a column of the table has a narrower type in the file."""
        return any(column.in_files in self.stored and self._narrower(column) for column in self.schema)

    def read(self, parquet: ParquetReader, group: int, names: Sequence[str] | None = None) -> pa.Table:
        """Reads a row group with the table's columns; all if None. `names` may also name columns that only it has."""
        columns = [self._named(name) for name in names] if names is not None else list(self.schema)
        found = [column.in_files for column in columns if column.in_files in self.stored]
        rows = parquet.read(group, found)
        if rows.column_names == [column.name for column in columns] and not any(map(self._narrower, columns)):
            return rows
        count = parquet.footer.row_group(group).num_rows
        return pa.table({column.name: self._column(column, rows, count) for column in columns})

    def _named(self, name: str) -> Column:
        return self.schema.column(name) if name in self.schema else Column(name, self.stored[name])

    def _column(self, column: Column, rows: pa.Table, count: int) -> pa.ChunkedArray:
        if column.in_files not in self.stored:
            return pa.chunked_array([pa.nulls(count, column.type)])
        values = rows.column(column.in_files)
        return values.cast(column.type) if self._narrower(column) else values

    def expressions(self, names: Sequence[str]) -> list[pl.Expr]:
        """Returns the same conversion as polars expressions, for a scan of the file."""
        return [self._expression(self.schema.column(name)) for name in names]

    def _expression(self, column: Column) -> pl.Expr:
        found = pl.col(column.in_files)
        if column.in_files not in self.stored:
            found = pl.lit(None, dtype=_polars_type(column))
        elif self._narrower(column):
            found = found.cast(_polars_type(column))
        return found.alias(column.name)

    def _narrower(self, column: Column) -> bool:
        """Returns whether the file's type is narrower. Nested types never change, and have several spellings."""
        return not pa.types.is_nested(column.type) and self.stored[column.in_files] != column.type


def _polars_type(column: Column) -> pl.DataType:
    return polars_schema(pa.schema([(column.name, column.type)]))[column.name]


def stored_rows(rows: pa.Table, schema: Schema) -> pa.Table:
    """Converts rows with the table's columns, and maybe others, to those of a file (see `stored_schema`)."""
    if not schema.mapped:
        return rows
    return pa.Table.from_arrays(rows.columns, schema=stored_schema(rows.schema, schema))


def stored_schema(fields: pa.Schema, schema: Schema) -> pa.Schema:
    """Returns fields as they are in a file: those of the table's columns with their names there and their ids.

    Without column mapping they do not change.
    """
    if not schema.mapped:
        return fields
    return pa.schema([_stored(field, schema.column(field.name)) if field.name in schema else field for field in fields])


def _stored(field: pa.Field, column: Column) -> pa.Field:
    return _identified(field.with_name(column.in_files), itertools.count(column.id or 0))


def _identified(field: pa.Field, ids: Iterator[int]) -> pa.Field:
    """Adds the ids of the field and of the STRUCT fields in it, as Delta's column mapping requires in Parquet."""
    named = field.with_metadata({_FIELD_ID: str(next(ids))})
    return named.with_type(_identified_type(field.type, ids))


def _identified_type(kind: pa.DataType, ids: Iterator[int]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_identified(f, ids) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_identified_type(kind.value_type, ids)))
    if pa.types.is_map(kind):
        key = kind.key_field.with_type(_identified_type(kind.key_type, ids))
        return pa.map_(key, kind.item_field.with_type(_identified_type(kind.item_type, ids)))
    return kind
