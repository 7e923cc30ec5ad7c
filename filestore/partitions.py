"""Partition values: a column's value as the text of ``partitionValues`` and back (FORMAT.md section 7).

Delta protocol, "Partition Value Serialization": null is null, timestamps are written in UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from filestore.errors import InvalidRequest
from filestore.model.files import Partition

__all__ = ["partition_column", "partition_values", "with_partition"]


def partition_values(rows: pa.Table, columns: Sequence[str]) -> Partition:
    """The partition of rows that all lie in one, taken from the first.

    Raises:
        InvalidRequest: an empty string, which Delta cannot tell from null.
    """
    return tuple((name, _text(name, rows.column(name)[0].as_py())) for name in columns)


def _text(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if value == "":
        raise InvalidRequest(
            f"partition column {name!r} holds an empty string, which Delta cannot tell from null: write null or a text",
            code="empty-partition-value",
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.isoformat(sep=" ", timespec="microseconds")
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def partition_column(text: str | None, kind: pa.DataType, rows: int) -> pa.Array:
    """A column of `rows` times the value that the text stands for."""
    return pa.repeat(pa.scalar(_value(text, kind), kind), rows)


def with_partition(rows: pa.Table, partition: Partition, schema: pa.Schema) -> pa.Table:
    """A file's rows with the partition columns put in their places; only columns that `rows` or the partition have."""
    values = dict(partition)
    fields = [f for f in schema if f.name in values or f.name in rows.column_names]
    columns = [
        partition_column(values[f.name], f.type, rows.num_rows) if f.name in values else rows.column(f.name)
        for f in fields
    ]
    return pa.table(columns, schema=pa.schema(fields))


def _value(text: str | None, kind: pa.DataType) -> Any:
    if text is None or pa.types.is_string(kind):
        return text
    if pa.types.is_boolean(kind):
        return text == "true"
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(text)
        if kind.tz is None:
            return moment
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if pa.types.is_date32(kind):
        return date.fromisoformat(text)
    return Decimal(text) if pa.types.is_decimal(kind) else int(text)
