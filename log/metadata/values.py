"""Columns of values through a cast, and what is said of a value that does not fit."""

from __future__ import annotations

import pyarrow as pa

from filestore.errors import InvalidRequest
from filestore.model.types import to_sql
from log.metadata.binding import Bound
from log.metadata.casts import Convert

__all__ = ["read_values", "written_values"]

_SHOWN = 60  # characters of a bad value in the message


def read_values(values: pa.ChunkedArray, bound: Bound) -> pa.ChunkedArray:
    """Values of the key, times in any unit, as values of the column.

    Raises:
        InvalidRequest: ``bad-value``: one does not fit; the message names its row.
    """
    key = bound.key.type

    def convert(chunk: pa.Array) -> pa.Array:
        return bound.cast.read(chunk if chunk.type == key else chunk.cast(key))

    wrong = bound.column.type == key
    remedy = "leave the column out, or skip such messages" if wrong else f"declare the column {to_sql(key)}"
    return _converted(values, bound.column.type, bound, convert, remedy)


def written_values(values: pa.ChunkedArray, bound: Bound) -> pa.ChunkedArray:
    """Values of the column as values of the key.

    Raises:
        InvalidRequest: ``bad-value``: one does not fit; the message names its row.
    """
    return _converted(values, bound.key.type, bound, bound.cast.write, "correct it, or make it NULL")


def _converted(
    values: pa.ChunkedArray, kind: pa.DataType, bound: Bound, convert: Convert, remedy: str
) -> pa.ChunkedArray:
    try:
        return pa.chunked_array([convert(chunk) for chunk in values.chunks], kind)
    except pa.ArrowInvalid as error:
        column, key = bound.column, bound.key
        array = pa.concat_arrays(values.chunks)
        row, reason = _first_misfit(array, convert, error)
        raise InvalidRequest(
            f"column {column.name!r} is {to_sql(column.type)} and its metadata {key.name!r} is {to_sql(key.type)}: "
            f"{_shown(array[row])} in row {row} does not fit ({reason}): {remedy}",
            code="bad-value",
        ) from error


def _first_misfit(values: pa.Array, convert: Convert, error: pa.ArrowInvalid) -> tuple[int, pa.ArrowInvalid]:
    """The first row that does not fit, and why. Halves the rows: what it costs is to convert them once more."""
    fits, end = 0, len(values)
    while end - fits > 1:
        middle = (fits + end) // 2
        try:
            convert(values.slice(fits, middle - fits))
        except pa.ArrowInvalid as nearer:
            end, error = middle, nearer
        else:
            fits = middle
    return fits, error


def _shown(value: pa.Scalar) -> str:
    # Python has no times beyond the year 9999; Arrow has words for them.
    text = value.cast(pa.string()).as_py() if pa.types.is_timestamp(value.type) else repr(value.as_py())
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
