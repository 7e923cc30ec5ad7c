"""The options of tables with a connector: names, types, defaults and meanings, and which other names are allowed.

Names are Flink's wherever Flink has the thing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from filestore.errors import InvalidRequest
from filestore.model.log_options import LITERAL_SECRETS
from filestore.model.names import names_in
from filestore.model.option_values import Option, duration, flag, one_of, some_text, whole
from filestore.model.options import OPTIONS
from filestore.model.text import meant
from filestore.model.watermark import WATERMARK_OPTIONS
from log.connector.formats.fields import FieldsInclude
from log.connector.formats.format import Role
from log.connector.formats.malformed import Policy
from log.connector.formats.options import FORMAT_OPTIONS
from log.connector.startup import specific_offsets

__all__ = [
    "CONNECTOR",
    "CONNECTOR_OPTIONS",
    "PROPERTIES",
    "SERVERS",
    "Connector",
    "Semantic",
    "check_names",
    "option_value",
]

CONNECTOR = "connector"
PROPERTIES = "properties."
"""The prefix of options that are passed to Kafka's clients."""
SERVERS = "bootstrap.servers"

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class Connector(StrEnum):
    """The kinds of topics, by the option ``connector``: messages are rows, or upserts."""

    KAFKA = "kafka"
    UPSERT_KAFKA = "upsert-kafka"


class Semantic(StrEnum):
    """The delivery guarantees of writes, by the option ``sink.semantic``."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"
    NONE = "none"


def _topic(text: str) -> str:
    if not _TOPIC.fullmatch(text) or text in (".", ".."):
        raise ValueError("the name of one topic: at most 249 letters, digits, '.', '_' and '-'")
    return text


def _columns_of_key(text: str) -> tuple[str, ...]:
    """Parses names as Flink separates them, or as the other options do."""
    return names_in(text, ",;")


_FORMATS = one_of(*FORMAT_OPTIONS)
_MOST = 2**63 - 1

_ALL: tuple[Option, ...] = (
    Option(CONNECTOR, "enum", one_of(*map(str, Connector)), None, "What the topic's messages are. Required."),
    Option("topic", "text", _topic, None, "The topic. Required."),
    Option(
        "properties.bootstrap.servers",
        "text",
        some_text,
        None,
        "Where the brokers are: `host:port`, separated by commas. Required.",
    ),
    Option("key.format", "enum", _FORMATS, None, "The format of the keys. Required by upsert-kafka."),
    Option(
        "key.fields",
        "columns",
        _columns_of_key,
        None,
        "The columns of the key, separated by `;` or `,`; a name with one of these stands in backticks. With "
        "upsert-kafka they are the primary key.",
    ),
    Option("key.fields-prefix", "text", some_text, None, "Stands before the key's columns in the table alone."),
    Option("value.format", "enum", _FORMATS, None, "The format of the values. Required."),
    Option("format", "enum", _FORMATS, None, "The same as `value.format`; give one of them."),
    Option(
        "value.fields-include",
        "enum",
        one_of(*map(str, FieldsInclude)),
        FieldsInclude.ALL,
        "Whether values hold the key's columns, too.",
    ),
    Option(
        "fields.verify-integrity",
        "boolean",
        flag,
        "false",
        "A message whose value contradicts its key is malformed.",
    ),
    Option(
        "scan.startup.mode",
        "enum",
        one_of("earliest-offset", "latest-offset", "timestamp", "specific-offsets"),
        "earliest-offset",
        "Where a reader begins. upsert-kafka is always read from the earliest offset.",
    ),
    Option(
        "scan.startup.timestamp-millis",
        "integer",
        whole(0, _MOST),
        None,
        "With mode timestamp: at the first message that is not older, in milliseconds since 1970.",
    ),
    Option(
        "scan.startup.specific-offsets",
        "offsets",
        specific_offsets,
        None,
        "With mode specific-offsets: `partition:0,offset:42;partition:1,offset:300`; other partitions from their "
        "beginning.",
    ),
    Option(
        "scan.topic-partition-discovery.interval",
        "duration",
        duration,
        "5 min",
        "How often an endless reader looks for new partitions; `0 ms`: never.",
    ),
    Option(
        "scan.malformed-records",
        "enum",
        one_of(*map(str, Policy)),
        Policy.FAIL,
        "What becomes of messages that cannot be read: the read fails, or they are skipped, or sent to another topic.",
    ),
    Option("scan.dead-letter-topic", "text", _topic, None, "With dead-letter: that topic."),
    Option(
        "sink.semantic",
        "enum",
        one_of(*map(str, Semantic)),
        Semantic.AT_LEAST_ONCE,
        "What a write promises: its messages are there at least once; all of them once, or none, as one Kafka "
        "transaction; or nothing.",
    ),
    Option(
        "sink.parallelism",
        "integer",
        whole(1, 100_000),
        None,
        "How many tasks of a Spark job write; default: as many as the topic has partitions, at most "
        "`spark.sql.shuffle.partitions`. With exactly-once one, whose transaction is the write.",
    ),
    Option(
        "topic.partitions",
        "integer",
        whole(1, 100_000),
        None,
        "With it a topic that is not there is made together with the table, for upsert-kafka a compacted one.",
    ),
    Option(
        "topic.replication-factor", "integer", whole(1, 100), None, "Of a topic that is made; default: the broker's."
    ),
    Option(
        "topic.check",
        "boolean",
        flag,
        "true",
        "Whether the broker and the topic have to be there when the table is created.",
    ),
    *WATERMARK_OPTIONS,
    LITERAL_SECRETS,
)

CONNECTOR_OPTIONS: Mapping[str, Option] = {option.name: option for option in _ALL}

_ELSEWHERE = {
    "sink.delivery-guarantee": "it is called 'sink.semantic' here",
    "sink.transactional-id-prefix": "each write has a transactional id of its own",
    "sink.buffer-flush.max-rows": "nothing is buffered between writes: each writes all of its rows",
    "sink.buffer-flush.interval": "nothing is buffered between writes: each writes all of its rows",
    "sink.partitioner": "messages go where the hash of their key says, as with Kafka's own clients",
    "topic-pattern": "a table is one topic, named by 'topic'",
    "scan.bounded.mode": "scan() ends where the topic ended when it began, follow() never",
}


def check_names(given: Mapping[str, str], formats: Mapping[Role, str]) -> None:
    """Refuses options that do not exist, or that nothing would read.

    Args:
        given: By name.
        formats: The formats in use.

    Raises:
        InvalidRequest: ``unknown-option``. Names behind a format's own prefix are left to the format.
    """
    used = {f"{name}." for name in formats.values()} | {f"{role}.{name}." for role, name in formats.items()}
    for option in given:
        if option in CONNECTOR_OPTIONS or option.startswith((PROPERTIES, *used)):
            continue
        raise InvalidRequest(f"unknown option {option!r}: {_advice(option, formats)}", code="unknown-option")


def _advice(name: str, formats: Mapping[Role, str]) -> str:
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    for known in FORMAT_OPTIONS:
        if name.startswith((f"{known}.", f"key.{known}.", f"value.{known}.")):
            used = " and ".join(f"{role}.format = {used}" for role, used in formats.items())
            return f"it belongs to the format {known}, and the table has {used}"
    if name in OPTIONS:
        return "it is one of managed tables, which have no connector"
    near = meant(name, CONNECTOR_OPTIONS)
    hint = f"did you mean {near!r}? There are" if near else "there are"
    return f"{hint} {', '.join(CONNECTOR_OPTIONS)}, properties.* and options of the formats"


def option_value(given: Mapping[str, str], name: str) -> Any:
    """Returns the value of an option, or of its default; None if there is none.

    Raises:
        InvalidRequest: ``bad-option-value``.
    """
    option = CONNECTOR_OPTIONS[name]
    text = given.get(name, option.default)
    if text is None:
        return None
    try:
        return option.parse(text)
    except ValueError as error:
        raise InvalidRequest(f"option {name} = {text!r} should be {error}", code="bad-option-value") from error
