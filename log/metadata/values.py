"""Columns of values through a cast, and what is said of a value that does not fit."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from filestore.errors import InvalidRequest
from filestore.model.types import to_sql
from log.metadata.binding import Bound
from log.metadata.casts import Convert

__all__ = ["read_values", "unreadable", "written_values"]

_SHOWN = 60  # characters of a bad value in the message


def read_values(values: pa.ChunkedArray, bound: Bound) -> pa.ChunkedArray:
    """Values of the key, times in any unit, as values of the column.

    Raises:
        InvalidRequest: ``bad-value``: one does not fit; the message names its row.
    """
    try:
        return _converted(values, bound.column.type, _reading(bound))
    except pa.ArrowInvalid as error:
        _, message = next(unreadable(values, bound))
        raise InvalidRequest(message, code="bad-value") from error


def unreadable(values: pa.ChunkedArray, bound: Bound) -> Iterator[tuple[int, str]]:
    """The rows whose values `read_values` would refuse, in order, and why."""
    same = bound.column.type == bound.key.type
    remedy = "leave the column out, or skip such messages" if same else f"declare the column {to_sql(bound.key.type)}"
    return _misfits(values, bound, _reading(bound), remedy)


def written_values(values: pa.ChunkedArray, bound: Bound) -> pa.ChunkedArray:
    """Values of the column as values of the key.

    Raises:
        InvalidRequest: ``bad-value``: one does not fit; the message names its row.
    """
    try:
        return _converted(values, bound.key.type, bound.cast.write)
    except pa.ArrowInvalid as error:
        _, message = next(_misfits(values, bound, bound.cast.write, "correct it, or make it NULL"))
        raise InvalidRequest(message, code="bad-value") from error


def _reading(bound: Bound) -> Convert:
    kind = bound.key.type
    return lambda chunk: bound.cast.read(chunk if chunk.type == kind else chunk.cast(kind))


def _converted(values: pa.ChunkedArray, kind: pa.DataType, convert: Convert) -> pa.ChunkedArray:
    return pa.chunked_array([convert(chunk) for chunk in values.chunks], kind)


def _misfits(values: pa.ChunkedArray, bound: Bound, convert: Convert, remedy: str) -> Iterator[tuple[int, str]]:
    column, key = bound.column, bound.key
    array = pa.concat_arrays(values.chunks) if values.num_chunks else pa.nulls(0, values.type)
    for row, reason in _wrong_rows(array, convert, 0):
        yield (
            row,
            f"column {column.name!r} is {to_sql(column.type)} and its metadata {key.name!r} is {to_sql(key.type)}: "
            f"{_shown(array[row])} in row {row} does not fit ({reason}): {remedy}",
        )


def _wrong_rows(values: pa.Array, convert: Convert, before: int) -> Iterator[tuple[int, pa.ArrowInvalid]]:
    """By halves: a conversion says that a value does not fit, and not which one. Few are expected not to."""
    try:
        convert(values)
    except pa.ArrowInvalid as error:
        if len(values) == 1:
            yield before, error
            return
        middle = len(values) // 2
        yield from _wrong_rows(values[:middle], convert, before)
        yield from _wrong_rows(values[middle:], convert, before + middle)


def _shown(value: pa.Scalar) -> str:
    # Python has no times beyond the year 9999; Arrow has words for them.
    text = value.cast(pa.string()).as_py() if pa.types.is_timestamp(value.type) else repr(value.as_py())
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
