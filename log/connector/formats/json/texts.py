"""Encodes rows as JSON texts as Flink's ``json`` format does. Vectorised.

Columns that polars spells rightly are written together, in one pass of its JSON writer; only the others, decimals as
numbers and maps as objects, are put together from texts of their parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.lazily import pl
from filestore.rows.casting import cast_column
from log.json_rows import check_range, quoted

__all__ = ["JsonStyle", "to_texts"]

_MICROSECONDS = "%.6f"


@dataclass(frozen=True, slots=True)
class JsonStyle:
    """The style in which values are written.

    Args:
        iso: Timestamps with ``T`` between date and time, and not a space.
        ignore_nulls: Members that are null are left out.
        decimals_as_text: Decimals are strings, and not numbers.
    """

    iso: bool = False
    ignore_nulls: bool = False
    decimals_as_text: bool = False


def to_texts(rows: pa.Table, style: JsonStyle) -> pl.Series:
    """Encodes each row as a JSON object, without spaces, members in the columns' order.

    Raises:
        InvalidRequest: ``log-value-range``: a date or timestamp outside the years 0001 to 9999.
    """
    for field in rows.schema:
        check_range(rows[field.name], field.name)
    arrays = [c.combine_chunks() for c in rows.columns]
    return _object([f.name for f in rows.schema], arrays, style, rows.num_rows)


def _object(names: Sequence[str], arrays: Sequence[pa.Array], style: JsonStyle, length: int) -> pl.Series:
    frame, pieces = {}, []
    run: list[str] = []  # neighbours that one pass writes
    for number, (name, array) in enumerate(zip(names, arrays, strict=True)):
        key = f"{number}"
        if _is_plain(array, style) and not style.ignore_nulls:
            frame[key] = _plain(array, style)
            run.append(key)
            continue
        if run:
            pieces.append(_members(run, names))
            run = []
        frame[key] = _text(array, style)
        member = pl.concat_str(pl.lit(f",{quoted(name)}:"), pl.col(key))
        if style.ignore_nulls:
            frame[key + "?"] = pl.Series(pl.from_arrow(array.is_valid()))
            member = pl.when(pl.col(key + "?")).then(member).otherwise(pl.lit(""))
        pieces.append(member)
    if run:
        pieces.append(_members(run, names))
    if not pieces:
        return pl.Series(["{}"]).new_from_index(0, length)
    # Each piece begins with a comma, the first one's is taken away again.
    inner = pl.concat_str(pieces).str.strip_prefix(",")
    return pl.DataFrame(frame).select(pl.concat_str(pl.lit("{"), inner, pl.lit("}"))).to_series()


def _members(run: Sequence[str], names: Sequence[str]) -> pl.Expr:
    text = pl.struct([pl.col(key).alias(names[int(key)]) for key in run]).struct.json_encode()
    return pl.concat_str(pl.lit(","), text.str.strip_prefix("{").str.strip_suffix("}"))


def _is_plain(array: pa.Array, style: JsonStyle) -> bool:
    """Returns whether polars' own writer spells it so, after `_plain`."""
    kind = array.type
    if pa.types.is_floating(kind):
        return bool(pc.all(pc.is_finite(array), min_count=0).as_py())
    if pa.types.is_decimal(kind):
        return style.decimals_as_text
    if pa.types.is_list(kind):
        return _is_native(kind.value_type)
    if pa.types.is_struct(kind):
        return not style.ignore_nulls and all(_is_native(f.type) for f in kind)
    return not bool(pa.types.is_map(kind))


def _is_native(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return _is_native(kind.value_type)
    return bool(pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_string(kind))


def _plain(array: pa.Array, style: JsonStyle) -> pl.Series:
    series, kind = pl.Series(pl.from_arrow(array)), array.type
    if pa.types.is_timestamp(kind):
        pattern = f"%Y-%m-%d{'T' if style.iso else ' '}%H:%M:%S{_MICROSECONDS}{'Z' if kind.tz else ''}"
        return series.dt.strftime(pattern)
    if pa.types.is_date(kind):
        return series.dt.strftime("%Y-%m-%d")
    if pa.types.is_binary(kind):
        return series.bin.encode("base64")
    return series.cast(pl.String) if pa.types.is_decimal(kind) else series


def _text(array: pa.Array, style: JsonStyle) -> pl.Series:
    """Writes each value as JSON; nulls as ``null``."""
    kind = array.type
    if _is_plain(array, style):
        frame = pl.DataFrame({"v": _plain(array, style)})
        text = frame.select(pl.struct("v").struct.json_encode()).to_series()
        return text.str.strip_prefix('{"v":').str.strip_suffix("}")
    if pa.types.is_floating(kind):
        # JSON has no such numbers: Flink's are strings, too.
        named = pl.Series(pl.from_arrow(array)).cast(pl.String)
        text = named.replace({"NaN": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'})
    elif pa.types.is_decimal(kind):
        text = pl.Series(pl.from_arrow(array)).cast(pl.String)
    elif pa.types.is_struct(kind):
        inner = _object([f.name for f in kind], array.flatten(), style, len(array))
        text = _where_valid(inner, array)
    elif pa.types.is_map(kind):
        text = _map(array, style)
    else:
        text = _joined(array, _text(array.flatten(), style), "[]")
    return text.fill_null("null")


def _map(array: pa.Array, style: JsonStyle) -> pl.Series:
    kind = array.type
    pair = pa.struct([pa.field("key", kind.key_type), pa.field("value", kind.item_type)])
    entries = cast_column(array, pa.list_(pair))
    keys, items = entries.flatten().flatten()
    pairs = pl.DataFrame({"k": _text(keys, style), "v": _text(items, style)})
    return _joined(entries, pairs.select(pl.concat_str("k", pl.lit(":"), "v")).to_series(), "{}")


def _joined(lists: pa.Array, texts: pl.Series, brackets: str) -> pl.Series:
    """The texts of lists' elements, put together by list."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    elements = texts.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string())
    inner = pl.Series(pl.from_arrow(pc.binary_join(pa.ListArray.from_arrays(offsets, elements), ",")))
    frame = pl.DataFrame({"inner": inner.cast(pl.String)})
    text = frame.select(pl.concat_str(pl.lit(brackets[0]), "inner", pl.lit(brackets[1]))).to_series()
    return _where_valid(text, lists)


def _where_valid(text: pl.Series, array: pa.Array) -> pl.Series:
    valid = pl.Series(pl.from_arrow(array.is_valid()))
    frame = pl.DataFrame({"text": text, "valid": valid})
    return frame.select(pl.when("valid").then("text")).to_series()
