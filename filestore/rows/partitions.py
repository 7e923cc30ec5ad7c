"""Converts partition values between a column's type and the text of ``partitionValues`` (FORMAT.md section 7).

Delta protocol, "Partition Value Serialization": a null is null, timestamps are written in UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, DecimalException
from typing import Any

import pyarrow as pa

from filestore.errors import InvalidRequest
from filestore.model.definition import TableDefinition
from filestore.model.files import Partition
from filestore.model.partition_set import ALL_PARTITIONS, PartitionSet
from filestore.model.types import to_sql

__all__ = [
    "chosen_partitions",
    "partition_column",
    "partition_column_of",
    "partition_set",
    "partition_values",
    "partitions_of",
    "with_partition",
]


def partition_values(rows: pa.Table, columns: Sequence[str]) -> Partition:
    """Returns the partition of rows that are all in one; it is taken from the first row.

    Raises:
        InvalidRequest: an empty string, which Delta reads as null.
    """
    return tuple((name, _text(name, rows.column(name)[0].as_py())) for name in columns)


def partitions_of(rows: pa.Table, columns: Sequence[str]) -> Iterator[Partition]:
    """Returns the partitions of the rows, each once."""
    numbers = [str(at) for at in range(len(columns))]  # Arrow takes a name with a dot for a path, and refuses ``..``
    numbered = rows.select(list(columns)).rename_columns(numbers)
    distinct = numbered.group_by(numbers, use_threads=False).aggregate([]).select(numbers).rename_columns(list(columns))
    for row in range(distinct.num_rows):
        yield partition_values(distinct.slice(row, 1), columns)


def partition_set(specs: Iterable[Mapping[str, Any]], definition: TableDefinition) -> PartitionSet:
    """Parses partitions that a user names by values of some or all partition columns.

    Args:
        specs: Values of the columns' types, or their texts: ``{"day": date(2026, 1, 31)}``, ``{"day": "2026-01-31"}``.
        definition: The table's definition, which names the partition columns.

    Raises:
        InvalidRequest: the table is not partitioned (``not-partitioned``), a spec names no column or none is given
            (``no-partition``), a column is not a partition column (``unknown-partition-column``), or a value does not
            fit its column (``bad-partition-value``).
    """
    listed = list(specs)
    if not definition.partition_by:
        raise InvalidRequest("the table is not partitioned, so it has no partitions to name", code="not-partitioned")
    if not listed or not all(listed):
        raise InvalidRequest(
            f"no partition is named: give values of {', '.join(definition.partition_by)}, such as "
            f"{{{definition.partition_by[0]!r}: …}}",
            code="no-partition",
        )
    return PartitionSet.of(_spec(spec, definition) for spec in listed)


def chosen_partitions(specs: Iterable[Mapping[str, Any]] | None, definition: TableDefinition) -> PartitionSet:
    """Returns the partitions that a user names, as `partition_set`, or all for None."""
    return ALL_PARTITIONS if specs is None else partition_set(specs, definition)


def _spec(given: Mapping[str, Any], definition: TableDefinition) -> Partition:
    if unknown := [name for name in given if name not in definition.partition_by]:
        raise InvalidRequest(
            f"{unknown[0]!r} is not a partition column; the table is partitioned by "
            f"{', '.join(definition.partition_by)}",
            code="unknown-partition-column",
        )
    named = [definition.schema.column(name) for name in definition.partition_by if name in given]
    return tuple((column.name, _given_text(column.name, given[column.name], column.type)) for column in named)


def _given_text(name: str, value: Any, kind: pa.DataType) -> str | None:
    """Converts a user's value to the one text that partition values have for it."""
    if value is None:
        return None
    if isinstance(value, datetime) and value.tzinfo is None and pa.types.is_timestamp(kind) and kind.tz:
        raise InvalidRequest(
            f"partition column {name!r} is TIMESTAMP, and {value} has no time zone: give one, as "
            "moment.replace(tzinfo=UTC), or the text of the time in UTC",
            code="bad-partition-value",
        )
    try:
        parsed = _value(value, kind) if isinstance(value, str) else value
        stored = pa.scalar(parsed, kind).as_py()
    except (ValueError, TypeError, DecimalException, OverflowError) as error:
        raise _bad_value(name, value, kind) from error
    if stored != parsed or isinstance(parsed, bool) != pa.types.is_boolean(kind):
        raise _bad_value(name, value, kind)
    return _text(name, stored)


def _bad_value(name: str, value: Any, kind: pa.DataType) -> InvalidRequest:
    return InvalidRequest(
        f"partition column {name!r} is {to_sql(kind)}, and {value!r} is not: give a value of that type or its text",
        code="bad-partition-value",
    )


def _text(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if value == "":
        raise InvalidRequest(
            f"partition column {name!r} contains an empty string, which Delta reads as null: write null or a text",
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
    """Returns a column with `rows` times the value of the text."""
    return pa.repeat(pa.scalar(_value(text, kind), kind), rows)


def partition_column_of(texts: Iterable[str | None], kind: pa.DataType) -> pa.Array:
    """Returns a column with the values of some texts."""
    return pa.array([_value(text, kind) for text in texts], kind)


def with_partition(rows: pa.Table, partition: Partition, schema: pa.Schema) -> pa.Table:
    """Adds the partition columns to a file's rows; of the schema only columns that `rows` or the partition have."""
    values, own = dict(partition), set(rows.column_names)
    fields = [f for f in schema if f.name in values or f.name in own]
    columns = [
        partition_column(values[f.name], f.type, rows.num_rows) if f.name in values else rows.column(f.name)
        for f in fields
    ]
    return pa.table(columns, schema=pa.schema(fields))


def _value(text: str | None, kind: pa.DataType) -> Any:
    if text is None or pa.types.is_string(kind):
        return text
    if pa.types.is_boolean(kind):
        if text not in ("true", "false"):
            raise ValueError(f"{text!r} is neither 'true' nor 'false'")
        return text == "true"
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(text)
        if kind.tz is None:
            return moment
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if pa.types.is_date32(kind):
        return date.fromisoformat(text)
    return Decimal(text) if pa.types.is_decimal(kind) else int(text)
