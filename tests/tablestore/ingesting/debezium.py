"""Debezium's messages for tests, with schemas as Kafka Connect's JsonConverter writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import NewTopic

__all__ = ["ID", "TEXT", "Messages", "decimal", "instant", "make_topic"]

ID = {"type": "int64", "optional": False}
TEXT = {"type": "string", "optional": True}


def instant(name: str) -> dict[str, Any]:
    return {"type": "int64", "optional": True, "name": f"io.debezium.time.{name}", "version": 1}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    name = "org.apache.kafka.connect.data.Decimal"
    return {"type": "bytes", "optional": True, "name": name, "version": 1, "parameters": parameters}


def make_topic(servers: str, topic: str, partitions: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics([NewTopic(topic, partitions, 1)])
    admin.close()


class Messages:
    """What a connector writes of one table.

    Args:
        columns: The schemas of the columns, by name.
        key: The columns of the messages' keys.
        described: Whether messages have their schemas in them.
    """

    def __init__(self, columns: Mapping[str, Any], key: tuple[str, ...] = ("id",), *, described: bool = True) -> None:
        self.columns = columns
        self.key = key
        self.described = described

    def change(self, op: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> tuple[bytes, bytes]:
        """Key and value."""
        row = after if after is not None else before
        assert row is not None
        payload = {"before": before, "after": after, "source": {"db": "shop"}, "op": op, "ts_ms": 1}
        images = [{**_struct(self.columns), "optional": True, "field": name} for name in ("before", "after")]
        envelope = {"type": "struct", "fields": [*images, {"type": "string", "field": "op"}], "optional": False}
        key = _struct({name: self.columns[name] for name in self.key})
        return self._message(key, {name: row[name] for name in self.key}), self._message(envelope, payload)

    def _message(self, schema: Mapping[str, Any], payload: Mapping[str, Any]) -> bytes:
        document = {"schema": schema, "payload": payload} if self.described else payload
        return json.dumps(document, separators=(",", ":")).encode()


def _struct(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": [{**declared, "field": name} for name, declared in columns.items()]}
