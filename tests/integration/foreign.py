"""A consumer that knows nothing of us: kafka-python with read_committed, and the JSON that PROTOCOL.md promises."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import AbstractContextManager
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from filestore.model.snapshot import Operation
from tablestore import Table

__all__ = ["ForeignConsumer"]

SECONDS = 120.0


class ForeignConsumer(AbstractContextManager["ForeignConsumer"]):
    """Reads a table's topic from the beginning and goes on; keeps each record's value."""

    def __init__(self, table: Table) -> None:
        config = table.opened.log_config()
        assert config is not None
        self._table = table
        self.values: list[dict[str, Any]] = []
        self._consumer = KafkaConsumer(
            bootstrap_servers=config.bootstrap_servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            group_id=None,
        )
        self._consumer.assign([TopicPartition(config.topic, b) for b in range(config.buckets)])

    def poll(self) -> None:
        """Whatever there is now."""
        while found := self._consumer.poll(timeout_ms=300):
            self.values += [json.loads(r.value) for records in found.values() for r in records]

    def catch_up(self) -> None:
        """Waits until it has every record of every commit; fails if it gets another one, or not all in time.

        An open transaction of a dead writer would hold it back, so this also says that there is none before the
        newest commit's records.
        """
        expected = self._committed()
        until = time.monotonic() + SECONDS
        while len(self.values) < sum(expected.values()):
            self.poll()
            assert time.monotonic() < until, f"only {self.commits()} of {expected} within {SECONDS} s"
        self.poll()
        assert self.commits() == expected

    def commits(self) -> Counter[str]:
        """How many records it has of each commit."""
        return Counter(value["source"]["commit"] for value in self.values)

    def _committed(self) -> Counter[str]:
        """What the snapshots name."""
        return Counter(
            {
                snapshot.commit_id: sum(r.count for t in snapshot.transactions for r in t.ranges)
                for snapshot in self._table.snapshots()
                if snapshot.operation is not Operation.COMPACT and snapshot.transactions
            }
        )

    def changes(self) -> list[dict[str, Any]]:
        """Its records as rows with ``_kind``, as a consumer that applies them would read them."""
        found = []
        for value in self.values:
            if value["op"] != "m":
                kind = {"c": "+I", "u": "+U", "d": "-D"}[value["op"]]
                found.append({**(value["after"] or value["before"]), "_kind": kind})
        return found

    def __exit__(self, *exc: object) -> None:
        self._consumer.close()
