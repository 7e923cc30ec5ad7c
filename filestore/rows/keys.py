"""Encodes sort keys as text, and compares the keys of neighbouring rows (FORMAT.md section 7)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filestore.decoding import well_formed

__all__ = ["Key", "ascending", "changes", "decode_key", "encode_key", "key_at", "known_key"]

Key = tuple[Any, ...]
"""A key's values as Python objects that compare in the order in which the columns are sorted."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KNOWN = 4096


def key_at(table: pa.Table, columns: Sequence[str], row: int) -> Key:
    """Returns the key of one row."""
    return tuple(table.column(c)[row].as_py() for c in columns)


def encode_key(key: Key) -> str:
    """Encodes a key as JSON: numbers as they are, decimals, dates and times as ISO text, binary as hex."""
    return json.dumps([_plain(value) for value in key], ensure_ascii=False, separators=(",", ":"))


def decode_key(text: str, types: Sequence[pa.DataType]) -> Key:
    """Reverses `encode_key`, given the columns' types.

    Raises:
        Corrupt: ``bad-log-entry``: it is no such text.
    """
    with well_formed(f"the key {text} in the Delta log", code="bad-log-entry"):
        return tuple(_value(plain, kind) for plain, kind in zip(json.loads(text), types, strict=True))


@lru_cache(maxsize=_KNOWN)
def known_key(text: str, types: tuple[pa.DataType, ...]) -> Key:
    """Decodes as `decode_key` does, and remembers: each write asks for the bounds of the same files."""
    return decode_key(text, types)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (aware - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value


def _value(plain: Any, kind: pa.DataType) -> Any:
    if pa.types.is_binary(kind):
        return bytes.fromhex(plain)
    if pa.types.is_timestamp(kind):
        moment = _EPOCH + timedelta(microseconds=plain)
        return moment if kind.tz else moment.replace(tzinfo=None)
    if pa.types.is_date32(kind):
        return date.fromisoformat(plain)
    return Decimal(plain) if pa.types.is_decimal(kind) else plain


def changes(table: pa.Table, columns: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Marks the rows, except the first, of which a column differs from that of the row before (nulls are equal)."""
    result = np.zeros(max(table.num_rows - 1, 0), dtype=np.bool_)
    for name in columns:
        column = table.column(name)
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        before, after = column[:-1], column[1:]
        differ = pc.not_equal(before, after)
        if column.null_count:
            differ = pc.or_(pc.fill_null(differ, False), pc.xor(before.is_null(), after.is_null()))
        result |= np.asarray(differ)
    return result


def ascending(table: pa.Table, columns: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Marks the rows, except the last, whose next row has a greater key."""
    count = max(table.num_rows - 1, 0)
    result = np.zeros(count, dtype=np.bool_)
    for name in reversed(columns):
        here, after = table.column(name).slice(0, count), table.column(name).slice(1)
        above = pc.fill_null(pc.less(here, after), False).to_numpy()
        if name == columns[-1]:
            result = above
        elif not above.all():
            result = above | (pc.fill_null(pc.equal(here, after), False).to_numpy() & result)
        else:
            result = above
    return result
