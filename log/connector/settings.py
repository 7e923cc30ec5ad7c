"""Settings of Kafka's clients for tables with a connector (CONNECTORS.md section 2)."""

from __future__ import annotations

import logging
from typing import Any

from log.connector.declaration import KafkaDeclaration
from log.kafka.sending import Report
from log.kafka.settings import CONSUMER_DEFAULTS, PRODUCER_DEFAULTS, UNBOUNDED_QUEUE, of_clients, seconds_of

__all__ = ["client_settings", "consumer_settings", "producer_settings", "reads_committed", "timeout_seconds"]

logger = logging.getLogger(__name__)

# What the Java clients do with a key: hash it by murmur2. Messages without a key go anywhere.
_PARTITIONER = "murmur2_random"
# Errors only: what the client tries again by itself, as after each transaction, is nobody's concern.
_QUIET = {"log_level": "3"}


def client_settings(declaration: KafkaDeclaration) -> dict[str, Any]:
    """Returns the settings of all clients: the table's ``properties.*`` over our defaults."""
    return {**_QUIET, **of_clients(declaration.properties, declaration.bootstrap_servers, logger)}


def consumer_settings(declaration: KafkaDeclaration) -> dict[str, Any]:
    """Returns the settings of a consumer that commits no offsets, and that fails when an offset was deleted."""
    return {
        "group.id": f"tablestore-{declaration.topic}",
        "isolation.level": "read_committed",
        **CONSUMER_DEFAULTS,
        # An endless reader asks all the time: each answer may wait for messages.
        "fetch.wait.max.ms": "100",
        **client_settings(declaration),
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
    }


def producer_settings(
    declaration: KafkaDeclaration,
    report: Report,
    transaction_id: str | None = None,
    *,
    certain: bool = True,
) -> dict[str, Any]:
    """Returns the settings of a producer that keeps the order of messages.

    Args:
        declaration: The table.
        report: Called for each message that could not be delivered, and for no other.
        transaction_id: With exactly-once.
        certain: Whether messages have to arrive, and once, as far as this producer can see to it.
    """
    settings = {
        **PRODUCER_DEFAULTS,
        **client_settings(declaration),
        "partitioner": _PARTITIONER,
        "acks": "all" if certain else "0",
        "enable.idempotence": certain,
        "delivery.report.only.error": True,
        "on_delivery": report,
        **UNBOUNDED_QUEUE,
    }
    return settings if transaction_id is None else {**settings, "transactional.id": transaction_id}


def reads_committed(declaration: KafkaDeclaration) -> bool:
    """Returns whether readers skip messages of transactions that are not committed."""
    return declaration.properties.get("isolation.level", "read_committed") == "read_committed"


def timeout_seconds(declaration: KafkaDeclaration) -> float:
    """Returns how long a request may take: ``properties.socket.timeout.ms``. `InvalidRequest` (``log-properties``)."""
    return seconds_of(declaration.properties)
