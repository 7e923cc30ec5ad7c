"""The topic that is ingested: its declaration as a table, and a decoder that follows changes of its schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from filestore.ambient import Ambient
from filestore.errors import InvalidRequest
from filestore.model.schema import Column, Schema
from filestore.model.table_columns import TableColumns
from log.connector.declaration import KafkaDeclaration
from log.connector.decoding import Incoming, RowDecoder
from log.connector.formats.connect.messages import schemas_of
from log.connector.formats.debezium.format import DebeziumJsonFormat
from log.connector.formats.format import Malformed
from tablestore.ingesting.learning import has_schema, new_columns, row_of

__all__ = ["EvolvingDecoder", "first_message", "raw_topic", "source_table"]

AddColumns = Callable[[tuple[Column, ...]], Schema]


def raw_topic(topic: str, servers: str, options: Mapping[str, str]) -> KafkaDeclaration:
    """Declares the topic's messages as raw values."""
    columns = TableColumns((Column("value", pa.binary()),))
    return KafkaDeclaration.of(columns, (), _options(topic, servers, options) | {"value.format": "raw"})


def source_table(
    raw: KafkaDeclaration, columns: Schema, key: Sequence[str], *, schema_include: bool
) -> KafkaDeclaration:
    """Declares the topic's changes as rows with those columns."""
    plain = tuple(Column(c.name, c.type, c.nullable) for c in columns)
    options = {"value.format": "debezium-json", "value.debezium-json.schema-include": str(schema_include).lower()}
    return KafkaDeclaration.of(TableColumns(plain), key, raw.options | options)


def _options(topic: str, servers: str, options: Mapping[str, str]) -> dict[str, str]:
    if strange := [name for name in options if not name.startswith(("scan.", "properties."))]:
        raise InvalidRequest(
            f"option {strange[0]!r} is not an option for reading a topic: those begin with 'scan.' or 'properties.'",
            code="unknown-option",
        )
    return {"connector": "kafka", "topic": topic, "properties.bootstrap.servers": servers, **options}


class EvolvingDecoder:
    """Decodes a topic's messages to the columns of a table, and adds new columns of the messages to it.

    Args:
        raw: The declaration of the topic.
        columns: The table's columns.
        key: The table's key.
        add: Adds columns to the table and returns all; None: the columns stay as they are.
    """

    wanted: Sequence[str] = ()

    def __init__(self, raw: KafkaDeclaration, columns: Schema, key: Sequence[str], add: AddColumns | None) -> None:
        self._raw = raw
        self._columns = columns
        self._key = key
        self._add = add
        self._decoders: dict[bool, RowDecoder] = {}
        self._seen: set[str] = set()

    def decode(self, messages: Incoming) -> tuple[pa.Table, tuple[Malformed, ...]]:
        """Decodes like `RowDecoder.decode`. A batch's first message decides whether schemas are expected."""
        values = messages.values
        described = next((found for v in values if v is not None and (found := has_schema(v)) is not None), False)
        rows, malformed = self._decoded(messages, described=described)
        if any((v := values[bad.index]) is not None and has_schema(v) is (not described) for bad in malformed):
            return self._decoded(replace(messages, values=[_described(v) for v in values]), described=True)
        return rows, malformed

    def _decoded(self, messages: Incoming, *, described: bool) -> tuple[pa.Table, tuple[Malformed, ...]]:
        if described and self._add is not None:
            self._evolve([value for value in messages.values if value is not None], self._add)
        return self._decoder(described).decode(messages)

    def _evolve(self, values: Sequence[bytes], add: AddColumns) -> None:
        for schema in schemas_of(values):
            if schema in self._seen:
                continue
            row = row_of(schema)
            if row is not None and (new := new_columns(self._columns, row)):
                self._columns, self._decoders = add(new), {}
            self._seen.add(schema)

    def _decoder(self, described: bool) -> RowDecoder:
        if described not in self._decoders:
            table = source_table(self._raw, self._columns, self._key, schema_include=described)
            decoder = RowDecoder.of(table)
            assert isinstance(decoder.value, DebeziumJsonFormat), "the topic was declared so"
            self._decoders[described] = replace(decoder, value=replace(decoder.value, whole=True))
        return self._decoders[described]


def _described(value: bytes | None) -> bytes | None:
    """Wraps a message without a schema, so that it has an empty one."""
    return b'{"schema":null,"payload":%b}' % value if value is not None and has_schema(value) is False else value


def first_message(
    raw: KafkaDeclaration, fits: Callable[[bytes], bool], ambient: Ambient
) -> tuple[bytes | None, bytes] | None:
    """Returns key and value of the first message whose value fits; None if the topic has none.

    Raises:
        NotFound: ``topic-not-found``.
        Unavailable: the brokers do not answer.
    """
    from log.connector.reader import follow_from  # librdkafka takes 80 ms to load
    from log.connector.topic import ConnectorTopic

    topic, sample = ConnectorTopic(raw, ambient), _Sample(fits)
    starts = topic.first_offsets(topic.partitions())
    for _ in follow_from(raw, topic, starts, lambda: True, ambient, sample):
        if sample.found is not None:
            break
    return sample.found


class _Sample:
    """Searches messages for the first one that fits."""

    wanted: Sequence[str] = ()

    def __init__(self, fits: Callable[[bytes], bool]) -> None:
        self._fits = fits
        self.found: tuple[bytes | None, bytes] | None = None

    def decode(self, messages: Incoming) -> tuple[pa.Table, tuple[Malformed, ...]]:
        """Returns no rows."""
        pairs = zip(messages.keys, messages.values, strict=True)
        if self.found is None:
            self.found = next(((key, value) for key, value in pairs if value is not None and self._fits(value)), None)
        return pa.table({}), ()
