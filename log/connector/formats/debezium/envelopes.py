"""Reads the members of Debezium's envelopes, by the messages' schemas if they have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from log.connector.formats.connect.messages import Parted, Payloads, parted
from log.connector.formats.connect.schema import Described, described
from log.connector.formats.connect.values import Meaning, converted, meaning_of
from log.connector.formats.format import Index
from log.connector.formats.json.documents import parse_documents

__all__ = ["EnvelopeReader", "Envelopes", "row_schema"]

_IMAGES = ("before", "after")
_NOTHING = Payloads(None, (), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class Envelopes:
    """The members of envelopes, as columns.

    Attributes:
        members: Of each envelope ``before``, ``after``, ``op`` and what else was asked for.
        schemas: The text of each one's schema, if it was asked for; null where it has none.
        index: The position of each one's message, ascending.
        malformed: Position and reason of the others, and of those in which a value cannot be read.
        tombstones: Positions of messages that say there is no value.
    """

    members: Mapping[str, pa.Array]
    schemas: pa.Array
    index: Index
    malformed: Mapping[int, str]
    tombstones: tuple[int, ...] = ()


def row_schema(schema: Described) -> Described | None:
    """Returns the schema of rows in an envelope's schema; None if it is none of an envelope."""
    return schema.field("after") or schema.field("before")


@dataclass(frozen=True, slots=True)
class EnvelopeReader:
    """Reads envelopes.

    Args:
        columns: Of the rows.
        rest: The members beside ``before`` and ``after``.
        schema_include: Messages are ``{"schema": …, "payload": …}``.
        with_schemas: Whether the texts of schemas are wanted.
    """

    columns: pa.Schema
    rest: tuple[pa.Field, ...]
    schema_include: bool
    with_schemas: bool = False

    def read(self, messages: Sequence[bytes]) -> Envelopes:
        """Parses the envelopes of messages."""
        if not self.schema_include:
            return self._group(Payloads(None, messages, np.arange(len(messages))), None)
        found = parted(messages)
        groups = [self._described(payloads, found.malformed) for payloads in found.groups]
        return _together([*groups, self._group(_NOTHING, None)], found)

    def _described(self, payloads: Payloads, malformed: dict[int, str]) -> Envelopes:
        try:
            declared = None if payloads.schema is None else row_schema(described(payloads.schema))
        except ValueError as error:
            malformed |= dict.fromkeys(payloads.index.tolist(), f"member 'schema': {error}")
            return self._group(_NOTHING, None)
        return self._group(payloads, declared)

    def _group(self, payloads: Payloads, declared: Described | None) -> Envelopes:
        meanings = [meaning_of(f.type, None if declared is None else declared.field(f.name)) for f in self.columns]
        row = pa.struct([pa.field(f.name, m.read_as) for f, m in zip(self.columns, meanings, strict=True)])
        wanted = pa.schema([*(pa.field(name, row) for name in _IMAGES), *self.rest])
        found = parse_documents(payloads.values, wanted)
        index = payloads.index[found.index]
        malformed = {int(payloads.index[i]): reason for i, reason in found.malformed.items()}
        members = {name: _whole(found.members[name]) for name in wanted.names}
        for name in _IMAGES:
            members[name], reasons = self._row(name, members[name], meanings)
            for at, reason in reasons:
                malformed.setdefault(int(index[at]), reason)
        schemas = pa.repeat(pa.scalar(payloads.schema if self.with_schemas else None, pa.string()), len(index))
        return Envelopes(members, schemas, index, malformed)

    def _row(
        self, image: str, rows: pa.StructArray, meanings: Sequence[Meaning]
    ) -> tuple[pa.StructArray, list[tuple[int, str]]]:
        """Converts rows to the columns' types; returns also the rows that do not fit."""
        if all(meaning.declared is None for meaning in meanings):
            return rows, []
        columns: list[pa.Array] = []
        reasons: list[tuple[int, str]] = []
        for field, member, meaning in zip(self.columns, rows.flatten(), meanings, strict=True):
            column, bad = converted(member, meaning)
            columns.append(column)
            if bad is not None:
                reasons += _reasons(f"{image}.{field.name}", bad, member, meaning)
        fields = [pa.field(f.name, f.type) for f in self.columns]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=rows.is_null()), reasons


def _reasons(place: str, bad: np.ndarray, members: pa.Array, meaning: Meaning) -> Iterator[tuple[int, str]]:
    what = "value" if meaning.declared is None else meaning.declared.logical or meaning.declared.type
    for at in np.flatnonzero(bad).tolist():
        shown = str(members[at].as_py())[:100]
        yield at, f"{place}: {shown} as {what} is no {meaning.kind}"


def _together(groups: Sequence[Envelopes], found: Parted) -> Envelopes:
    """The groups' envelopes in the order of their messages."""
    malformed = dict(found.malformed)
    for group in groups:
        malformed |= group.malformed
    filled = [group for group in groups if len(group.index)] or groups[:1]
    if len(filled) == 1:
        return replace(filled[0], malformed=malformed, tombstones=found.tombstones)
    index = np.concatenate([group.index for group in filled])
    order = pa.array(np.argsort(index, kind="stable"))
    members = {
        name: pa.concat_arrays([group.members[name] for group in filled]).take(order) for name in filled[0].members
    }
    schemas = pa.concat_arrays([group.schemas for group in filled]).take(order)
    return Envelopes(members, schemas, index[order.to_numpy()], malformed, found.tombstones)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined
