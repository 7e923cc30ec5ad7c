"""Settings and error translation for the Kafka clients (PROTOCOL.md section 7.1)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException

from filestore.errors import InvalidRequest, NotFound, TableStoreError, Unavailable, Unsupported
from log.kafka.causes import LastingError
from log.store import LogConfig

__all__ = [
    "CLIENT_DEFAULTS",
    "CONSUMER_DEFAULTS",
    "PRODUCER_DEFAULTS",
    "TIMEOUT_LIMIT",
    "TOMBSTONE_HEADER",
    "TRANSACTION_TIMEOUT_MS",
    "client_settings",
    "consumer_settings",
    "own_timeout_too_long",
    "plain_producer_settings",
    "producer_settings",
    "seconds_of",
    "tail_settings",
    "timeout_hidden",
    "timeout_seconds",
    "timeout_too_long",
    "timeout_untold",
    "topic_of",
    "translated",
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

TIMEOUT_LIMIT = "transaction.max.timeout.ms"
"""The broker's setting that must allow it."""

_LARGEST_LIMIT = 2_147_483_647
_WITHOUT_TRANSACTIONS = (
    "make the table with log.kafka.transactions = false: Tablestore's readers then see the same, and only other "
    "consumers of the topic may see records of writes that failed"
)

_PROTECTED = frozenset(
    {"bootstrap.servers", "transactional.id", "transaction.timeout.ms", "enable.idempotence", "acks"}
)

# A dead broker is an answer within seconds, not minutes: librdkafka waits 60 s for a reply and 300 s for a
# delivery. And one that is back is found within a second: it would look again after up to 10.
_TIMEOUT = "socket.timeout.ms"
CLIENT_DEFAULTS = {
    _TIMEOUT: "10000",
    "reconnect.backoff.max.ms": "1000",
    "socket.keepalive.enable": "true",
    "client.id": "tablestore",
}
PRODUCER_DEFAULTS = {
    "delivery.timeout.ms": "60000",
    "linger.ms": "5",
    # Connecting to the broker only when it is needed makes init_transactions wait on timers: 60 or 500 ms,
    # not 3.
    "enable.sparse.connections": "false",
}
# The writer bounds what is in flight itself: a full queue in the middle of a batch would change the order.
_UNBOUNDED_QUEUE = {"queue.buffering.max.messages": 10_000_000, "queue.buffering.max.kbytes": 2_097_151}
# Nobody sees a record before the snapshot, and `flush` waits for no linger: so batches may fill. With 5 ms the last of
# each chunk goes out half full, for a tenth to a fifth more processor time in client and broker (measured).
_UNTIL_FLUSHED = {"linger.ms": "50"}
# A log's topic was there when its table was made. One that the brokers do not know was deleted, and 30 s tell no more.
_TOPIC_IS_THERE = {"topic.metadata.propagation.max.ms": "5000"}
CONSUMER_DEFAULTS = {
    "queued.max.messages.kbytes": "32768",
    # Only records that are there are asked for: a request that waits at a partition's end would hold up the
    # next range's by as long, by default half a second. Measured: two small ranges in 13 ms, not 1004.
    "fetch.wait.max.ms": "5",
    # With a full queue a partition is asked again after that: by default a second, in which the queue is long empty.
    "fetch.queue.backoff.ms": "5",
    "check.crcs": "true",
}


class Brokers(Protocol):
    """Whose topic it is, for what an error says."""

    @property
    def bootstrap_servers(self) -> str | None:
        """Where its brokers are."""

    @property
    def topic(self) -> str | None:
        """Its name, if it was given one."""


def client_settings(config: LogConfig) -> dict[str, Any]:
    """What every client takes: the table's ``log.kafka.properties.*`` over our defaults.

    Raises:
        InvalidRequest: ``log-properties``: a property that the protocol itself sets.
    """
    given = dict(config.properties)
    if clash := sorted(_PROTECTED & given.keys()):
        raise InvalidRequest(
            f"log.kafka.properties.{clash[0]} cannot be set: the log's protocol depends on it",
            code="log-properties",
        )
    return {**CLIENT_DEFAULTS, **given, "bootstrap.servers": config.bootstrap_servers, "logger": logger}


def producer_settings(config: LogConfig, transaction_id: str) -> dict[str, Any]:
    """A producer of one transaction that never times out."""
    return {
        **PRODUCER_DEFAULTS,
        **_UNTIL_FLUSHED,
        **_TOPIC_IS_THERE,
        **client_settings(config),
        "transactional.id": transaction_id,
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        **_UNBOUNDED_QUEUE,
    }


def plain_producer_settings(config: LogConfig) -> dict[str, Any]:
    """A producer without transactions: nothing is doubled, and a batch that is lost is found out by its count.

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
        **_UNBOUNDED_QUEUE,
    }


def consumer_settings(config: LogConfig, *, committed: bool = False) -> dict[str, Any]:
    """A consumer that is told offsets and keeps none, and that says so when an offset is gone."""
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
    """A consumer that waits at the end of its partitions: the broker answers as soon as there is something."""
    return {**consumer_settings(config), "fetch.wait.max.ms": "200", "enable.partition.eof": False}


def topic_of(config: LogConfig) -> str:
    """The topic's name."""
    return config.topic or f"{config.database}.{config.table}.{config.table_id}"


def timeout_seconds(config: LogConfig) -> float:
    """How long a request may take: ``log.kafka.properties.socket.timeout.ms``.

    Raises:
        InvalidRequest: ``log-properties``.
    """
    return seconds_of(client_settings(config))


def seconds_of(settings: Mapping[str, Any]) -> float:
    """What a client's settings say of that."""
    text = str(settings[_TIMEOUT])
    if not text.isdecimal():
        raise InvalidRequest(f"{_TIMEOUT} = {text!r} is not a number of milliseconds", code="log-properties")
    return int(text) / 1000


@contextmanager
def translated(action: str, config: Brokers) -> Iterator[None]:
    """Turns librdkafka's errors into ours."""
    try:
        yield
    except LastingError as error:
        why = error.cause
        raise why.kind(f"{action}: Kafka at {config.bootstrap_servers}: {why.reason}", code=why.code) from error
    except KafkaException as error:
        cause = error.args[0]
        if isinstance(cause, KafkaError):
            raise _translate(cause, action, config) from error
        raise Unavailable(f"{action}: {error}", code="log-unavailable") from error
    except SystemError as error:
        # confluent-kafka keeps the exception of a fatal error pending while it still calls delivery reports,
        # which swallow it: the call then returns nothing and sets nothing.
        raise Unavailable(
            f"{action}: the Kafka client gave up for good (its log says why): begin another transaction",
            code="log-unavailable",
        ) from error


def _translate(error: KafkaError, action: str, config: Brokers) -> TableStoreError:
    code = error.code()
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
        topic = topic_of(config) if isinstance(config, LogConfig) else config.topic
        return NotFound(f"{action}: Kafka has no topic {topic!r}", code="log-not-found")
    if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return timeout_too_long(action) if isinstance(config, LogConfig) else own_timeout_too_long(action)
    if code in (
        KafkaError._INVALID_ARG,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
    ):
        return InvalidRequest(f"{action}: Kafka refuses it: {error.str()}", code="log-settings")
    if code in (
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ):
        return InvalidRequest(
            f"{action}: Kafka at {config.bootstrap_servers} does not allow it ({error.str()}): "
            "check the properties.* that it has for Kafka (log.kafka.properties.*), and the broker's ACLs",
            code="log-not-authorized",
        )
    return Unavailable(
        f"{action}: Kafka at {config.bootstrap_servers} did not do it ({error.str()}): is the broker running "
        "and reachable from here? Retry then",
        code="log-unavailable",
    )


def timeout_too_long(action: str, limit: str = f"less than {TRANSACTION_TIMEOUT_MS}") -> Unsupported:
    """The error of a broker that would abort prepared transactions by itself."""
    return Unsupported(
        f"{action}: the broker allows transactions of {limit} ms and aborts older ones, also if a snapshot "
        f"names them. Set {TIMEOUT_LIMIT}={_LARGEST_LIMIT} in the broker's server.properties and restart it; or, "
        f"if that is not yours to set, {_WITHOUT_TRANSACTIONS}",
        code="kafka-transaction-timeout",
    )


def own_timeout_too_long(action: str, limit: str = "") -> InvalidRequest:
    """The error of a table with a connector, whose user chose the time; its transactions end with the write."""
    allowed = f" ({limit} ms at most)" if limit else ""
    return InvalidRequest(
        f"{action}: the broker allows no transactions as long as properties.transaction.timeout.ms says{allowed}: "
        f"lower that, or raise {TIMEOUT_LIMIT} in the broker's server.properties",
        code="kafka-transaction-timeout",
    )


def timeout_untold(action: str) -> Unsupported:
    """The error of a broker of which nobody knows whether it would."""
    return Unsupported(
        f"{action}: the broker does not tell its limit, {TIMEOUT_LIMIT}, and below {TRANSACTION_TIMEOUT_MS} ms it "
        f"would abort transactions that a snapshot names: {_WITHOUT_TRANSACTIONS}",
        code="kafka-transaction-timeout",
    )


def timeout_hidden(action: str) -> InvalidRequest:
    """The error of a user whom the broker may not tell."""
    return InvalidRequest(
        f"{action}: Kafka does not allow this user to ask for the broker's {TIMEOUT_LIMIT}: give the user the right "
        "DESCRIBE_CONFIGS on the cluster (kafka-acls --add --cluster --operation DescribeConfigs); or "
        f"{_WITHOUT_TRANSACTIONS}",
        code="log-not-authorized",
    )
