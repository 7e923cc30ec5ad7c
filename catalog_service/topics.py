"""Whether two tables of a catalog would have one topic as their log. Pure."""

from __future__ import annotations

from filestore.model.definition import TableDefinition
from log.connectors.declaration import KafkaDeclaration
from log.connectors.properties import named_brokers

__all__ = ["shares_topic"]


def shares_topic(one: TableDefinition, other: TableDefinition | KafkaDeclaration) -> bool:
    """Whether both name the same topic, at brokers of which one at least is named by both.

    A table that is declared on a topic may be declared on a log's, too: it is one of its readers.
    """
    if isinstance(other, KafkaDeclaration):
        return False
    topic = one.options["log.kafka.topic"]
    return topic is not None and topic == other.options["log.kafka.topic"] and bool(_brokers(one) & _brokers(other))


def _brokers(definition: TableDefinition) -> set[str]:
    return named_brokers(definition.options["log.kafka.bootstrap.servers"] or "")
