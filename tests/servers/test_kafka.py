"""The test broker: a committed record survives a kill, and the address stays the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.servers.kafka import NEVER_MS, KafkaBroker, quiet

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@pytest.mark.deep
def test_a_committed_record_outlives_a_kill(tmp_path: Path) -> None:
    with KafkaBroker(tmp_path / "broker") as broker:
        address = broker.bootstrap
        admin = AdminClient(quiet(address))
        for created in admin.create_topics([NewTopic("changes", 1, 1)]).values():
            created.result()
        producer = Producer({**quiet(address), "transactional.id": "t", "transaction.timeout.ms": NEVER_MS})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("changes", b"kept")
        producer.commit_transaction()
        del producer
        # Killed before it has marked the records as committed, the broker now and then never does it (PROTOCOL.md 8).
        assert _first_value(address) == b"kept"

        broker.kill()
        assert broker.pid is None
        broker.restart()

        assert broker.bootstrap == address
        assert _first_value(address) == b"kept"
    assert broker.log.stat().st_size > 0


def _first_value(address: str) -> bytes | None:
    consumer = Consumer({**quiet(address), "group.id": "g", "isolation.level": "read_committed"})
    try:
        consumer.assign([TopicPartition("changes", 0, 0)])
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        return message.value()
    finally:
        consumer.close()
