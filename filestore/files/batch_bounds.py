"""Bounds of the values in many files at once, from their actions as columns (`filestore.delta.batch.Batch`).

They are those of `filestore.files.bounds` or wider: those of a DECIMAL are wider by one in its last place, values that
polars may change by more have none, and keys are not looked at. So they choose the files that are worth a closer look.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from filestore.delta.batch import Batch
from filestore.files.bounds import Bounds
from filestore.files.statistics import EXACT_DIGITS
from filestore.lazily import pl
from filestore.model.definition import TableDefinition
from filestore.rows.frames import polars_schema
from filestore.rows.partitions import partition_column_of

__all__ = ["batch_bounds", "partition_bounds"]

_DATE, _TIME = "%Y-%m-%d", "%Y-%m-%dT%H:%M:%S%.6f"
_Known: TypeAlias = "tuple[pl.Series, pl.Series, pl.Series]"
"""A lower and an upper bound of one column, and its number of nulls, for each file; null where they are not known."""


def partition_bounds(batch: Batch, columns: Collection[str], definition: TableDefinition) -> Bounds:
    """Returns the bounds of partition columns alone, as if each file had one row."""
    return _bounds(batch, columns, definition, pl.Series([1], dtype=pl.Int64).new_from_index(0, len(batch)), {})


def batch_bounds(batch: Batch, columns: Collection[str], definition: TableDefinition) -> Bounds:
    """Returns the bounds of partition columns and of those that have statistics."""
    named = {name: definition.schema.column(name) for name in columns if name not in definition.partition_by}
    stored = {column.in_files: column.type for column in named.values() if _is_exact(column.type)}
    if not stored:
        return partition_bounds(batch, columns, definition)
    rows, found = _statistics(batch, stored)
    known = {name: found[column.in_files] for name, column in named.items() if column.in_files in found}
    return _bounds(batch, columns, definition, rows, known)


def _bounds(
    batch: Batch,
    columns: Collection[str],
    definition: TableDefinition,
    rows: pl.Series,
    known: Mapping[str, _Known],
) -> Bounds:
    exact = [name for name in batch.partition_by if name in columns and name in definition.partition_by]
    values = {name: _partition(batch, name, definition.schema.column(name).type) for name in exact}
    nulls = {name: rows * value.is_null().cast(pl.Int64) for name, value in values.items()}
    return Bounds(
        pl.DataFrame(values | {name: low for name, (low, _, _) in known.items()}),
        pl.DataFrame(values | {name: high for name, (_, high, _) in known.items()}),
        pl.DataFrame(nulls | {name: count for name, (_, _, count) in known.items()}),
        rows,
        frozenset(exact),
    )


def _partition(batch: Batch, name: str, kind: pa.DataType) -> pl.Series:
    """Returns the value of a partition column in each file."""
    memo = ("partition", name, str(kind))
    if memo not in batch.memo:
        coded = batch.partitions[list(batch.partition_by).index(name)].dictionary_encode("encode")
        each = partition_column_of(coded.dictionary.to_pylist(), kind)
        values = pl.Series(each.take(coded.indices), dtype=_type(kind))
        batch.memo.keep(memo, values, _bytes(values))
    found: pl.Series = batch.memo[memo]
    return found


def _statistics(batch: Batch, stored: Mapping[str, pa.DataType]) -> tuple[pl.Series, dict[str, _Known]]:
    """Returns the rows of each file, and what the statistics say of some columns, by their names in files."""
    memos = {name: ("statistics", name, str(kind)) for name, kind in stored.items()}
    missing = {name: stored[name] for name, memo in memos.items() if memo not in batch.memo}
    if missing:
        stats = pl.Series(pc.struct_field(batch.adds, "stats"), dtype=pl.String)
        rows, decoded = _decoded(stats, missing)
        batch.memo.keep("rows", rows, _bytes(rows))
        for name, known in decoded.items():
            batch.memo.keep(memos[name], known, sum(map(_bytes, known)))
    return batch.memo["rows"], {name: batch.memo[memo] for name, memo in memos.items()}


def _decoded(stats: pl.Series, wanted: Mapping[str, pa.DataType]) -> tuple[pl.Series, dict[str, _Known]]:
    values = pl.Struct({name: _plain(kind) for name, kind in wanted.items()})
    counts = pl.Struct(dict.fromkeys(wanted, pl.Int64()))
    members = {"numRecords": pl.Int64(), "minValues": values, "maxValues": values, "nullCount": counts}
    try:
        found = stats.str.json_decode(pl.Struct(members)).struct.unnest()
    except pl.exceptions.PolarsError:  # a value of another type, such as a number that was widened to a text
        found = pl.DataFrame(schema=members).clear(len(stats))
    low, high, nulls = (found[name].struct.unnest() for name in list(members)[1:])
    known = {n: (_values(low[n], kind, -1), _values(high[n], kind, 1), nulls[n]) for n, kind in wanted.items()}
    return found["numRecords"], known


def _is_exact(kind: pa.DataType) -> bool:
    """Returns whether polars decodes values of the statistics, at most with a loss that `_values` makes good."""
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or _is_short_decimal(kind)
    return bool(number or pa.types.is_string(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def _is_short_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind) and kind.precision <= EXACT_DIGITS)


def _plain(kind: pa.DataType) -> pl.DataType:
    """Returns as what polars decodes a value of the statistics."""
    if pa.types.is_integer(kind):
        return pl.Int64()
    number = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return pl.Float64() if number else pl.String()


def _values(plain: pl.Series, kind: pa.DataType, outwards: int) -> pl.Series:
    """Converts values of the statistics to a column's type; what does not fit is not known.

    Args:
        plain: The values as they were decoded.
        kind: The type.
        outwards: -1 for lower bounds, 1 for upper ones.
    """
    if pa.types.is_decimal(kind):  # JSON's number became a double, which is rounded
        near = plain.cast(pl.Decimal(38, kind.scale), strict=False)
        return (near + Decimal(outwards).scaleb(-kind.scale)).cast(_type(kind), strict=False)
    if pa.types.is_date32(kind):
        return plain.str.to_date(_DATE, strict=False)
    if pa.types.is_timestamp(kind):
        utc = kind.tz is not None
        return plain.str.to_datetime(_TIME + ("Z" if utc else ""), time_unit="us", strict=False).cast(_type(kind))
    return plain.cast(_type(kind), strict=False)


def _type(kind: pa.DataType) -> pl.DataType:
    [found] = polars_schema(pa.schema([("it", kind)])).values()
    return found


def _bytes(values: pl.Series) -> int:
    return int(values.estimated_size())
