"""Parses SQL column lists, such as ``id BIGINT NOT NULL, name STRING COMMENT '…'`` (FORMAT.md section 3).

The first call imports `filestore.model.sql_reading`: it loads sqlglot, and a program without SQL should not wait for
it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa

from filestore.model.schema import Column, Schema
from filestore.model.table_columns import MetadataColumn, TableColumns

__all__ = ["ColumnList", "parse_column_list", "parse_columns", "parse_table_columns", "parse_type"]


@dataclass(frozen=True, slots=True)
class ColumnList:
    """A parsed column list: `TableColumns` or `managed_schema` make a table's columns from `columns`."""

    columns: tuple[Column | MetadataColumn, ...]
    primary_key: tuple[str, ...]


def parse_column_list(text: str, primary_key: Sequence[str] = ()) -> ColumnList:
    """Parses a column list that may contain ``PRIMARY KEY (id) NOT ENFORCED``, after the columns or in one of them.

    NOT ENFORCED may be left out: a primary key is never enforced, as in Flink's and Spark's SQL.

    Args:
        text: The list.
        primary_key: A key that was given separately; both must be the same.

    Raises:
        InvalidRequest: ``primary-key``: the list has two keys, or another one than the given key; or as
            `parse_table_columns`.
    """
    from filestore.model import sql_reading

    return sql_reading.read_column_list(text, primary_key)


def parse_columns(text: str, primary_key: Collection[str] = ()) -> Schema:
    """Parses the column list of a managed table; otherwise like `parse_table_columns`.

    Raises:
        InvalidRequest: as there, or ``metadata-column``: a managed table cannot have one.
    """
    from filestore.model import sql_reading

    return sql_reading.read_columns(text, primary_key)


def parse_table_columns(text: str, primary_key: Collection[str] = ()) -> TableColumns:
    """Parses a column list that may have metadata columns.

    A key column is NOT NULL unless the text says NULL, as in standard SQL. A metadata column's name is its key unless
    the text has another key.

    Raises:
        InvalidRequest: the text is not a column list (``bad-column-list``), a type is unknown (``unsupported-type``),
            ``bad-text``, or as `TableColumns`.
    """
    from filestore.model import sql_reading

    return sql_reading.read_table_columns(text, primary_key)


def parse_type(text: str, column: str = "c") -> pa.DataType:
    """Parses one SQL type, such as ``DECIMAL(10, 2)`` or ``ARRAY<STRING>``, to its canonical type.

    Args:
        text: The type alone.
        column: The name of its column, for the message.

    Raises:
        InvalidRequest: ``unsupported-type``, or ``bad-text``.
    """
    from filestore.model import sql_reading

    return sql_reading.read_type(text, column)
