"""Errors of Kafka's client become errors of ours, by what the caller should do next."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaError, KafkaException

from filestore.errors import InvalidRequest, TableStoreError, Unavailable
from log.kafka.errors import translated


@dataclass
class Somewhere:
    bootstrap_servers: str | None = "one:9092"
    topic: str | None = "orders"
    if_gone: str = "make it anew"


@pytest.mark.parametrize(
    ("reason", "kind", "code"),
    [
        (
            "Unable to replicate the partition 1 time(s): All brokers are currently fenced.",
            Unavailable,
            "log-unavailable",
        ),
        ("Replication factor: 3 larger than available brokers: 1.", InvalidRequest, "log-settings"),
    ],
)
def test_too_few_brokers_for_a_topic_may_pass_if_they_are_only_fenced(
    reason: str, kind: type[TableStoreError], code: str
) -> None:
    cause = KafkaException(KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, reason))
    with pytest.raises(kind, match="creating a topic") as caught, translated("creating a topic", Somewhere()):
        raise cause
    assert caught.value.code == code
    assert reason.rstrip(".") in caught.value.message
