"""The topic that is ingested: a table's declaration over it, and a decoder that goes along with its schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from filestore.ambient import Ambient
from filestore.errors import InvalidRequest
from filestore.model.schema import Column, Schema
from filestore.model.table_columns import TableColumns
from log.connectors.declaration import KafkaDeclaration
from log.connectors.decoding import Incoming, RowDecoder
from log.formats.connect_messages import schemas_of
from log.formats.debezium_json import DebeziumJsonFormat
from log.formats.format import Malformed
from tablestore.ingesting.learning import has_schema, new_columns, row_of

__all__ = ["EvolvingDecoder", "first_message", "raw_topic", "source_table"]

AddColumns = Callable[[tuple[Column, ...]], Schema]


def raw_topic(topic: str, servers: str, options: Mapping[str, str]) -> KafkaDeclaration:
    """The topic's messages as they are."""
    columns = TableColumns((Column("value", pa.binary()),))
    return KafkaDeclaration.of(columns, (), _options(topic, servers, options) | {"value.format": "raw"})


def source_table(
    raw: KafkaDeclaration, columns: Schema, key: Sequence[str], *, schema_include: bool
) -> KafkaDeclaration:
    """The topic's changes as rows of those columns."""
    plain = tuple(Column(c.name, c.type, c.nullable) for c in columns)
    said = {"value.format": "debezium-json", "value.debezium-json.schema-include": str(schema_include).lower()}
    return KafkaDeclaration.of(TableColumns(plain), key, raw.options | said)


def _options(topic: str, servers: str, options: Mapping[str, str]) -> dict[str, str]:
    if strange := [name for name in options if not name.startswith(("scan.", "properties."))]:
        raise InvalidRequest(
            f"option {strange[0]!r} is none of a topic that is read: those begin with 'scan.' or 'properties.'",
            code="unknown-option",
        )
    return {"connector": "kafka", "topic": topic, "properties.bootstrap.servers": servers, **options}


class EvolvingDecoder:
    """Decodes a topic's messages into the columns of a table that gains those which messages have and it lacks.

    Args:
        raw: The topic.
        columns: The table's.
        key: Its key.
        add: Adds columns to the table and gives all; None: it stays as it is.
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
        """As `RowDecoder.decode`. Whether a batch's messages have schemas its first one tells, until one differs."""
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
    """A message without a schema as one that says so."""
    return b'{"schema":null,"payload":%b}' % value if value is not None and has_schema(value) is False else value


def first_message(
    raw: KafkaDeclaration, fits: Callable[[bytes], bool], ambient: Ambient
) -> tuple[bytes | None, bytes] | None:
    """Key and value of a message whose value fits; None if the topic holds none.

    Raises:
        NotFound: ``topic-not-found``.
        Unavailable: the brokers do not answer.
    """
    from log.kafka.declared_reader import follow_from  # librdkafka takes 80 ms to load
    from log.kafka.declared_topic import DeclaredTopic

    topic, sample = DeclaredTopic(raw, ambient), _Sample(fits)
    starts = topic.first_offsets(topic.partitions())
    for _ in follow_from(raw, topic, starts, lambda: True, ambient, sample):
        if sample.found is not None:
            break
    return sample.found


class _Sample:
    """Takes a look at messages, up to the first that fits."""

    wanted: Sequence[str] = ()

    def __init__(self, fits: Callable[[bytes], bool]) -> None:
        self._fits = fits
        self.found: tuple[bytes | None, bytes] | None = None

    def decode(self, messages: Incoming) -> tuple[pa.Table, tuple[Malformed, ...]]:
        """No rows."""
        pairs = zip(messages.keys, messages.values, strict=True)
        if self.found is None:
            self.found = next(((key, value) for key, value in pairs if value is not None and self._fits(value)), None)
        return pa.table({}), ()
