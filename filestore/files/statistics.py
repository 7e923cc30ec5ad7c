"""Collects a file's statistics for Delta readers, batch by batch (FORMAT.md section 8).

The format is Delta's ("Per-file Statistics"). Bounds are always correct, but not always tight: long strings are
truncated (the upper bound is rounded up). A column has no bounds if it contains a NaN, whose order differs between
readers, or an infinity, which JSON lacks, or decimals too long for a double.
"""

from __future__ import annotations

import json
import math
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["StatisticsBuilder"]

_MAX_COLUMNS = 32
_MAX_TEXT = 64
EXACT_DIGITS = 15
_LAST_CHARACTER = "\U0010ffff"


class StatisticsBuilder:
    """Collects the statistics of one file for the first columns of a schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._bounded, self._counted = _measured(schema)
        self._low: dict[str, Any] = {}
        self._high: dict[str, Any] = {}
        self._nulls = dict.fromkeys(self._counted, 0)
        self._unbounded: set[str] = set()
        self.rows = 0

    def add(self, table: pa.Table) -> None:
        """Adds a table's rows."""
        self.rows += table.num_rows
        for name in self._counted:
            self._nulls[name] += table.column(name).null_count
        for name in self._bounded:
            self._widen(name, table.column(name))

    def _widen(self, name: str, column: pa.ChunkedArray) -> None:
        if name in self._unbounded:
            return
        if pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column), min_count=0).as_py():
            self._unbounded.add(name)
            self._low.pop(name, None)
            self._high.pop(name, None)
            return
        bounds = pc.min_max(column).as_py()
        low, high = bounds["min"], bounds["max"]
        if low is None:
            return
        if pa.types.is_floating(column.type):
            low, high = _zero(low, column, negative=True), _zero(high, column, negative=False)
        self._low[name] = min(self._low.get(name, low), low, key=_order)
        self._high[name] = max(self._high.get(name, high), high, key=_order)

    def to_json(self) -> str:
        """Returns Delta's ``stats`` text."""
        stats = {
            "numRecords": self.rows,
            "minValues": {n: _lower(v) for n, v in self._low.items()},
            "maxValues": {n: _upper(v) for n, v in self._high.items()},
            "nullCount": self._nulls,
        }
        return json.dumps(stats, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


@lru_cache(maxsize=256)
def _measured(schema: pa.Schema) -> tuple[list[str], list[str]]:
    """Returns the columns that have bounds, and those whose nulls are counted."""
    bounded = [f.name for f in schema if _has_bounds(f.type)]
    # nulls of a STRUCT would have to be counted for each field: readers expect an object there, not a number
    counted = [f.name for f in schema if not pa.types.is_struct(f.type)]
    return bounded[:_MAX_COLUMNS], counted[:_MAX_COLUMNS]


def _has_bounds(arrow: pa.DataType) -> bool:
    if pa.types.is_decimal(arrow):
        return bool(arrow.precision <= EXACT_DIGITS)
    return not (pa.types.is_nested(arrow) or pa.types.is_binary(arrow) or pa.types.is_boolean(arrow))


def _zero(bound: float, column: pa.ChunkedArray, *, negative: bool) -> float:
    """Returns a bound; one of zero has the sign that a reader needs which sorts -0.0 below 0.0, as far as it occurs."""
    if bound:
        return bound
    signs = np.signbit(column.filter(pc.equal(column, pa.scalar(0, column.type))).to_numpy())
    return -0.0 if (signs.any() if negative else signs.all()) else 0.0


def _order(bound: Any) -> Any:
    return (bound, math.copysign(1, bound)) if isinstance(bound, float) else bound


def _lower(value: Any) -> Any:
    return value[:_MAX_TEXT] if isinstance(value, str) else _plain(value)


def _upper(value: Any) -> Any:
    if isinstance(value, str):
        cut = len(value) > _MAX_TEXT and value[_MAX_TEXT] != _LAST_CHARACTER
        return value[:_MAX_TEXT] + _LAST_CHARACTER if cut else value
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        text = value.isoformat(timespec="microseconds")
        return text.replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value
