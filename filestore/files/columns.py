"""A data file's columns as the table's: other names, narrower types, columns that are not in it (FORMAT.md section 7).

A file that was written before the schema changed stays as it is. What its columns are called is said by the table's
schema, so a file needs nothing but its own footer to be read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from filestore.files.parquet import ParquetReader
from filestore.model.schema import Column, Schema
from filestore.rows.frames import polars_schema

__all__ = ["FileColumns", "stored_rows", "stored_schema"]

_FIELD_ID = "PARQUET:field_id"


@dataclass(frozen=True, slots=True, eq=False)
class FileColumns:
    """How one file's columns become the table's.

    Attributes:
        schema: The table's columns.
        stored: Types in the file, by the names there.
    """

    schema: Schema
    stored: Mapping[str, pa.DataType]

    @classmethod
    def of(cls, schema: Schema, parquet: ParquetReader) -> FileColumns:
        """Those of an open file."""
        return cls(schema, {field.name: field.type for field in parquet.arrow_schema})

    def holds(self, name: str) -> bool:
        """Whether the file has a column of the table; else it is null in all rows."""
        return self.schema.column(name).in_files in self.stored

    @property
    def casts(self) -> bool:
        """Whether a column of the table has a narrower type in the file."""
        return any(column.in_files in self.stored and self._narrower(column) for column in self.schema)

    def read(self, parquet: ParquetReader, group: int, names: Sequence[str] | None = None) -> pa.Table:
        """A row group's rows in the table's columns; all if None. Columns of the file's own may be named, too."""
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
        """The same for polars, on a scan of the file."""
        return [self._expression(self.schema.column(name)) for name in names]

    def _expression(self, column: Column) -> pl.Expr:
        found = pl.col(column.in_files)
        if column.in_files not in self.stored:
            found = pl.lit(None, dtype=_polars_type(column))
        elif self._narrower(column):
            found = found.cast(_polars_type(column))
        return found.alias(column.name)

    def _narrower(self, column: Column) -> bool:
        """Nested types never change; readers may spell them in more than one way."""
        return not pa.types.is_nested(column.type) and self.stored[column.in_files] != column.type


def _polars_type(column: Column) -> pl.DataType:
    return polars_schema(pa.schema([(column.name, column.type)]))[column.name]


def stored_rows(rows: pa.Table, schema: Schema) -> pa.Table:
    """Rows in the table's columns, and perhaps others, as they are written into a file (see `stored_schema`)."""
    if not schema.mapped:
        return rows
    return pa.Table.from_arrays(rows.columns, schema=stored_schema(rows.schema, schema))


def stored_schema(fields: pa.Schema, schema: Schema) -> pa.Schema:
    """Fields as a file has them: those of the table's columns under their names there, with their ids.

    Without column mapping that is what they are.
    """
    if not schema.mapped:
        return fields
    return pa.schema([_stored(field, schema.column(field.name)) if field.name in schema else field for field in fields])


def _stored(field: pa.Field, column: Column) -> pa.Field:
    return _identified(field.with_name(column.in_files), itertools.count(column.id or 0))


def _identified(field: pa.Field, ids: Iterator[int]) -> pa.Field:
    """The field with its id and those of the STRUCT fields in it, as Delta's column mapping wants them in Parquet."""
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
