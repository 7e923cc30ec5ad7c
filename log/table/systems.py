"""Opens a table's log: the one place that knows both implementations."""

from __future__ import annotations

from filestore.ambient import Ambient
from log.table.config import LogConfig
from log.table.embedded.store import EmbeddedLog
from log.table.store import LogStore

__all__ = ["open_log"]


def open_log(config: LogConfig, ambient: Ambient) -> LogStore:
    """Opens the log of that configuration; it connects with its first use."""
    if config.system == "kafka":
        # librdkafka takes 80 ms to load and only tables with a Kafka log need it
        from log.table.on_kafka.store import KafkaLog

        return KafkaLog(config, ambient)
    return EmbeddedLog(config, ambient)
