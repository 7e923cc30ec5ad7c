"""Converts between polars frames and a table's Arrow types: polars lacks nested NOT NULL and has its own strings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from filestore.lazily import pl
from filestore.rows.casting import cast_column

__all__ = [
    "arrow_table",
    "frame_of",
    "gatherable",
    "larger_frames",
    "narrowed",
    "polars_schema",
    "row_group_frames",
    "with_entries",
    "with_maps",
]

_GROUP_BYTES = 64 << 20
"""Row groups of wide rows have about this many bytes, as those of a write have."""


def frame_of(rows: pa.Table) -> pl.DataFrame:
    """Converts an Arrow table to a polars frame."""
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame


def polars_schema(schema: pa.Schema) -> dict[str, pl.DataType]:
    """The polars types of a table's columns."""
    return dict(frame_of(schema.empty_table()).schema)


def narrowed(values: pl.Series, kind: pl.DataType) -> pl.Series:
    """Converts values to another type; those that it does not have become null, which equals no key.

    Different values stay different. A column may have been widened since, and what it is compared with has not.
    """
    if values.dtype == kind:
        return values
    found = values.cast(kind, strict=False)
    return found.set((found.cast(values.dtype, strict=False) != values).fill_null(value=False), None)


def larger_frames(frames: Iterable[pl.DataFrame], rows: int, size: int) -> Iterator[pl.DataFrame]:
    """Joins frames that follow each other, until they have so many rows or bytes: each frame takes a fixed time."""
    held: list[pl.DataFrame] = []
    held_rows = held_bytes = 0
    for frame in frames:
        held.append(frame)
        held_rows, held_bytes = held_rows + frame.height, held_bytes + int(frame.estimated_size())
        if held_rows >= rows or held_bytes >= size:
            yield pl.concat(held)
            held, held_rows, held_bytes = [], 0, 0
    if held:
        yield pl.concat(held)


def with_maps(frame: pl.DataFrame, schema: pa.Schema) -> pl.DataFrame:
    """Converts the arrays of entries that `with_entries` has made to the maps of the schema again."""
    maps = {field.name for field in schema if pa.types.is_map(field.type)} & set(frame.columns)
    if not maps:
        return frame
    types = polars_schema(schema)
    return frame.with_columns(pl.col(name).cast(types[name]) for name in maps)


def gatherable(frame: pl.DataFrame) -> pl.DataFrame:
    """Returns the frame as one whose rows can be taken, sorted or joined: in one chunk if it has nested columns.

    Of several chunks polars panics for maps, or makes lists and maps whose buffers Arrow refuses.
    """
    return frame.rechunk() if any(kind.is_nested() for kind in frame.dtypes) else frame


def arrow_table(frame: pl.DataFrame, schema: pa.Schema) -> pa.Table:
    """Converts a frame to exactly that schema: restores types that polars changed, and NOT NULL."""
    # Polars copies texts once. Arrow's cast of views does not know the size in advance, and takes the memory twice; and
    # of lists whose rows were gathered from several chunks polars returns views that Arrow refuses.
    found = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    return pa.table([cast_column(found.column(field.name), field.type) for field in schema], schema=schema)


def with_entries(frame: pl.DataFrame) -> pl.DataFrame:
    """Converts maps to arrays of their entries: polars has no operations for maps."""
    maps = {name: kind for name, kind in frame.schema.items() if isinstance(kind, pl.Map)}
    entries = [
        pl.col(name).cast(pl.List(pl.Struct({"key": kind.key, "value": kind.value}))) for name, kind in maps.items()
    ]
    return frame.with_columns(entries)


def row_group_frames(frames: Iterable[pl.DataFrame], rows: int) -> Iterator[pl.DataFrame]:
    """Cuts a stream of frames into frames of `rows` rows, or of about 64 MB; only the last one is smaller."""
    held: list[pl.DataFrame] = []
    held_rows = held_bytes = 0
    for frame in frames:
        held.append(frame)
        held_rows += frame.height
        held_bytes += int(frame.estimated_size())
        if held_rows < rows and held_bytes < _GROUP_BYTES:
            continue
        joined = pl.concat(held, rechunk=False)
        size = max(1, min(rows, held_rows * _GROUP_BYTES // max(held_bytes, 1)))
        whole = held_rows - held_rows % size
        yield from (joined.slice(start, size) for start in range(0, whole, size))
        rest = joined.slice(whole)
        held, held_rows, held_bytes = [rest], rest.height, int(rest.estimated_size())
    if held_rows:
        yield pl.concat(held, rechunk=False)
