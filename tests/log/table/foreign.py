"""Kafka clients that know nothing of us, and the log's config in a broker."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka import KafkaConsumer
from kafka import TopicPartition as ForeignPartition

from log.table.config import LogConfig
from tests.conformance.log_store import BUCKETS, make_config
from tests.servers.kafka import KafkaBroker, quiet
from tests.waiting import until

__all__ = [
    "SECONDS",
    "becomes",
    "change_topic",
    "foreign_ids",
    "foreign_values",
    "kafka_config",
    "kafka_python_ids",
    "topic_setting",
]

SECONDS = 120.0  # machines may be busy


def kafka_config(broker: KafkaBroker, **options: str) -> LogConfig:
    return make_config(
        "",
        **{"log.system": "kafka", "log.kafka.bootstrap.servers": broker.bootstrap},
        **options,
    )


def foreign_values(config: LogConfig, until_offsets: dict[int, int], isolation: str) -> list[dict[str, Any]]:
    """What a consumer that knows nothing of us gets, up to those positions."""
    consumer = Consumer(
        {
            **quiet(config.bootstrap_servers),
            "group.id": str(uuid.uuid4()),
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(config.topic or "", b, 0) for b in until_offsets])
    values, ended = [], set[int]()
    end = time.monotonic() + SECONDS
    while len(ended) < len(until_offsets):
        assert time.monotonic() < end
        for message in consumer.consume(1000, 0.2):
            if message.error() is not None:
                ended.add(message.partition() or 0)
            else:
                values.append(json.loads(message.value() or b"null"))
    consumer.close()
    return values


def foreign_ids(config: LogConfig, isolation: str = "read_committed") -> list[int]:
    values = foreign_values(config, dict.fromkeys(range(BUCKETS), 0), isolation)
    return sorted(v["after"]["id"] for v in values)


def kafka_python_ids(config: LogConfig, count: int) -> list[int]:
    """Ids that kafka-python gets with read_committed: waits for that many, then for one empty poll."""
    consumer = KafkaConsumer(
        bootstrap_servers=config.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        group_id=None,
    )
    consumer.assign([ForeignPartition(config.topic, b) for b in range(BUCKETS)])
    ids: list[int] = []
    end = time.monotonic() + SECONDS
    while True:
        polled = consumer.poll(timeout_ms=300)
        ids += [json.loads(r.value)["after"]["id"] for records in polled.values() for r in records]
        if (len(ids) >= count and not polled) or time.monotonic() > end:
            consumer.close()
            return sorted(ids)


def topic_setting(config: LogConfig, name: str) -> str:
    """A setting of the log's topic, as the broker has it."""
    admin = AdminClient(quiet(config.bootstrap_servers))
    resource = ConfigResource(ResourceType.TOPIC, config.topic)
    return str(admin.describe_configs([resource])[resource].result()[name].value)


def becomes(config: LogConfig, name: str, value: str) -> None:
    """Waits for a setting: a broker has a change when the controller's record has reached it, not before."""
    until(lambda: topic_setting(config, name) == value, what=f"{name} = {value}")


def change_topic(config: LogConfig, **settings: str) -> None:
    """Changes settings of the log's topic, and waits until the broker has them."""
    admin = AdminClient(quiet(config.bootstrap_servers))
    entries = [ConfigEntry(n, v, incremental_operation=AlterConfigOpType.SET) for n, v in settings.items()]
    resource = ConfigResource(ResourceType.TOPIC, config.topic, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
    for name, value in settings.items():
        becomes(config, name, value)
