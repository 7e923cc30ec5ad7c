"""SQL column lists, such as ``id BIGINT NOT NULL, name STRING COMMENT '…'`` (FORMAT.md section 3).

`filestore.model.sql_reading` reads them, which the first text imports: it brings sqlglot, and a program that gives no
SQL shall not wait for it.
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
    """What a column list declares: `TableColumns` or `managed_schema` make a table's columns of `columns`."""

    columns: tuple[Column | MetadataColumn, ...]
    primary_key: tuple[str, ...]


def parse_column_list(text: str, primary_key: Sequence[str] = ()) -> ColumnList:
    """A column list in which ``PRIMARY KEY (id) NOT ENFORCED`` may stand, behind the columns or behind one of them.

    NOT ENFORCED may be left out: nothing else is meant by it here than in Flink's and Spark's SQL.

    Args:
        text: The list.
        primary_key: As it was given beside the list; both must say the same.

    Raises:
        InvalidRequest: ``primary-key``: the list has two keys, or another than the one beside it; or as
            `parse_table_columns`.
    """
    from filestore.model import sql_reading

    return sql_reading.read_column_list(text, primary_key)


def parse_columns(text: str, primary_key: Collection[str] = ()) -> Schema:
    """The schema of a managed table's column list; otherwise as `parse_table_columns`.

    Raises:
        InvalidRequest: as there, or ``metadata-column``: a managed table has none.
    """
    from filestore.model import sql_reading

    return sql_reading.read_columns(text, primary_key)


def parse_table_columns(text: str, primary_key: Collection[str] = ()) -> TableColumns:
    """The columns of a column list, metadata columns too.

    A key column is NOT NULL unless the text says NULL, as in standard SQL. The key of a metadata column is its name
    unless the text says another.

    Raises:
        InvalidRequest: not a column list (``bad-column-list``), an unknown type (``unsupported-type``),
            ``bad-text``, or what `TableColumns` refuses.
    """
    from filestore.model import sql_reading

    return sql_reading.read_table_columns(text, primary_key)


def parse_type(text: str, column: str = "c") -> pa.DataType:
    """The canonical type of one SQL type, such as ``DECIMAL(10, 2)`` or ``ARRAY<STRING>``.

    Args:
        text: The type alone.
        column: Whose type it is, for the message.

    Raises:
        InvalidRequest: ``unsupported-type``, or ``bad-text``.
    """
    from filestore.model import sql_reading

    return sql_reading.read_type(text, column)
