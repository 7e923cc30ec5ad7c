"""``avro`` and ``avro-confluent``: each message is one binary datum of the columns' record (FORMATS.md). Insert-only.

With Confluent's registry a datum follows a zero byte and the id of its writer's schema, four bytes, the highest first.
The registry is a `Registry`: `schema_registry` has the one that speaks HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import pyarrow as pa

from filestore.errors import InvalidRequest, NotFound, Unsupported
from filestore.rows.casting import cast_column
from log.connector.formats.avro.decode import decode_datums
from log.connector.formats.avro.encode import datums
from log.connector.formats.avro.schema import Node, avro_schema, in_milliseconds, parse_schema
from log.connector.formats.format import (
    Decoded,
    Index,
    inserts,
    metadata_fields,
    nullable,
    split_kinds,
    split_tombstones,
)

__all__ = ["AvroConfluentFormat", "AvroFormat", "Registry"]

_MAGIC = 0
_HEADER = np.dtype([("magic", "u1"), ("id", ">u4")])


class Registry(Protocol):
    """A registry of schemas by number. It keeps its answers: a number's schema never changes."""

    def register(self, subject: str, schema: str) -> int:
        """Returns the number of a schema, and registers it under the subject if need be.

        Raises:
            InvalidRequest: ``schema-registry``: the subject does not take it, as it is not compatible.
            Unavailable: the registry does not answer.
        """
        ...

    def schema(self, number: int) -> tuple[str, ...]:
        """Returns the schema of a number, behind those whose names it uses.

        Raises:
            NotFound: ``schema-registry``: there is none.
            Unavailable: the registry does not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class AvroFormat:
    """Encodes and decodes bare datums, in the schema of the columns: writer and reader must have the same.

    Args:
        schema: The columns.
        millis: Timestamps are milliseconds, as Flink writes them by default, and not microseconds.
    """

    schema: pa.Schema
    millis: bool = False

    changelog: ClassVar[bool] = False
    metadata: ClassVar[Mapping[str, pa.DataType]] = {}

    def encode(self, rows: pa.Table) -> list[bytes | None]:
        """Encodes each row as a datum."""
        columns, _ = split_kinds(rows, self.schema, changelog=False)
        return [*datums(_stored(columns, self.millis), self.schema).to_pylist()]

    def decode(self, values: Sequence[bytes | None], metadata: Sequence[str] = ()) -> Decoded:
        """Decodes each datum as a row."""
        metadata_fields(self.metadata, metadata)
        messages, places, tombstones = split_tombstones(values)
        writer = parse_schema(_schema_text(self.schema, self.millis))
        rows, found = decode_datums(messages, writer, nullable(self.schema))
        bad = {int(places[i]): reason for i, reason in found.items()}
        return inserts(rows, self.schema, places, tombstones, bad)


@dataclass(frozen=True, slots=True)
class AvroConfluentFormat:
    """Encodes and decodes datums whose writers' schemas are in a registry.

    Args:
        schema: The columns.
        registry: Holds the schemas.
        subject: Under which the columns' own is registered by the first `encode`.
        millis: Timestamps are written as milliseconds, and not as microseconds. Either is read.
    """

    schema: pa.Schema
    registry: Registry
    subject: str
    millis: bool = False

    changelog: ClassVar[bool] = False
    metadata: ClassVar[Mapping[str, pa.DataType]] = {}

    def encode(self, rows: pa.Table) -> list[bytes | None]:
        """Encodes each row as a framed datum."""
        columns, _ = split_kinds(rows, self.schema, changelog=False)
        if not rows.num_rows:
            return []
        columns = _stored(columns, self.millis)
        number = self.registry.register(self.subject, _schema_text(self.schema, self.millis))
        return [*datums(columns, self.schema, bytes([_MAGIC]) + number.to_bytes(4, "big")).to_pylist()]

    def decode(self, values: Sequence[bytes | None], metadata: Sequence[str] = ()) -> Decoded:
        """Decodes each datum as a row, by the schema with which it was written."""
        metadata_fields(self.metadata, metadata)
        messages, places, tombstones = split_tombstones(values)
        bad: dict[int, str] = {}
        numbers = _schema_numbers(messages, bad)
        parts, order = [nullable(self.schema).empty_table()], [np.empty(0, np.int64)]
        for number in np.unique(numbers[numbers >= 0]).tolist():
            where = np.flatnonzero(numbers == number)
            try:
                writer = self._writer(number)
                rows, found = decode_datums([messages[i] for i in where.tolist()], writer, nullable(self.schema), 5)
            except (NotFound, Unsupported) as error:
                bad |= dict.fromkeys(where.tolist(), f"schema {number}: {error.message}")
                continue
            bad |= {int(where[i]): reason for i, reason in found.items()}
            parts.append(rows)
            order.append(where)
        index = np.concatenate(order)
        sorting = np.argsort(index, kind="stable")
        table = pa.concat_tables(parts).take(pa.array(sorting))
        reasons = {int(places[i]): reason for i, reason in bad.items()}
        return inserts(table, self.schema, places[index[sorting]], tombstones, reasons)

    def _writer(self, number: int) -> Node:
        return parse_schema(*self.registry.schema(number))


def _schema_text(schema: pa.Schema, millis: bool) -> str:
    return avro_schema(in_milliseconds(schema) if millis else schema)


def _stored(rows: pa.Table, millis: bool) -> pa.Table:
    """Returns rows whose timestamps have the unit of the messages.

    Raises:
        InvalidRequest: ``format-value``: a timestamp is finer than a millisecond.
    """
    if not millis:
        return rows
    columns = []
    for column, field in zip(rows.columns, in_milliseconds(rows.schema), strict=True):
        try:
            columns.append(cast_column(column, field.type))
        except pa.ArrowInvalid as error:
            raise InvalidRequest(
                f"column {field.name!r} has a timestamp that milliseconds cannot hold ({error}): round it, or set "
                "timestamp_mapping.legacy = false, with which Flink and Tablestore write microseconds",
                code="format-value",
            ) from error
    return pa.Table.from_arrays(columns, names=rows.column_names)


def _schema_numbers(messages: Sequence[bytes], bad: dict[int, str]) -> Index:
    """Returns the number of each message's schema, -1 where there is none."""
    sizes = np.fromiter(map(len, messages), np.int64, len(messages))
    heads = np.frombuffer(b"".join([m[:5].ljust(5, b"\xff") for m in messages]), _HEADER)
    framed = (sizes >= _HEADER.itemsize) & (heads["magic"] == _MAGIC)
    for i in np.flatnonzero(~framed).tolist():
        bad[i] = "no zero byte and schema id at the beginning: not written with a Confluent schema registry"
    return np.where(framed, heads["id"].astype(np.int64), -1)
