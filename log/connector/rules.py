"""Checks options, columns and key of a table with a connector against each other. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from filestore.errors import InvalidRequest
from filestore.model.names import check_new_name
from filestore.model.schema import check_fields
from filestore.model.text import name_list
from filestore.model.types import is_key_type, to_sql
from log.connector.formats.avro.schema import has_time
from log.connector.formats.fields import FieldsInclude
from log.connector.formats.format import Role
from log.connector.formats.malformed import Policy
from log.connector.formats.options import select_options
from log.connector.options import (
    CONNECTOR,
    CONNECTOR_OPTIONS,
    PROPERTIES,
    SERVERS,
    Semantic,
    check_names,
    option_value,
)
from log.connector.properties import check_properties
from log.connector.startup import StartupMode

if TYPE_CHECKING:
    from log.connector.declaration import KafkaDeclaration

__all__ = ["check_formats", "check_halves", "check_key", "check_options", "check_times"]


_LEGACY = "timestamp_mapping.legacy"


def check_options(made: KafkaDeclaration) -> None:
    """Checks names and values of options, also against each other; for errors see `KafkaDeclaration.of`."""
    for name in CONNECTOR_OPTIONS:
        option_value(made.options, name)
    for name in (CONNECTOR, "topic", PROPERTIES + SERVERS):
        if made[name] is None:
            raise InvalidRequest(f"option {name!r} is missing: {CONNECTOR_OPTIONS[name].doc}", code="missing-option")
    if made["value.format"] is None and made["format"] is None:
        raise InvalidRequest("option 'value.format' is missing: name the values' format", code="missing-option")
    if made["value.format"] is not None and made["format"] is not None:
        raise InvalidRequest("'format' and 'value.format' are one option: give one of them", code="bad-option-value")
    check_names(made.options, made.formats)
    check_properties(made.properties)
    _check_scan(made)
    if made.semantic is Semantic.EXACTLY_ONCE and made["sink.parallelism"] not in (None, 1):
        raise InvalidRequest(
            f"option sink.parallelism = {made['sink.parallelism']}: with sink.semantic = exactly-once a write is one "
            "transaction, which one task writes: leave it out, or take at-least-once",
            code="sink-parallelism",
        )


def _check_scan(made: KafkaDeclaration) -> None:
    startup = made.startup
    if made.upserts and startup.mode is not StartupMode.EARLIEST:
        raise InvalidRequest(
            f"option scan.startup.mode = {startup.mode}: an upsert-kafka table is read from the earliest offset, since "
            "a later change may delete or replace a row whose message would not be read. Leave it out, or read the "
            "topic with connector = kafka",
            code="startup-mode",
        )
    if (made["scan.dead-letter-topic"] is not None) != (made.policy is Policy.DEAD_LETTER):
        raise InvalidRequest(
            "options scan.malformed-records = dead-letter and scan.dead-letter-topic go together: give both or neither",
            code="malformed-policy",
        )
    if made["scan.dead-letter-topic"] == made.topic:
        raise InvalidRequest(
            f"option scan.dead-letter-topic = {made.topic!r} is the table's own topic, and would be read "
            "again: name another",
            code="malformed-policy",
        )


def check_key(made: KafkaDeclaration) -> None:
    """Checks columns and primary key."""
    check_fields(made.columns.columns)
    made.columns.check_physical("primary key", made.primary_key)
    known = set(made.columns.names)
    for name in made.primary_key:
        if name not in known:
            raise InvalidRequest(
                f"primary key column {name!r} is not among the columns, which are {name_list(made.columns.names)}",
                code="unknown-column",
            )
        column = made.columns.physical.column(name)
        if column.nullable:
            raise InvalidRequest(f"primary key column {name!r} is nullable: declare it NOT NULL", code="nullable-key")
        if not is_key_type(column.type):
            raise InvalidRequest(
                f"primary key column {name!r} is {to_sql(column.type)}, which has no exact equality: use a string, "
                "binary, integer, boolean, decimal, date or timestamp",
                code="key-type",
            )
    if len(set(made.primary_key)) < len(made.primary_key):
        raise InvalidRequest(f"the primary key {list(made.primary_key)} names a column twice", code="duplicate-column")
    if made.upserts and not made.primary_key:
        raise InvalidRequest(
            "connector = upsert-kafka needs a primary key, which is what the messages' keys hold: declare "
            "PRIMARY KEY (…) NOT ENFORCED",
            code="connector-key",
        )
    if made.upserts and made["key.fields"] is not None:
        raise InvalidRequest(
            "option key.fields: the key of an upsert-kafka table is its primary key: leave it out",
            code="connector-key",
        )


def check_halves(made: KafkaDeclaration) -> None:
    """Checks which columns keys and values hold."""
    if made.upserts and Role.KEY not in made.formats:
        raise InvalidRequest("option 'key.format' is missing: name the keys' format", code="missing-option")
    for one, other in (("key.format", "key.fields"), ("key.fields", "key.format")):
        if not made.upserts and made[one] is not None and made[other] is None:
            raise InvalidRequest(f"option {one} needs {other}: give both or neither", code="missing-option")
    if not made.key_fields:
        for name in ("key.fields-prefix", "fields.verify-integrity", "value.fields-include"):
            if name in made.options:
                raise InvalidRequest(
                    f"option {name} has no meaning without a key: give key.format and key.fields, or leave it out",
                    code="connector-key",
                )
    if made["fields.verify-integrity"] and made["value.fields-include"] != FieldsInclude.ALL:
        raise InvalidRequest(
            "option fields.verify-integrity compares the key's columns in key and value, but with "
            "value.fields-include = EXCEPT_KEY the value does not have them: leave one of the two options out",
            code="connector-key",
        )
    for name in made.projection.key_schema.names:
        check_new_name(f"the keys' field name {name!r}, which is the column's without key.fields-prefix,", name)


def check_times(made: KafkaDeclaration) -> None:
    """Requires of a new table with bare Avro an option for the unit of timestamps, which its messages do not say.

    Raises:
        InvalidRequest: ``missing-option``. Tables of older versions lack the option, and count microseconds.
    """
    halves = made.projection
    for role, schema in ((Role.KEY, halves.key_schema), (Role.VALUE, halves.value_schema)):
        if made.formats.get(role) != "avro" or _LEGACY in select_options(made.options, "avro", role):
            continue
        if times := [field.name for field in schema if has_time(field.type)]:
            raise InvalidRequest(
                f"option 'avro.{_LEGACY}' is missing: column {times[0]!r} has timestamps, and Avro messages without a "
                "schema do not say what their numbers count. Set it to 'true' for milliseconds, which Flink writes by "
                "default, or to 'false' for microseconds",
                code="missing-option",
            )


def check_formats(made: KafkaDeclaration) -> None:
    """Checks that the formats can encode what the connector needs."""
    value = made.value_format
    if made.upserts and value.changelog:
        raise InvalidRequest(
            f"option value.format = {made.formats[Role.VALUE]}: a message of upsert-kafka is a row or empty, but "
            "that format encodes changes. Take json, csv, avro, avro-confluent or raw, or connector = kafka",
            code="connector-format",
        )
    if not made.upserts and made.primary_key and not value.changelog:
        raise InvalidRequest(
            f"option value.format = {made.formats[Role.VALUE]}: its messages are only rows, which cannot update or "
            "delete earlier ones, so the topic can have several rows of one key. Take connector = upsert-kafka, or "
            "debezium-json or canal-json, or declare no primary key",
            code="connector-key",
        )
