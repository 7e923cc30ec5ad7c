"""Derives bounds and null counts of the values in files or row groups, without reading the values.

For files they come from Delta statistics, key tags and partition values; for row groups from Parquet footers. Bounds
are correct, but need not be tight (see `filestore.files.statistics`); null means unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from filestore.files.footers import Footer
from filestore.lazily import pl
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile
from filestore.rows.frames import polars_schema
from filestore.rows.keys import decode_key
from filestore.rows.partitions import partition_column

__all__ = ["Bounds", "file_bounds", "row_group_bounds"]


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """One row for each file or row group, one column for each requested column of the table.

    Attributes:
        low: A value at or below every value.
        high: A value at or above every value.
        nulls: The number of nulls.
        rows: The number of rows, deleted ones included.
        exact: The columns that have one value throughout, which is `low` and `high`.
    """

    low: pl.DataFrame
    high: pl.DataFrame
    nulls: pl.DataFrame
    rows: pl.Series
    exact: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Known:
    """The bounds of one file or row group, while they are collected."""

    rows: int
    low: dict[str, Any] = field(default_factory=dict)
    high: dict[str, Any] = field(default_factory=dict)
    nulls: dict[str, int] = field(default_factory=dict)


def file_bounds(files: Iterable[DataFile], columns: Sequence[str], definition: TableDefinition) -> Bounds:
    """Returns the bounds that the Delta log has for files."""
    types = _bounded_types(columns, definition)
    known = [_of_file(file, types, definition) for file in files]
    exact = frozenset(types) & frozenset(definition.partition_by)
    return _bounds(known, types, exact)


def row_group_bounds(
    opened: Iterable[tuple[Footer, DataFile]], columns: Sequence[str], definition: TableDefinition
) -> Bounds:
    """Returns the bounds of the files' row groups, from their footers; one file's after the other's."""
    types = _bounded_types(columns, definition)
    stored = {n: definition.schema.column(n).in_files for n in types if n not in definition.partition_by}
    known = [group for footer, file in opened for group in _of_row_groups(footer, file, stored, types)]
    return _bounds(known, types, frozenset(types) - frozenset(stored))


def _of_row_groups(
    footer: Footer, file: DataFile, stored: Mapping[str, str], types: Mapping[str, pa.DataType]
) -> list[_Known]:
    leaves = {name: footer.leaf(in_file) for name, in_file in stored.items()}
    absent = [name for name, leaf in leaves.items() if leaf is None]  # they were added to the table after the file
    # the footers of files from before edition 2 have bounds for these, too, which ignore NaN (FORMAT.md section 7)
    floating = {name for name in stored if pa.types.is_floating(types[name])}
    safe = {name: leaf for name, leaf in leaves.items() if leaf is not None and name not in floating}
    groups = range(footer.metadata.num_row_groups)
    known = [_of_row_group(footer.metadata.row_group(group), safe) for group in groups]
    for group in known:
        group.nulls |= dict.fromkeys(absent, group.rows)
        _add_partition(group, file, types)
    return known


def _bounded_types(columns: Sequence[str], definition: TableDefinition) -> dict[str, pa.DataType]:
    types = {name: definition.schema.column(name).type for name in columns}
    return {name: kind for name, kind in types.items() if not pa.types.is_nested(kind)}


def _of_file(file: DataFile, types: Mapping[str, pa.DataType], definition: TableDefinition) -> _Known:
    stats = json.loads(file.stats, parse_float=Decimal)
    known = _Known(file.rows)
    for name, kind in types.items():
        in_file = definition.schema.column(name).in_files
        if in_file in stats["minValues"]:
            known.low[name] = _value(stats["minValues"][in_file], kind)
            known.high[name] = _value(stats["maxValues"][in_file], kind)
        if in_file in stats["nullCount"]:
            known.nulls[name] = stats["nullCount"][in_file]
    _add_key_bounds(known, file, types, definition)
    _add_partition(known, file, types)
    return known


def _add_partition(known: _Known, file: DataFile, types: Mapping[str, pa.DataType]) -> None:
    for name, text in file.slot.partition:
        if name in types:
            known.low[name] = known.high[name] = partition_column(text, types[name], 1)[0].as_py()
            known.nulls[name] = known.rows if text is None else 0


def _add_key_bounds(
    known: _Known, file: DataFile, types: Mapping[str, pa.DataType], definition: TableDefinition
) -> None:
    """The first and last key bound the first key column, and each next one while those before it are constant."""
    if file.min_key is None or file.max_key is None:
        return
    key = definition.sort_key
    key_types = [definition.schema.column(name).type for name in key]
    first, last = decode_key(file.min_key, key_types), decode_key(file.max_key, key_types)
    for name, low, high in zip(key, first, last, strict=True):
        if name in types:
            known.low[name], known.high[name] = low, high
        if low != high:
            return


def _of_row_group(group: pq.RowGroupMetaData, columns: Mapping[str, int]) -> _Known:
    known = _Known(group.num_rows)
    for name, index in columns.items():
        statistics = group.column(index).statistics
        if statistics is None:
            continue
        if statistics.has_min_max:
            known.low[name], known.high[name] = statistics.min, statistics.max
        if statistics.has_null_count:
            known.nulls[name] = statistics.null_count
    return known


def _value(plain: Any, kind: pa.DataType) -> Any:
    """Parses a value of Delta's statistics, as `filestore.files.statistics` writes it."""
    if pa.types.is_floating(kind):
        return float(plain)
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(plain)
    if pa.types.is_date32(kind):
        return date.fromisoformat(plain)
    return Decimal(plain) if pa.types.is_decimal(kind) else plain


def _bounds(known: Sequence[_Known], types: Mapping[str, pa.DataType], exact: frozenset[str]) -> Bounds:
    schema = polars_schema(pa.schema(list(types.items())))
    return Bounds(
        pl.DataFrame([k.low for k in known], schema=schema),
        pl.DataFrame([k.high for k in known], schema=schema),
        pl.DataFrame([k.nulls for k in known], schema=dict.fromkeys(types, pl.Int64)),
        pl.Series([k.rows for k in known], dtype=pl.Int64),
        exact,
    )
