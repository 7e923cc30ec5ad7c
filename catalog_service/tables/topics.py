"""Decides whether two tables of a catalog would use one topic as their log. Pure."""

from __future__ import annotations

from catalog_service.database.schema import Definition
from filestore.model.definition import TableDefinition
from log.connector.properties import named_brokers

__all__ = ["shares_topic"]


def shares_topic(one: TableDefinition, other: Definition) -> bool:
    """Returns whether both name the same topic, and at least one common broker.

    A table with a connector may use the topic of a log, too: it is one of the log's readers.
    """
    if not isinstance(other, TableDefinition):
        return False
    topic = one.options["log.kafka.topic"]
    return topic is not None and topic == other.options["log.kafka.topic"] and bool(_brokers(one) & _brokers(other))


def _brokers(definition: TableDefinition) -> set[str]:
    return named_brokers(definition.options["log.kafka.bootstrap.servers"] or "")
