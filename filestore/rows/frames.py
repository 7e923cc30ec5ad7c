"""Polars frames and a table's Arrow types. Polars knows no NOT NULL inside a type and has its own strings."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

__all__ = ["arrow_table", "frame_of", "polars_schema", "with_entries"]


def frame_of(rows: pa.Table) -> pl.DataFrame:
    """The table as polars has it."""
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame


def polars_schema(schema: pa.Schema) -> dict[str, pl.DataType]:
    """The polars types of a table's columns."""
    return dict(frame_of(schema.empty_table()).schema)


def arrow_table(frame: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    """The frame with exactly that schema: what polars made of its types and forgot of NOT NULL is put back."""
    views = [column for column in frame.get_columns() if column.dtype in (pl.String, pl.Binary)]
    rest = [column for column in frame.get_columns() if column.dtype not in (pl.String, pl.Binary)]
    # Polars copies strings once. Arrow's cast of views does not know how many bytes it needs, and takes memory twice.
    texts = pl.DataFrame(views).to_arrow(compat_level=pl.CompatLevel.oldest())
    others = pl.DataFrame(rest).to_arrow(compat_level=pl.CompatLevel.newest())
    found = dict(zip((*texts.column_names, *others.column_names), (*texts.columns, *others.columns), strict=True))
    return pa.table([_typed(found[field.name], field.type) for field in schema], schema=schema)


def with_entries(frame: pl.DataFrame) -> pl.DataFrame:
    """Maps as arrays of their entries: polars can do nothing with a map."""
    maps = {name: kind for name, kind in frame.schema.items() if isinstance(kind, pl.Map)}
    entries = [
        pl.col(name).cast(pl.List(pl.Struct({"key": kind.key, "value": kind.value}))) for name, kind in maps.items()
    ]
    return frame.with_columns(entries)


def _typed(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    relaxed = _relaxed(kind)
    if pa.types.is_map(kind) and not pa.types.is_map(column.type):
        column = _maps(column, relaxed)
    column = column.cast(relaxed)
    if relaxed == kind:
        return column
    return pa.chunked_array([_relabelled(chunk, kind) for chunk in column.chunks], kind)


def _maps(column: pa.ChunkedArray, kind: pa.MapType) -> pa.ChunkedArray:
    """Arrays of entries, which is how merge engines have maps, as maps: the layout is the same."""
    entries = pa.struct([kind.key_field, kind.item_field])
    arrays = column.cast(pa.list_(pa.struct([field.with_nullable(True) for field in entries]))).chunks
    maps = [
        pa.Array.from_buffers(kind, len(a), a.buffers()[:2], offset=a.offset, children=[_relabelled(a.values, entries)])
        for a in arrays
    ]
    return pa.chunked_array(maps, kind)


def _relaxed(kind: pa.DataType) -> pa.DataType:
    """The type with all nested fields nullable: a null struct has null children, even if they are NOT NULL."""
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_relaxed(kind.value_type)).with_nullable(True))
    if pa.types.is_map(kind):
        item = kind.item_field.with_type(_relaxed(kind.item_type)).with_nullable(True)
        return pa.map_(kind.key_field.with_type(_relaxed(kind.key_type)), item)
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_relaxed(f.type)).with_nullable(True) for f in kind])
    return kind


def _relabelled(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same buffers under a type that differs in nullability only."""
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        own, children = 1, [_relabelled(array.field(i), f.type) for i, f in enumerate(kind)]
    elif pa.types.is_list(kind):
        own, children = 2, [_relabelled(array.values, kind.value_type)]
    else:
        entries = pa.struct([kind.key_field, kind.item_field])
        pairs = pa.StructArray.from_arrays([array.keys, array.items], fields=list(_relaxed(entries)))
        own, children = 2, [_relabelled(pairs, entries)]
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:own], offset=array.offset, children=children)
