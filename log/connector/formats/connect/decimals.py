"""Decimals as Kafka Connect and Debezium write them: base64 of a number's bytes, and a scale. Vectorised.

The bytes are Java's of a BigInteger: two's complement, the highest first, as few as it takes.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filestore.lazily import pl
from filestore.rows.slices import slices

__all__ = ["MOST_SCALE", "decimal_column", "unscaled"]

Mask = npt.NDArray[np.bool_]

_WIDTH = 32
_MOST_BYTES = 31  # 247 bits: below 10**75, so that every value is a decimal of 76 digits
_WIDE = pa.decimal256(76, 0)
MOST_SCALE = 38
"""The greatest scale, and negated the least, of numbers that are converted; with any other only 0 is."""
_MOST_PLACES = 1000  # a damaged message may say two billion, which would be as many digits


def unscaled(texts: pa.Array) -> pa.Array:
    """Decodes base64 texts to numbers without a scale; null where a text is none, or is longer than 31 bytes."""
    series = pl.Series(pl.from_arrow(texts.cast(pa.large_string()))).str.decode("base64", strict=False)
    raw = series.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.large_binary())
    held, offsets, _ = slices(raw)
    lengths = pc.fill_null(pc.binary_length(raw), 0).to_numpy(zero_copy_only=False)
    words = np.zeros((len(raw), _WIDTH), np.uint8)
    for length in np.unique(lengths).tolist():
        if not 0 < length <= _MOST_BYTES:
            continue
        rows = np.flatnonzero(lengths == length)
        taken = held[offsets[rows][:, None] + np.arange(length)]
        words[rows] = np.where(taken[:, :1] >= 128, np.uint8(0xFF), np.uint8(0))  # the sign's bit
        words[rows[:, None], np.arange(_WIDTH - length, _WIDTH)] = taken
    good = (lengths > 0) & (lengths <= _MOST_BYTES)
    bits = pa.py_buffer(np.packbits(good, bitorder="little").tobytes())
    little = np.ascontiguousarray(words[:, ::-1])
    return pa.Array.from_buffers(_WIDE, len(raw), [bits, pa.py_buffer(little)])


def decimal_column(numbers: pa.Array, scale: int, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    """Casts numbers with that scale to a column's type, and returns which of them it cannot hold.

    Args:
        numbers: From `unscaled`.
        scale: May be negative.
        kind: DECIMAL and integers (which hold no number that is finer), STRING (all digits), or a floating type.
    """
    as_text = pa.types.is_string(kind) or pa.types.is_floating(kind)
    if as_text and not -_MOST_PLACES <= scale <= _MOST_PLACES:
        return pa.nulls(len(numbers), kind), numbers.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_string(kind):
        return _texts(numbers, scale), np.zeros(len(numbers), bool)
    if pa.types.is_floating(kind):
        return _texts(numbers, scale).cast(pa.float64()).cast(kind), np.zeros(len(numbers), bool)
    if pa.types.is_decimal(kind):
        return _rescaled(numbers, scale, kind)
    limit = 1 << (kind.bit_width - 1)
    whole, bad = _rescaled(numbers, scale, pa.decimal128(20, 0))
    outside = pc.or_(
        pc.less(whole, pa.scalar(Decimal(-limit), whole.type)),
        pc.greater_equal(whole, pa.scalar(Decimal(limit), whole.type)),
    )
    bad |= _true(outside)
    return _nulled(whole, bad).cast(pa.string()).cast(kind), bad


def _rescaled(numbers: pa.Array, scale: int, kind: pa.DataType) -> tuple[pa.Array, Mask]:
    """Casts decimals to another type; null where they do not fit or would have to be rounded."""
    if not -MOST_SCALE <= scale <= MOST_SCALE:
        zero = _true(pc.equal(numbers, pa.scalar(Decimal(0), _WIDE)))
        bad = ~zero & numbers.is_valid().to_numpy(zero_copy_only=False)
        return _nulled(pa.nulls(len(numbers), kind).fill_null(Decimal(0)), ~zero), bad
    if scale < 0:
        numbers, bad = _within(numbers, kind.precision - kind.scale + scale)
        few = numbers.cast(pa.decimal256(max(1, MOST_SCALE + scale), 0))
        scaled = pc.multiply(few, pa.scalar(Decimal(10) ** -scale, pa.decimal256(1 - scale, 0)))
        return scaled.cast(kind), bad
    places = pa.decimal256(76, scale)
    values = _viewed(numbers, places)
    cut, bad = _within(pc.round(values, min(kind.scale, scale), round_mode="down"), kind.precision - kind.scale)
    moved = _true(pc.not_equal(cut, values))
    return _nulled(cut, moved).cast(kind), bad | moved


def _within(values: pa.Array, digits: int) -> tuple[pa.Array, Mask]:
    """Returns the values below a power of ten, others as null, and which those are."""
    scale = values.type.scale
    most = Decimal((0, (9,) * (max(digits, 0) + scale), -scale))
    bad = _true(pc.greater(pc.abs(values), pa.scalar(most, values.type)))
    return _nulled(values, bad), bad


def _texts(numbers: pa.Array, scale: int) -> pa.Array:
    """Writes decimals in plain notation with all digits, as Java's ``toPlainString``."""
    digits = pl.Series("n", pl.from_arrow(numbers.cast(pa.string())))
    frame = pl.DataFrame({"n": digits.str.strip_prefix("-"), "minus": digits.str.starts_with("-")})
    sign = pl.when("minus").then(pl.lit("-")).otherwise(pl.lit(""))
    if scale > 0:
        padded = pl.col("n").str.zfill(scale + 1)
        plain = pl.concat_str(sign, padded.str.head(-scale), pl.lit("."), padded.str.tail(scale))
    else:
        zeros = pl.when(pl.col("n") == "0").then(pl.lit("")).otherwise(pl.lit("0" * -scale))
        plain = pl.concat_str(sign, "n", zeros)
    return frame.select(plain).to_series().to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.string())


def _viewed(numbers: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same digits with a point in them."""
    return pa.Array.from_buffers(kind, len(numbers), numbers.buffers(), numbers.null_count, numbers.offset)


def _nulled(values: pa.Array, where: Mask) -> pa.Array:
    return pc.if_else(pa.array(where), pa.scalar(None, values.type), values) if where.any() else values


def _true(mask: pa.Array) -> Mask:
    found: Mask = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
    return found
