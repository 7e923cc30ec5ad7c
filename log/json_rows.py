"""Rows as JSON objects and back, exactly (PROTOCOL.md section 3.2). Vectorised: polars writes, Arrow parses.

| column type | JSON |
|---|---|
| BOOLEAN, integers | literal, number (BIGINT beyond 2^53 too: parse it as an integer) |
| FLOAT, DOUBLE | number, shortest that gives the same bits; see below for NaN and infinities |
| DECIMAL | string in plain notation with all digits of its scale, since JSON numbers lose digits in many readers |
| STRING | string |
| BINARY | string, base64 |
| DATE | string ``2020-01-31`` |
| TIMESTAMP, TIMESTAMP_NTZ | string ``2020-01-31T23:59:59.123456Z``, for NTZ without ``Z``; years 0001 to 9999 |
| ARRAY, STRUCT | array, object |
| MAP | array of ``{"key": …, "value": …}``, since keys of JSON objects are strings only |
| NULL | ``null``; a member that is absent is null as well |

JSON has no NaN and no infinity. If the text of a row has ``"NaN"``, ``"Infinity"`` or ``"-Infinity"``
anywhere, then *all* floating numbers of the row are strings, so that a reader knows from the text which form
it has before parsing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from filestore.errors import InvalidRequest
from filestore.lazily import pl
from filestore.model.types import contains_type
from filestore.rows.casting import cast_rows

__all__ = ["check_range", "decode_rows", "encode_rows", "floats_are_text", "leaves", "quoted"]

_TIMESTAMP_FORMAT = "%Y-%m-%dT%H:%M:%S%.6f"
_FIRST_MICROSECOND = -62_135_596_800_000_000  # 0001-01-01
_LAST_MICROSECOND = 253_402_300_799_999_999  # 9999-12-31
_DAY = 86_400_000_000


def encode_rows(rows: pa.Table) -> pl.Series:
    """Encodes each row as the text of a JSON object.

    Raises:
        InvalidRequest: ``log-value-range``: a date or timestamp outside the years 0001 to 9999.
    """
    for field in rows.schema:
        check_range(rows[field.name], field.name)
    frame = _frame(rows)
    text = _to_json(frame, rows.schema, floats_as_text=False)
    if not any(_has_float(f.type) for f in rows.schema):
        return text
    if not _is_finite(rows) or floats_are_text(text).any():
        textual = _to_json(frame, rows.schema, floats_as_text=True)
        return textual.zip_with(floats_are_text(textual), text)
    return text


def decode_rows(text: pl.Series, schema: pa.Schema) -> pa.Table:
    """Decodes rows from such texts. Members that the schema lacks are skipped, absent ones are null.

    Raises:
        pa.ArrowInvalid: a text is no such object.
    """
    if not any(_has_float(f.type) for f in schema):
        return _parse(text, schema, floats_as_text=False)
    textual = floats_are_text(text)
    if not textual.any():
        return _parse(text, schema, floats_as_text=False)
    parts = [
        _parse(text.filter(~textual), schema, floats_as_text=False),
        _parse(text.filter(textual), schema, floats_as_text=True),
    ]
    order = pl.concat([(~textual).arg_true(), textual.arg_true()]).arg_sort()
    return pa.concat_tables(parts).take(order.to_arrow()).combine_chunks()


def quoted(text: str) -> str:
    """A JSON string."""
    return json.dumps(text, ensure_ascii=False)


def floats_are_text(text: pl.Series) -> pl.Series:
    """Returns for each text whether its floating numbers are strings."""
    return text.str.contains('"NaN"|Infinity"')


# ------------------------------------------------------------------------------------------------ encoding


def _to_json(frame: pl.DataFrame, schema: pa.Schema, *, floats_as_text: bool) -> pl.Series:
    columns = [_written(pl.col(f.name), f.type, floats_as_text).alias(f.name) for f in schema]
    return frame.select(pl.struct(columns).struct.json_encode()).to_series()


def _written(value: pl.Expr, kind: pa.DataType, floats_as_text: bool) -> pl.Expr:
    """Returns an expression of booleans, numbers, strings, lists and structs only, whose JSON is the one above."""
    if pa.types.is_floating(kind) and floats_as_text:
        return value.cast(pl.String).replace({"inf": "Infinity", "-inf": "-Infinity"})
    if pa.types.is_nested(kind):
        return _written_nested(value, kind, floats_as_text)
    for matches, write in _WRITERS:
        if matches(kind):
            return write(value, kind)
    return value


def _written_nested(value: pl.Expr, kind: pa.DataType, floats_as_text: bool) -> pl.Expr:
    if not _needs_writer(kind, floats_as_text):
        return value
    if pa.types.is_list(kind):
        return value.list.eval(_written(pl.element(), kind.value_type, floats_as_text))
    if pa.types.is_map(kind):
        return value.list.eval(_written(pl.element(), _entry(kind), floats_as_text))
    fields = [_written(value.struct.field(f.name), f.type, floats_as_text).alias(f.name) for f in kind]
    return pl.when(value.is_not_null()).then(pl.struct(fields))


def _write_timestamp(value: pl.Expr, kind: pa.DataType) -> pl.Expr:
    return value.dt.strftime(_TIMESTAMP_FORMAT + ("Z" if kind.tz else ""))


_WRITERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pl.Expr, pa.DataType], pl.Expr]], ...] = (
    (pa.types.is_decimal, lambda value, _: value.cast(pl.String)),
    (pa.types.is_binary, lambda value, _: value.bin.encode("base64")),
    (pa.types.is_date, lambda value, _: value.dt.strftime("%Y-%m-%d")),
    (pa.types.is_timestamp, _write_timestamp),
)


def _frame(rows: pa.Table) -> pl.DataFrame:
    if any(contains_type(f.type, pa.types.is_map) for f in rows.schema):
        # Maps as lists of entries: that is their JSON, and polars before 2 has no other form.
        rows = cast_rows(rows, pa.schema([pa.field(f.name, _without_maps(f.type)) for f in rows.schema]))
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame


def check_range(column: pa.ChunkedArray, name: str) -> None:
    """Refuses dates and timestamps outside the years 0001 to 9999 (`log-value-range`), at any depth."""
    for leaf in leaves(column):
        if pa.types.is_timestamp(leaf.type):
            bounds = pc.min_max(leaf.cast(pa.int64()))
            unit = 1
        elif pa.types.is_date(leaf.type):
            bounds = pc.min_max(leaf.cast(pa.int32()))
            unit = _DAY
        else:
            continue
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        if low is not None and (low * unit < _FIRST_MICROSECOND or high * unit > _LAST_MICROSECOND):
            raise InvalidRequest(
                f"column {name!r} has a {leaf.type} outside the years 0001 to 9999, which no record holds",
                code="log-value-range",
            )


def _is_finite(rows: pa.Table) -> bool:
    floats = (leaf for column in rows.columns for leaf in leaves(column) if pa.types.is_floating(leaf.type))
    return all(pc.all(pc.is_finite(leaf), min_count=0).as_py() for leaf in floats)


def leaves(column: pa.ChunkedArray) -> Iterator[pa.Array]:
    """The arrays of scalars under a column."""
    for chunk in column.chunks:
        yield from _leaves_in(chunk)


def _leaves_in(array: pa.Array) -> Iterator[pa.Array]:
    if not pa.types.is_nested(array.type):
        yield array
    elif pa.types.is_struct(array.type):
        for child in array.flatten():
            yield from _leaves_in(child)
    elif pa.types.is_map(array.type):
        yield from _leaves_in(array.keys)
        yield from _leaves_in(array.items)
    else:
        yield from _leaves_in(array.flatten())


# ------------------------------------------------------------------------------------------------ decoding


def _parse(text: pl.Series, schema: pa.Schema, *, floats_as_text: bool) -> pa.Table:
    if not len(text):
        return schema.empty_table()
    parsed = _parse_json(text, pa.schema([pa.field(f.name, _parsed_type(f.type, floats_as_text)) for f in schema]))
    return pa.Table.from_arrays([_read(parsed[f.name], f.type) for f in schema], schema=schema)


def _parse_json(text: pl.Series, schema: pa.Schema) -> pa.Table:
    # The texts are in one buffer end to end, which Arrow's parser takes as it is, in one block.
    joined = text.cast(pl.Binary).to_arrow(compat_level=pl.CompatLevel.oldest())
    data = joined.buffers()[2]
    table = pa_json.read_json(
        pa.BufferReader(data),
        read_options=pa_json.ReadOptions(use_threads=False, block_size=data.size + 1),
        parse_options=pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    if table.num_rows != len(text):
        raise pa.ArrowInvalid(f"{len(text)} JSON texts gave {table.num_rows} rows")
    return table.combine_chunks()


def _parsed_type(kind: pa.DataType, floats_as_text: bool) -> pa.DataType:
    """The type as which Arrow's parser reads it.

    It knows decimals and timestamps, and no maps, dates or base64.
    """
    if pa.types.is_date(kind):
        return pa.timestamp("s")
    if pa.types.is_binary(kind) or (pa.types.is_floating(kind) and floats_as_text):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_parsed_type(kind.value_type, floats_as_text))
    if pa.types.is_map(kind):
        return pa.list_(_parsed_type(_entry(kind), floats_as_text))
    if pa.types.is_struct(kind):
        return pa.struct([(f.name, _parsed_type(f.type, floats_as_text)) for f in kind])
    return kind


def _read(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    array = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
    return _typed(array, kind)


def _typed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_binary(kind):
        decoded = pl.Series(pl.from_arrow(array)).str.decode("base64")
        return decoded.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(kind)
    if not pa.types.is_nested(kind):
        return array.cast(kind)
    if pa.types.is_struct(kind):
        children = [_typed(array.field(i), f.type) for i, f in enumerate(kind)]
        buffers = array.buffers()[:1]
    else:
        entry = _entry(kind) if pa.types.is_map(kind) else kind.value_type
        children = [_typed(array.values, entry)]
        buffers = array.buffers()[:2]
    # The layouts are the same, so only the type changes: no values are copied.
    return pa.Array.from_buffers(kind, len(array), buffers, array.null_count, array.offset, children)


# --------------------------------------------------------------------------------------------------- types


def _entry(kind: pa.MapType) -> pa.StructType:
    # Arrow's names for the children of a map's entries
    return pa.struct([pa.field("key", kind.key_type, nullable=False), kind.item_field.with_name("value")])


def _without_maps(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_map(kind):
        return pa.list_(_without_maps(_entry(kind)))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _without_maps(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _without_maps(f.type)) for f in kind])
    return kind


def _has_float(kind: pa.DataType) -> bool:
    return contains_type(kind, pa.types.is_floating)


def _needs_writer(kind: pa.DataType, floats_as_text: bool) -> bool:
    return contains_type(
        kind,
        lambda k: any(matches(k) for matches, _ in _WRITERS) or (floats_as_text and pa.types.is_floating(k)),
    )
