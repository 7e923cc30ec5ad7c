"""Casts to and from floating numbers where Arrow's own casts change a value without a word."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["floats_of_texts"]


def floats_of_texts(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Casts texts to FLOAT or DOUBLE; Arrow makes an infinity of a number that is out of range.

    Raises:
        ArrowInvalid: a text is no number of that type.
    """
    numbers = texts.cast(kind)
    named = pc.match_substring(texts, "inf", ignore_case=True)
    if pc.any(pc.and_(pc.is_inf(numbers), pc.invert(named))).as_py():
        raise pa.ArrowInvalid(f"a number is out of the range of {kind}")
    return numbers
