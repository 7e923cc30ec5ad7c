"""Settings of the Kafka clients of a table's log (PROTOCOL.md section 7.1)."""

from __future__ import annotations

import logging
from typing import Any

from filestore.errors import InvalidRequest, Unsupported
from log.kafka.errors import TIMEOUT_LIMIT
from log.kafka.settings import CONSUMER_DEFAULTS, PRODUCER_DEFAULTS, UNBOUNDED_QUEUE, of_clients, seconds_of
from log.table.config import LogConfig

__all__ = [
    "TOMBSTONE_HEADER",
    "TRANSACTION_TIMEOUT_MS",
    "client_settings",
    "consumer_settings",
    "plain_producer_settings",
    "producer_settings",
    "tail_settings",
    "timeout_hidden",
    "timeout_seconds",
    "timeout_too_long",
    "timeout_unknown",
    "topic_of",
]

logger = logging.getLogger(__name__)

TRANSACTION_TIMEOUT_MS = 2_147_483_547
"""24.8 days: prepared transactions wait for a snapshot, not for a clock.

A broker takes 2147483647 for "never". But librdkafka computes ``transaction.timeout.ms + 100`` in 32 bits
(rdkafka_conf.c), so with "never" it refuses every ``socket.timeout.ms``, and makes one of its own that
overflows when it is turned into microseconds (rd_kafka_buf_calc_timeout): requests then time out before they
are sent.
"""

TOMBSTONE_HEADER = "tablestore.txn"
"""A null value has no room for its transaction: this header names it."""

_LARGEST_LIMIT = 2_147_483_647
_WITHOUT_TRANSACTIONS = (
    "make the table with log.kafka.transactions = false: Tablestore's readers then see the same, and only other "
    "consumers of the topic may see records of writes that failed"
)

_PROTECTED = frozenset(
    {"bootstrap.servers", "transactional.id", "transaction.timeout.ms", "enable.idempotence", "acks"}
)

# Nobody sees a record before the snapshot, and `flush` waits for no linger: so batches may fill. With 5 ms the last of
# each chunk goes out half full, for a tenth to a fifth more processor time in client and broker (measured).
_UNTIL_FLUSHED = {"linger.ms": "50"}
# A log's topic exists since its table was made. One that the brokers do not know was deleted: 30 s of waiting do not
# help.
_TOPIC_IS_THERE = {"topic.metadata.propagation.max.ms": "5000"}


def client_settings(config: LogConfig) -> dict[str, Any]:
    """Returns the settings of all clients: the table's ``log.kafka.properties.*`` over our defaults.

    Raises:
        InvalidRequest: ``log-properties``: a property that the protocol itself sets; ``bad-secret``.
    """
    given = dict(config.properties)
    if clash := sorted(_PROTECTED & given.keys()):
        raise InvalidRequest(
            f"log.kafka.properties.{clash[0]} cannot be set: the log's protocol depends on it",
            code="log-properties",
        )
    return of_clients(given, config.bootstrap_servers, logger)


def producer_settings(config: LogConfig, transaction_id: str) -> dict[str, Any]:
    """Returns the settings of a producer of one transaction that never times out."""
    return {
        **PRODUCER_DEFAULTS,
        **_UNTIL_FLUSHED,
        **_TOPIC_IS_THERE,
        **client_settings(config),
        "transactional.id": transaction_id,
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        **UNBOUNDED_QUEUE,
    }


def plain_producer_settings(config: LogConfig) -> dict[str, Any]:
    """Returns the settings of a producer without transactions: idempotent; the count shows whether a batch was lost.

    ``enable.gapless.guarantee`` would add nothing: it is experimental, warns with each producer, and leaves out
    messages that time out.
    """
    return {
        **PRODUCER_DEFAULTS,
        **_UNTIL_FLUSHED,
        **_TOPIC_IS_THERE,
        **client_settings(config),
        **({"linger.ms": "1"} if config.eventual else {}),  # somebody may be waiting for the record
        "enable.idempotence": True,
        **UNBOUNDED_QUEUE,
    }


def consumer_settings(config: LogConfig, *, committed: bool = False) -> dict[str, Any]:
    """Returns the settings of a consumer that commits no offsets, and that fails when an offset was deleted."""
    return {
        **CONSUMER_DEFAULTS,
        **client_settings(config),
        "group.id": f"tablestore-{config.table_id}",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed" if committed else "read_uncommitted",
    }


def tail_settings(config: LogConfig) -> dict[str, Any]:
    """Returns the settings of a consumer that waits at the end of its partitions for new records."""
    return {**consumer_settings(config), "fetch.wait.max.ms": "200", "enable.partition.eof": False}


def topic_of(config: LogConfig) -> str:
    """Returns the topic's name. REQUIRES: the log is in Kafka."""
    assert config.topic is not None, "a log in Kafka has a topic"
    return config.topic


def timeout_seconds(config: LogConfig) -> float:
    """Returns how long a request may take: ``log.kafka.properties.socket.timeout.ms``.

    Raises:
        InvalidRequest: ``log-properties``.
    """
    return seconds_of(dict(config.properties))


def timeout_too_long(action: str, limit: str = f"less than {TRANSACTION_TIMEOUT_MS}") -> Unsupported:
    """Makes the error of a broker that would abort prepared transactions by itself."""
    return Unsupported(
        f"{action}: the broker allows transactions of {limit} ms and aborts older ones, also if a snapshot "
        f"names them. Set {TIMEOUT_LIMIT}={_LARGEST_LIMIT} in the broker's server.properties and restart it; or, "
        f"if that is not yours to set, {_WITHOUT_TRANSACTIONS}",
        code="kafka-transaction-timeout",
    )


def timeout_unknown(action: str) -> Unsupported:
    """Makes the error of a broker that does not say its limit."""
    return Unsupported(
        f"{action}: the broker does not say its limit, {TIMEOUT_LIMIT}, and below {TRANSACTION_TIMEOUT_MS} ms it "
        f"would abort transactions that a snapshot names: {_WITHOUT_TRANSACTIONS}",
        code="kafka-transaction-timeout",
    )


def timeout_hidden(action: str) -> InvalidRequest:
    """Makes the error of a user who may not ask for the broker's limit."""
    return InvalidRequest(
        f"{action}: Kafka does not allow this user to ask for the broker's {TIMEOUT_LIMIT}: give the user the right "
        "DESCRIBE_CONFIGS on the cluster (kafka-acls --add --cluster --operation DescribeConfigs); or "
        f"{_WITHOUT_TRANSACTIONS}",
        code="log-not-authorized",
    )
