"""Kafka tables for tests, and foreign clients that read and write their topics."""

from __future__ import annotations

import uuid
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tablestore import KafkaTable, Store
from tests.servers.kafka import KafkaBroker
from tests.waiting import until

KEYED = "id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED"
PLAIN = "id BIGINT, v STRING"
UPSERT = {"connector": "upsert-kafka", "key.format": "json", "value.format": "json"}
KAFKA = {"connector": "kafka", "format": "json"}


class Topics:
    """Tables of one broker, each with a topic of its own."""

    def __init__(self, store: Store, broker: KafkaBroker) -> None:
        self.store = store
        self.broker = broker

    def table(self, columns: str, base: dict[str, str], partitions: int = 3, **options: str) -> KafkaTable:
        topic = f"t-{uuid.uuid4()}"
        named = {name.replace("__", "-").replace("_", "."): value for name, value in options.items()}
        given = {
            "topic": topic,
            "topic.partitions": str(partitions),
            "properties.bootstrap.servers": self.broker.bootstrap,
            **base,
            **named,
        }
        name = f"shop.t_{topic.replace('-', '_')}"
        return self.store.create_kafka_table(name, columns, options=given)

    def records(self, table: KafkaTable, count: int, **settings: Any) -> list[Any]:
        """What kafka-python gets, by partition and offset; and that there is no more."""
        consumer = KafkaConsumer(
            bootstrap_servers=self.broker.bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            group_id=None,
            **settings,
        )
        topic = table.declaration.topic
        consumer.assign([TopicPartition(topic, p) for p in table.offsets()])
        found: list[Any] = []

        def polled() -> bool:
            got = consumer.poll(timeout_ms=200)
            found.extend(record for records in got.values() for record in records)
            return len(found) >= count and not got

        until(polled, what=f"{count} messages")
        consumer.close()
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def produce(self, table: KafkaTable, messages: list[tuple[bytes | None, bytes | None]], **more: Any) -> None:
        producer = KafkaProducer(bootstrap_servers=self.broker.bootstrap)
        for key, value in messages:
            producer.send(table.declaration.topic, value, key, **more)
        producer.flush()
        producer.close()
