"""Starts an `Ingestion`: checks the source, and creates the table if it does not exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from filestore.ambient import Ambient
from filestore.errors import InvalidRequest, NotFound
from filestore.model.schema import Schema
from filestore.model.sql import parse_columns
from filestore.model.table_columns import TableColumns, managed_schema
from log.connector.declaration import KafkaDeclaration
from log.connector.formats.malformed import Policy
from log.connector.options import CONNECTOR, Connector
from log.connector.properties import named_brokers
from tablestore.ingesting.ingestion import Ingestion
from tablestore.ingesting.learning import learned, teaches
from tablestore.ingesting.source import first_message, raw_topic
from tablestore.ingesting.targets import ManagedTarget, Target, TopicTarget
from tablestore.table import Table

if TYPE_CHECKING:
    from log.connector.topic import ConnectorTopic
    from tablestore.kafka_table import KafkaTable
    from tablestore.store import Store

__all__ = ["IngestOptions", "begin", "check_target"]


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """The arguments of `tablestore.Store.ingest`."""

    topic: str
    into: str
    servers: str
    columns: pa.Schema | Schema | str | None
    primary_key: tuple[str, ...]
    options: Mapping[str, str]
    source_options: Mapping[str, str]


def begin(store: Store, asked: IngestOptions, ambient: Ambient) -> Ingestion:
    """Implements `tablestore.Store.ingest`."""
    from log.connector.topic import ConnectorTopic  # librdkafka takes 80 ms to load

    source = raw_topic(asked.topic, asked.servers, asked.source_options)
    topic, columns = ConnectorTopic(source, ambient), _columns(asked.columns, asked.primary_key)
    try:
        table = store.any_table(asked.into)
    except NotFound as error:
        if error.code != "table-not-found":
            raise
        table = _made(store, asked, source, columns, len(topic.partitions()), ambient)
    target = _target(table, source, topic, ambient)
    _check_known(asked, columns, target)
    return Ingestion(table, source, target, topic, ambient, fixed=columns is not None)


def _columns(given: pa.Schema | Schema | str | None, primary_key: Sequence[str]) -> Schema | None:
    if isinstance(given, str):
        return parse_columns(given, primary_key)
    if isinstance(given, pa.Schema):
        return managed_schema(TableColumns.from_arrow(given).columns)
    return given


def _made(
    store: Store,
    asked: IngestOptions,
    source: KafkaDeclaration,
    columns: Schema | None,
    partitions: int,
    ambient: Ambient,
) -> Table | KafkaTable:
    """Creates the table, with the columns and the key of the messages unless they are given."""
    known, key, value = columns, None, b""
    if columns is None or not asked.primary_key:
        strict = source.policy is Policy.FAIL
        sample = first_message(source, lambda value: teaches(value, strict=strict), ambient)
        if sample is None:
            raise InvalidRequest(
                f"topic {asked.topic} has no changes yet, from which the columns and the key of {asked.into} could be "
                "derived: pass both, or begin when there are some",
                code="empty-topic",
            )
        key, value = sample
    found = learned(asked.topic, key, value, known, asked.primary_key)
    options = dict(asked.options)
    if options.get(CONNECTOR) == Connector.UPSERT_KAFKA:
        options = {
            "properties.bootstrap.servers": asked.servers,
            "key.format": "json",
            "value.format": "json",
            "topic.partitions": str(partitions),
            **options,
        }
    if CONNECTOR in options:
        check_target(KafkaDeclaration.of(TableColumns(tuple(found.columns)), found.primary_key, options), source)
    return store.create_any_table(
        asked.into, found.columns, primary_key=found.primary_key, options=options, if_not_exists=True
    )


def check_target(table: KafkaDeclaration, source: KafkaDeclaration) -> None:
    """Checks that a Kafka table can store changes of a topic. Pure.

    Raises:
        InvalidRequest: ``connector-key``, or ``same-topic``.
    """
    if not table.upserts:
        raise InvalidRequest(
            f"the table's connector is {table.connector}, so a change in it does not replace a row: ingest into an "
            "upsert-kafka or a managed table",
            code="connector-key",
        )
    if table.topic == source.topic and named_brokers(table.bootstrap_servers) & named_brokers(source.bootstrap_servers):
        raise InvalidRequest(
            f"topic {source.topic} would be written into itself: choose another topic for the table", code="same-topic"
        )


def _target(table: Table | KafkaTable, source: KafkaDeclaration, topic: ConnectorTopic, ambient: Ambient) -> Target:
    if isinstance(table, Table):
        return ManagedTarget(table, topic.identified()[0])
    check_target(table.declaration, source)
    from log.connector.groups import group_offsets  # librdkafka takes 80 ms to load

    group = source.properties.get("group.id", f"tablestore-ingest-{table.table_id}")
    return TopicTarget(table, group_offsets(source, group, ambient), ambient)


def _check_known(asked: IngestOptions, columns: Schema | None, target: Target) -> None:
    """Checks that the given columns and key are those of an existing table."""
    if asked.primary_key and asked.primary_key != target.key:
        raise InvalidRequest(
            f"table {asked.into} has the primary key {', '.join(target.key)}, but {', '.join(asked.primary_key)} was "
            "passed: leave it out",
            code="other-table",
        )
    if columns is not None and (other := [n for n in columns.names if n not in target.columns]):
        raise InvalidRequest(
            f"table {asked.into} has no column {other[0]!r}: its columns are {', '.join(target.columns.names)}. Alter "
            "it first",
            code="other-table",
        )
