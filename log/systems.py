"""Opens a table's log: the one place that knows both implementations."""

from __future__ import annotations

from filestore.ambient import Ambient
from log.embedded import EmbeddedLog
from log.store import LogConfig, LogStore

__all__ = ["open_log"]


def open_log(config: LogConfig, ambient: Ambient) -> LogStore:
    """The log of that config; no connection is made before its first use."""
    if config.system == "kafka":
        # librdkafka takes 80 ms to load and only tables with a Kafka log need it
        from log.kafka import KafkaLog

        return KafkaLog(config, ambient)
    return EmbeddedLog(config, ambient)
