"""Encodes rows as Avro datums: joins columns of bytes, as a datum is its fields' bytes end to end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filestore.rows.casting import cast_column

__all__ = ["datums"]

_DECIMAL_BYTES = 16
_Part = Any  # pa.Array or pa.Scalar, of binary


def datums(rows: pa.Table, schema: pa.Schema, prefix: bytes = b"") -> pa.Array:
    """Encodes each row as a datum, in the schema of `avro_schema`.

    Args:
        rows: The schema's columns.
        schema: Says which are nullable, and so unions.
        prefix: What stands before each datum.
    """
    parts: list[_Part] = [_constant(prefix)] if prefix else []
    for column, field in zip(rows.columns, schema, strict=True):
        parts += _parts(column.combine_chunks(), field)
    return _joined(parts, rows.num_rows)


def _joined(parts: Sequence[_Part], length: int) -> pa.Array:
    empty = pa.array(np.zeros(length, bool))
    arrays = [p for p in parts if isinstance(p, pa.Array)]
    if not arrays:
        return pc.if_else(empty, pa.scalar(b""), pa.scalar(b"".join(p.as_py() for p in parts)))
    return pc.binary_join_element_wise(*parts, _constant(b"")) if len(parts) > 1 else arrays[0]


def _constant(value: bytes) -> pa.Scalar:
    return pa.scalar(value, pa.binary())


def _parts(array: pa.Array, field: pa.Field) -> list[_Part]:
    """The columns of bytes whose join is the column, with its union's branch."""
    if not field.nullable:
        return _values(array)
    if not array.null_count:
        return [_constant(b"\x02"), *_values(array)]
    valid = array.is_valid()
    filled = [pc.if_else(valid, part, _constant(b"")) for part in _values(array)]
    return [pc.if_else(valid, _constant(b"\x02"), _constant(b"\x00")), *filled]


def _values(array: pa.Array) -> list[_Part]:
    """Returns the bytes of values; those of a null are arbitrary, and not used."""
    kind = array.type
    if pa.types.is_boolean(kind):
        return [pc.if_else(array.fill_null(False), _constant(b"\x01"), _constant(b"\x00"))]
    if pa.types.is_floating(kind):
        numbers = np.ascontiguousarray(array.fill_null(0).to_numpy().astype(f"<f{kind.bit_width // 8}"))
        return [_cut(np.full(len(numbers), numbers.itemsize), numbers.view(np.uint8))]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        data = array.cast(pa.binary()).fill_null(b"")
        return [_varints(pc.binary_length(data).to_numpy()), data]
    if pa.types.is_decimal(kind):
        data = _twos_complement(array)
        return [_varints(pc.binary_length(data).to_numpy()), data]
    if pa.types.is_struct(kind):
        parts = [_parts(child, field) for child, field in zip(array.flatten(), kind, strict=True)]
        return [part for of_field in parts for part in of_field]
    if pa.types.is_list(kind):
        items = array.flatten()
        return [_blocks(array, _joined(_parts(items, kind.value_field), len(items)))]
    if pa.types.is_map(kind):
        return [_map(array)]
    whole = array.cast(pa.int32()) if pa.types.is_date(kind) else array
    return [_varints(whole.cast(pa.int64()).fill_null(0).to_numpy())]


def _map(array: pa.Array) -> pa.Array:
    kind = array.type
    pair = pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)])
    entries = cast_column(array, pa.list_(pair))
    keys, items = entries.flatten().flatten()
    return _blocks(entries, _joined([*_values(keys), *_parts(items, kind.item_field)], len(keys)))


def _blocks(lists: pa.Array, items: pa.Array) -> pa.Array:
    """Lists as one block each, and the end: their items' bytes are side by side already."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    firsts = np.concatenate([[0], np.cumsum(lengths)])
    offsets = np.frombuffer(items.buffers()[1], np.int32, len(items) + 1, items.offset * 4)[firsts]
    data = pa.Array.from_buffers(pa.binary(), len(lists), [None, pa.py_buffer(offsets.tobytes()), items.buffers()[2]])
    counts = pc.if_else(pa.array(lengths > 0), _varints(lengths), _constant(b""))
    return pc.binary_join_element_wise(counts, data, _constant(b"\x00"), _constant(b""))


def _varints(values: npt.NDArray[Any]) -> pa.Array:
    """Encodes whole numbers in zigzag and groups of seven bits, the lowest first."""
    signed = values.astype(np.int64)
    zigzag = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    sizes = np.ones(len(zigzag), np.int64)
    highest = int(zigzag.max(initial=0))
    for group in range(1, 10):
        if highest >> (7 * group) == 0:
            break
        sizes += zigzag >= np.uint64(1 << (7 * group))
    width = int(sizes.max(initial=1))
    shifts = np.arange(width, dtype=np.uint64) * np.uint64(7)
    groups = ((zigzag[:, None] >> shifts) & np.uint64(0x7F)).astype(np.uint8)
    place = np.arange(width)
    groups |= np.where(place < (sizes - 1)[:, None], 0x80, 0).astype(np.uint8)
    return _cut(sizes, groups[place < sizes[:, None]] if width > 1 else groups.ravel())


def _twos_complement(array: pa.Array) -> pa.Array:
    """Encodes unscaled decimals, the highest byte first, in as few bytes as hold them."""
    stored = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * _DECIMAL_BYTES :][: len(array) * _DECIMAL_BYTES]
    big = stored.reshape(-1, _DECIMAL_BYTES)[:, ::-1]
    sign = np.where(big[:, :1] & 0x80, 0xFF, 0).astype(np.uint8)
    # A byte can go if it and the highest bit of the next are the sign.
    spare = (big[:, :-1] == sign) & ((big[:, 1:] & 0x80) == (sign & 0x80))
    first = np.where(spare.all(axis=1), _DECIMAL_BYTES - 1, np.argmin(spare, axis=1))
    return _cut(_DECIMAL_BYTES - first, big[np.arange(_DECIMAL_BYTES) >= first[:, None]])


def _cut(sizes: npt.NDArray[Any], data: npt.NDArray[np.uint8]) -> pa.Array:
    """Bytes cut into values of those sizes."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data.tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)
