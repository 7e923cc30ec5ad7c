"""Which key a metadata column means, and whether its type can hold the values. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from filestore.errors import InvalidRequest
from filestore.model.table_columns import MetadataColumn
from filestore.model.types import to_sql
from log.metadata.casts import Cast, cast_between, castable_types
from log.metadata.keys import MetadataKey

__all__ = ["Bound", "bind", "listed", "writable"]


@dataclass(frozen=True, slots=True)
class Bound:
    """A metadata column, its key, and the cast between them. Picklable."""

    column: MetadataColumn
    key: MetadataKey
    cast: Cast = field(compare=False)  # follows from their types


def bind(column: MetadataColumn, keys: Sequence[MetadataKey]) -> Bound:
    """The column with its key.

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
    """A guess: the prefix of a format's key is easily forgotten, and names of columns have no hyphens."""
    spelt = column.key.lower().replace("_", "-")
    for key in keys:
        if spelt in (key.name, key.own_name):
            return f"; FROM '{key.name}' may be meant"
    return ""


def writable(keys: Iterable[MetadataKey]) -> list[MetadataKey]:
    """Those that can be written."""
    return [key for key in keys if key.writable]


def listed(what: str, keys: Iterable[MetadataKey]) -> str:
    """As in ``readable are topic, offset``, for messages."""
    names = [key.name for key in keys]
    return f"{what} are {', '.join(names)}" if names else f"none is {what}"
