"""Turns librdkafka's errors into ours, and lists which of them pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException

from filestore.errors import InvalidRequest, NotFound, TableStoreError, Unavailable
from log.kafka.causes import LastingError

__all__ = ["GONE", "PASSING", "TIMEOUT_LIMIT", "TOPIC_IN_DOUBT", "Brokers", "own_timeout_too_long", "translated"]

TIMEOUT_LIMIT = "transaction.max.timeout.ms"
"""The broker's setting that must allow it."""


GONE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
# librdkafka goes on trying by itself after these
PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        # The client looks for the coordinator of its group, of which readers need no more than that it has a name.
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    }
)
TOPIC_IN_DOUBT = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._DESTROY,  # of the client's own object of the topic
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._PURGE_QUEUE,  # the transaction failed, as without the right
    }
)


class Brokers(Protocol):
    """The names of brokers and topic in error messages."""

    @property
    def bootstrap_servers(self) -> str | None:
        """The addresses of the brokers."""

    @property
    def topic(self) -> str | None:
        """The topic's name, if there is one."""

    @property
    def if_gone(self) -> str:
        """Returns what to do if the topic does not exist any more."""


def own_timeout_too_long(action: str, limit: str = "") -> InvalidRequest:
    """Makes the error of a producer whose user chose a longer transaction timeout than the broker allows."""
    allowed = f" ({limit} ms at most)" if limit else ""
    return InvalidRequest(
        f"{action}: the broker allows no transactions as long as properties.transaction.timeout.ms says{allowed}: "
        f"lower that, or raise {TIMEOUT_LIMIT} in the broker's server.properties",
        code="kafka-transaction-timeout",
    )


@contextmanager
def translated(
    action: str, config: Brokers, too_long: Callable[[str], TableStoreError] = own_timeout_too_long
) -> Iterator[None]:
    """Turns librdkafka's errors into ours.

    Args:
        action: What errors say was tried.
        config: Where.
        too_long: Makes the error of a broker that does not allow transactions as long as the producer asks for.
    """
    try:
        yield
    except LastingError as error:
        why = error.cause
        raise why.kind(f"{action}: Kafka at {config.bootstrap_servers}: {why.reason}", code=why.code) from error
    except KafkaException as error:
        cause = error.args[0]
        if isinstance(cause, KafkaError):
            if cause.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
                raise too_long(action) from error
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
    if code == KafkaError.INVALID_REPLICATION_FACTOR and "fenced" in error.str():
        return Unavailable(  # their heartbeats are late, or they have just started
            f"{action}: Kafka at {config.bootstrap_servers} has no broker that is ready for it ({error.str()}): "
            "retry it",
            code="log-unavailable",
        )
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
        return NotFound(f"{action}: Kafka has no topic {config.topic!r}: {config.if_gone}", code="log-not-found")
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
        f"{action}: Kafka at {config.bootstrap_servers} could not ({error.str()}): is the broker running "
        "and reachable from here? Retry then",
        code="log-unavailable",
    )
