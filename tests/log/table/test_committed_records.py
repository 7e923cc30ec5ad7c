"""The look for committed records behind an offset ends, whatever other buckets of the topic do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from filestore.ambient import system_ambient
from filestore.errors import Unavailable
from log.kafka.messages import Fetched
from log.table.on_kafka.reader import RangeReader
from tests.conformance.log_store import make_config


@dataclass(frozen=True)
class Message:
    """What a consumer returns."""

    bucket: int
    at: int
    content: bytes

    def partition(self) -> int:
        return self.bucket

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes:
        return self.content


class OneBusyBucket:
    """Bucket 0 has messages without an end, and nothing of bucket 1 arrives."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.positions: dict[int, int] = {}
        self.paused: set[int] = set()
        self.closed = False

    def assign(self, starts: Mapping[int, int]) -> None:
        self.positions = dict(starts)
        self.paused.clear()

    def pause(self, bucket: int) -> None:
        self.paused.add(bucket)

    def fetch(self, most: int) -> Fetched:
        if 0 in self.paused:
            raise Unavailable("bucket 1 is silent", code="log-unavailable")
        self.positions[0] += 1
        messages: list[Any] = [Message(0, self.positions[0] - 1, self.content)]
        return Fetched.of(messages)

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("own", [True, False], ids=["found", "at its end"])
def test_a_busy_bucket_does_not_hide_that_another_one_is_silent(monkeypatch: pytest.MonkeyPatch, own: bool) -> None:
    config = make_config(
        "/t", **{"log.system": "kafka", "log.kafka.bootstrap.servers": "h:1", "log.kafka.transactions": "true"}
    )
    content = f'{{"source":{{"txn":"{config.table_id if own else "another"}/c/0.0"'.encode()
    fetcher = OneBusyBucket(content)
    monkeypatch.setattr("log.table.on_kafka.reader.log_fetcher", lambda *_: fetcher)
    reader = RangeReader(config, system_ambient(), lambda: 0)
    with pytest.raises(Unavailable, match="bucket 1 is silent"):
        reader.committed_between({0: 5, 1: 5}, {0: 8, 1: 7})
    assert fetcher.positions[0] == (6 if own else 8) and fetcher.closed
    assert reader.committed_between({0: 5, 1: 7}, {0: 8, 1: 7}) == ({0: 5} if own else {})


def test_nothing_is_asked_where_nothing_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config("/t", **{"log.system": "kafka", "log.kafka.bootstrap.servers": "h:1"})
    fetcher = OneBusyBucket(b"")
    monkeypatch.setattr("log.table.on_kafka.reader.log_fetcher", lambda *_: fetcher)
    assert RangeReader(config, system_ambient(), lambda: 0).committed_between({0: 8, 1: 7}, {0: 8, 1: 7}) == {}
