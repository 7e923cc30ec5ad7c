"""The interface of all formats: encodes Arrow rows as bytes and decodes them; frozen and without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from filestore.errors import InvalidRequest
from filestore.model.rowkind import KIND_COLUMN, RowKind
from filestore.rows.casting import cast_column

__all__ = [
    "MILLISECONDS",
    "Decoded",
    "Format",
    "Index",
    "Malformed",
    "Role",
    "collected",
    "inserts",
    "metadata_fields",
    "nullable",
    "split_kinds",
    "split_tombstones",
]

Index = npt.NDArray[np.int64]
MILLISECONDS = pa.timestamp("ms", tz="UTC")
"""TIMESTAMP_LTZ(3), the type of a format's timestamps of metadata."""


class Role(StrEnum):
    """The part of a message that a format encodes: keys or values."""

    KEY = "key"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Malformed:
    """A message that could not be read: its position in the batch, and why."""

    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """Decoded messages.

    Args:
        rows: The format's columns, then the metadata that was asked for. Every column is nullable: a row that is
            taken away may be known by its key alone. Rows that are put have values in columns that are NOT NULL.
        kinds: ``+I``, ``-U``, ``+U`` or ``-D`` of each row.
        index: The position of each row's message, ascending; a message may have given none, one or many.
        tombstones: The positions of null messages, ascending.
        malformed: The messages that could not be read, by position; they have no rows.
    """

    rows: pa.Table
    kinds: pa.Array
    index: Index
    tombstones: Index
    malformed: tuple[Malformed, ...]


class Format(Protocol):
    """A format, opened for the keys or the values of a table's messages."""

    @property
    def schema(self) -> pa.Schema:
        """The columns that it encodes."""
        ...

    @property
    def changelog(self) -> bool:
        """Returns whether it can encode all row kinds; otherwise it refuses deletes."""
        ...

    @property
    def metadata(self) -> Mapping[str, pa.DataType]:
        """The metadata that its messages may have, by key, with their types."""
        ...

    def encode(self, rows: pa.Table) -> list[bytes | None]:
        """Encodes each row as a message.

        Args:
            rows: The format's columns, in any order, and ``_kind`` or not (then all are ``+I``).

        Raises:
            InvalidRequest: ``format-kind``: a row takes away and the format has no word for it;
                ``format-rows``: the columns are others; ``format-value`` or ``log-value-range``: a value that
                the format cannot spell.
        """
        ...

    def decode(self, values: Sequence[bytes | None], metadata: Sequence[str] = ()) -> Decoded:
        """Decodes the rows of messages; a message that cannot be read is reported and affects no other.

        Raises:
            InvalidRequest: ``format-metadata``: the format has no such metadata.
        """
        ...


def split_kinds(rows: pa.Table, schema: pa.Schema, *, changelog: bool) -> tuple[pa.Table, pa.ChunkedArray]:
    """Splits rows into the schema's columns and their kinds, and checks both."""
    names = [n for n in rows.schema.names if n != KIND_COLUMN]
    if sorted(names) != sorted(schema.names):
        raise InvalidRequest(
            f"the rows have the columns {', '.join(names)}; the format has {', '.join(schema.names)}",
            code="format-rows",
        )
    try:
        columns = [cast_column(rows[f.name], f.type) for f in schema]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequest(f"the rows do not fit the format's columns: {error}", code="format-rows") from error
    kinds = rows[KIND_COLUMN].cast(pa.string()) if KIND_COLUMN in rows.schema.names else None
    if kinds is None:
        kinds = pa.chunked_array([pa.repeat(str(RowKind.INSERT), rows.num_rows)])
    _check_kinds(kinds, changelog)
    return pa.Table.from_arrays(columns, schema=nullable(schema)), kinds


def _check_kinds(kinds: pa.ChunkedArray, changelog: bool) -> None:
    for kind in pc.unique(kinds).to_pylist():
        if kind not in set(RowKind):
            words = ", ".join(RowKind)
            raise InvalidRequest(f"a value of {KIND_COLUMN} is {kind!r}, which is none of {words}", code="format-kind")
        if not changelog and not RowKind(kind).adds:
            raise InvalidRequest(
                f"this format has no word for {kind}: write to a format of changes (debezium-json, canal-json), or "
                "delete by key with connector = upsert-kafka",
                code="format-kind",
            )


def split_tombstones(values: Sequence[bytes | None]) -> tuple[list[bytes], Index, Index]:
    """The messages that are not null, their positions, and the positions of the others."""
    empty = np.fromiter((v is None for v in values), bool, len(values))
    if not empty.any():
        return [v for v in values if v is not None], np.arange(len(values)), np.empty(0, np.int64)
    return [v for v in values if v is not None], np.flatnonzero(~empty), np.flatnonzero(empty)


def nullable(schema: pa.Schema) -> pa.Schema:
    """The columns, all nullable."""
    return pa.schema([pa.field(f.name, f.type) for f in schema])


def metadata_fields(available: Mapping[str, pa.DataType], wanted: Sequence[str]) -> list[pa.Field]:
    """The fields of metadata that was asked for.

    Raises:
        InvalidRequest: ``format-metadata``: there is no such key; the message lists those that exist.
    """
    for key in wanted:
        if key not in available:
            known = f"it has {', '.join(available)}" if available else "it has none"
            raise InvalidRequest(f"the format has no metadata {key!r}: {known}", code="format-metadata")
    return [pa.field(key, available[key]) for key in wanted]


def inserts(rows: pa.Table, schema: pa.Schema, index: Index, tombstones: Index, bad: Mapping[int, str]) -> Decoded:
    """Returns decoded rows that are all inserts; a row without a value in a NOT NULL column is malformed."""
    kinds = pa.array(np.repeat(str(RowKind.INSERT), rows.num_rows), pa.string())
    return collected(rows, kinds, schema, index, tombstones, bad)


def collected(
    rows: pa.Table, kinds: pa.Array, schema: pa.Schema, index: Index, tombstones: Index, bad: Mapping[int, str]
) -> Decoded:
    """Returns what was decoded, without messages of which a row lacks a value in a column that is NOT NULL.

    Args:
        rows: The schema's columns and metadata.
        kinds: The rows' kinds.
        schema: Says which columns are NOT NULL.
        index: The message of each row.
        tombstones: The positions of null messages.
        bad: Messages that are malformed already, and why; they may still have rows.
    """
    reasons = dict(bad)
    adds = pc.is_in(kinds, pa.array([str(k) for k in RowKind if k.adds]))
    for field in schema:
        if not field.nullable and rows[field.name].null_count:
            lacking = pc.and_(adds, pc.is_null(rows[field.name]).combine_chunks())
            for message in np.unique(index[lacking.to_numpy(zero_copy_only=False)]).tolist():
                reasons.setdefault(message, f"column {field.name!r} is NOT NULL and has no value")
    if reasons:
        good = ~np.isin(index, np.fromiter(reasons, np.int64, len(reasons)))
        rows, kinds, index = rows.filter(pa.array(good)), kinds.filter(pa.array(good)), index[good]
    malformed = tuple(Malformed(i, reasons[i]) for i in sorted(reasons))
    return Decoded(rows, kinds, index, tombstones, malformed)
