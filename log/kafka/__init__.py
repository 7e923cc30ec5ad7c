"""The log as a Kafka topic (PROTOCOL.md sections 2 and 7); ``declared_*``: tables that are topics (CONNECTORS.md)."""

from log.kafka.store import KafkaLog

__all__ = ["KafkaLog"]
