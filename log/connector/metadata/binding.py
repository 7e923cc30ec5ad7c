"""Binds metadata columns to their keys, and casts values of the one to those of the other. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from filestore.errors import InvalidRequest
from filestore.model.table_columns import MetadataColumn
from filestore.model.types import to_sql
from log.connector.metadata.casts import Cast, Convert, cast_between, castable_types
from log.connector.metadata.keys import MetadataKey

__all__ = ["Bound", "bind", "listed", "read_values", "unreadable", "writable", "written_values"]


@dataclass(frozen=True, slots=True)
class Bound:
    """A metadata column, its key, and the cast between them. Picklable."""

    column: MetadataColumn
    key: MetadataKey
    cast: Cast = field(compare=False)  # follows from their types


def bind(column: MetadataColumn, keys: Sequence[MetadataKey]) -> Bound:
    """Finds the key of a metadata column, and the cast between them.

    Raises:
        InvalidRequest: ``unknown-metadata-key``; ``metadata-cast``: there is no cast to the type declared;
            ``metadata-nullable``: the column is NOT NULL and its metadata may be missing.
    """
    key = next((k for k in keys if k.name == column.key), None)
    if key is None:
        raise InvalidRequest(
            f"column {column.name!r}: there is no metadata {column.key!r} here{_meant(column, keys)}. "
            f"{listed('readable', keys)}; {listed('writable', writable(keys))}",
            code="unknown-metadata-key",
        )
    cast = cast_between(key.type, column.type)
    if cast is None:
        raise InvalidRequest(
            f"column {column.name!r} is {to_sql(column.type)}, to which the metadata {key.name!r} has no cast: declare "
            f"the column {castable_types(key.type)}",
            code="metadata-cast",
        )
    if key.nullable and not column.nullable:
        raise InvalidRequest(
            f"column {column.name!r} is NOT NULL, and the metadata {key.name!r} is missing in some messages: declare "
            "it without NOT NULL",
            code="metadata-nullable",
        )
    return Bound(column, key, cast)


def _meant(column: MetadataColumn, keys: Iterable[MetadataKey]) -> str:
    """Guesses the key that was meant: without the prefix of a format, or with hyphens."""
    spelt = column.key.lower().replace("_", "-")
    for key in keys:
        if spelt in (key.name, key.own_name):
            return f"; FROM '{key.name}' may be meant"
    return ""


def writable(keys: Iterable[MetadataKey]) -> list[MetadataKey]:
    """Returns the keys that can be written."""
    return [key for key in keys if key.writable]


def listed(what: str, keys: Iterable[MetadataKey]) -> str:
    """Lists keys for errors, as in ``readable are topic, offset``."""
    names = [key.name for key in keys]
    return f"{what} are {', '.join(names)}" if names else f"none is {what}"


_SHOWN = 60  # characters of a bad value in the message


def read_values(values: pa.ChunkedArray, bound: Bound) -> pa.ChunkedArray:
    """Casts values of the key, with times in any unit, to values of the column.

    Raises:
        InvalidRequest: ``bad-value``: one does not fit; the message names its row.
    """
    try:
        return _converted(values, bound.column.type, _reading(bound))
    except pa.ArrowInvalid as error:
        _, message = next(unreadable(values, bound))
        raise InvalidRequest(message, code="bad-value") from error


def unreadable(values: pa.ChunkedArray, bound: Bound) -> Iterator[tuple[int, str]]:
    """Yields the rows whose values `read_values` would refuse, in order, and why."""
    same = bound.column.type == bound.key.type
    remedy = "leave the column out, or skip such messages" if same else f"declare the column {to_sql(bound.key.type)}"
    return _misfits(values, bound, _reading(bound), remedy)


def written_values(values: pa.ChunkedArray, bound: Bound) -> pa.ChunkedArray:
    """Casts values of the column to values of the key.

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
    """Finds the values that do not fit by bisecting, since a conversion does not say which. Few are expected."""
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
