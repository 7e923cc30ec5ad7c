"""Checks which options ``properties.*`` may be passed to Kafka's clients. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from filestore.errors import InvalidRequest

__all__ = ["check_properties", "named_brokers"]

_OURS: Mapping[str, str] = {
    "auto.offset.reset": "scan.startup.mode says where a reader begins",
    "enable.auto.commit": "readers know where they are and commit nothing",
    "enable.auto.offset.store": "readers know where they are and commit nothing",
    "enable.partition.eof": "readers need it as it is",
    "acks": "it follows from sink.semantic",
    "request.required.acks": "it follows from sink.semantic",
    "enable.idempotence": "it follows from sink.semantic",
    "transactional.id": "sink.semantic = exactly-once gives each write one of its own",
    "delivery.report.only.error": "writers need it as it is",
    "partitioner": "messages go where the hash of their key says, as with Kafka's own clients",
    "partitioner.class": "messages go where the hash of their key says, as with Kafka's own clients",
    "key.serializer": "key.format says how keys are spelled",
    "value.serializer": "value.format says how values are spelled",
    "key.deserializer": "key.format says how keys are spelled",
    "value.deserializer": "value.format says how values are spelled",
    "metadata.broker.list": "name the brokers with properties.bootstrap.servers",
}
# Names of the Java client that librdkafka, which is the client here, has other names for.
_JAVA: Mapping[str, str] = {
    "sasl.jaas.config": "properties.sasl.username and properties.sasl.password",
    "ssl.truststore.location": "properties.ssl.ca.location, a file in PEM",
    "ssl.truststore.password": "properties.ssl.ca.location, a file in PEM",
    "ssl.truststore.type": "properties.ssl.ca.location, a file in PEM",
    "max.poll.records": "nothing: batches are bounded anyway",
    "fetch.max.wait.ms": "properties.fetch.wait.max.ms",
    "max.request.size": "properties.message.max.bytes",
}
_ISOLATION = ("read_committed", "read_uncommitted")


def check_properties(properties: Mapping[str, str]) -> None:
    """Refuses properties that would break the promises of other options, or that the client names otherwise.

    Args:
        properties: By the names that Kafka's clients have for them.

    Raises:
        InvalidRequest: ``connector-properties``.
    """
    for name, value in properties.items():
        if name in _OURS:
            raise _refused(name, f"cannot be set: {_OURS[name]}")
        if name in _JAVA:
            raise _refused(name, f"is known to the Java client only: use {_JAVA[name]}")
        if name == "isolation.level" and value not in _ISOLATION:
            raise _refused(name, f"= {value!r} should be {' or '.join(_ISOLATION)}")
        if name == "group.id" and not value:  # librdkafka's consumer ends the process (2.16.0)
            raise _refused(name, "is empty: leave it out, or name a group")


def _refused(name: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"option properties.{name} {why}", code="connector-properties")


def named_brokers(servers: str) -> set[str]:
    """Returns the brokers that ``bootstrap.servers`` names, as comparable texts; one under two names counts twice."""
    return {server.strip().lower() for server in servers.split(",") if server.strip()}
