"""Casts rows to a schema, nested columns included: a STRUCT with NOT NULL fields may be null itself.

Arrow's own cast refuses such a column, even a cast to its own type, if the fields are null where the STRUCT is, and so
does its writer of Parquet files. So nested values are cast to types whose fields may all be null. Then those fields are
checked where the STRUCT is not null, and have any value where it is, which nobody reads.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

__all__ = ["cast_column", "cast_rows"]


def cast_rows(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Returns the columns of a schema with exactly its types; other columns are left out.

    Raises:
        ArrowInvalid: a value does not fit, or a column or a field of one is NOT NULL and has a null.
    """
    columns = [cast_column(rows.column(field.name), field.type) for field in schema]
    for field, column in zip(schema, columns, strict=True):
        if not field.nullable and column.null_count:
            raise pa.ArrowInvalid(f"column {field.name!r} is NOT NULL and has {column.null_count} nulls")
    return pa.table(columns, schema=schema)


def cast_column(values: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    """Casts a column; maps become arrays of their entries, and such arrays maps, as merge engines and JSON have them.

    Raises:
        ArrowInvalid: a value does not fit, or a field is NOT NULL and has a null.
    """
    if not pa.types.is_nested(kind):
        return values.cast(kind)
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([cast_column(chunk, kind) for chunk in values.chunks], kind)
    relaxed = _relaxed(kind)
    if pa.types.is_map(kind) and not pa.types.is_map(values.type):
        values = _maps(values, relaxed)
    return _retyped(values.cast(relaxed), kind)


def _maps(lists: pa.Array, kind: pa.MapType) -> pa.Array:
    """Converts arrays of entries to maps: the layout is the same."""
    entries = _entries(kind)
    found = lists.cast(pa.list_(_relaxed(entries)))
    return _with_elements(found, kind, _retyped(found.values, entries))


def _entries(kind: pa.MapType) -> pa.StructType:
    return pa.struct([kind.key_field, kind.item_field])


def _relaxed(kind: pa.DataType) -> pa.DataType:
    """The type with all nested fields nullable: a null STRUCT has null children, even if they are NOT NULL."""
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_relaxed(kind.value_type)).with_nullable(True))
    if pa.types.is_map(kind):
        item = kind.item_field.with_type(_relaxed(kind.item_type)).with_nullable(True)
        return pa.map_(kind.key_field.with_type(_relaxed(kind.key_type)), item)
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_relaxed(f.type)).with_nullable(True) for f in kind])
    return kind


def _retyped(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Converts a relaxed type to the one that differs only in nullability; values are not copied."""
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        # `flatten` returns the fields of a slice, which are null where the struct is
        parts = zip(array.flatten(), kind, strict=True)
        children = [_field(values, field, array.null_count) for values, field in parts]
        return pa.StructArray.from_arrays(
            children, fields=list(kind), mask=array.is_null() if array.null_count else None
        )
    array = _compact(array)
    inner = pa.field("entries", _entries(kind), nullable=False) if pa.types.is_map(kind) else kind.value_field
    return _with_elements(array, kind, _field(array.values, inner, 0))


def _field(values: pa.Array, field: pa.Field, below_nulls: int) -> pa.Array:
    """Converts the values of a nested field, of which so many are null because what contains them is."""
    if field.nullable:
        return _retyped(values, field.type)
    if values.null_count > below_nulls:
        raise pa.ArrowInvalid(f"field {field.name!r} is NOT NULL and has {values.null_count - below_nulls} nulls")
    found = _retyped(values, field.type)
    return _without_nulls(found) if found.null_count else found


def _without_nulls(array: pa.Array) -> pa.Array:
    """Returns the array with any values in place of nulls: those that its memory has there."""
    kind = array.type
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([array.field(n) for n in range(kind.num_fields)], fields=list(kind))
    if pa.types.is_nested(kind):
        return _with_elements(array, kind, array.values, nulls=False)
    buffers = [None, *array.buffers()[1:]]
    return pa.Array.from_buffers(kind, len(array), buffers, null_count=0, offset=array.offset)


def _compact(lists: pa.Array) -> pa.Array:
    """Returns lists or maps whose array of elements has no others: those of a null or around a slice are no values."""
    lengths = np.diff(np.asarray(lists.offsets))[np.asarray(lists.is_valid())]
    return lists if lengths.sum() == len(lists.values) else lists.take(pa.array(np.arange(len(lists))))


def _with_elements(lists: pa.Array, kind: pa.DataType, elements: pa.Array, *, nulls: bool = True) -> pa.Array:
    """Returns lists or maps with the same offsets and other elements."""
    validity, offsets = lists.buffers()[:2]
    buffers = [validity if nulls else None, offsets]
    return pa.Array.from_buffers(kind, len(lists), buffers, offset=lists.offset, children=[elements])
