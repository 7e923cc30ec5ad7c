"""What a fetcher makes of messages and events of Kafka's consumer. Without a broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from filestore.ambient import system_ambient
from filestore.errors import InvalidRequest, NotFound, TableStoreError, Unavailable
from log.kafka.fetching import Fetcher
from log.kafka.messages import Fetched

SETTINGS = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "socket.timeout.ms": "50", "log_level": "0"}


@dataclass
class Event:
    """A message, or with a code an event."""

    at: int
    code: int | None = None
    size: int = 10
    place: int = 0

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)

    def partition(self) -> int:
        return self.place

    def offset(self) -> int:
        return self.at

    def __len__(self) -> int:
        return self.size


@dataclass
class Consumer:
    """It returns one list for each time it is asked, and then none."""

    answers: list[list[Event]]
    asked: list[int] = field(default_factory=list)

    def consume(self, most: int, seconds: float) -> list[Event]:
        self.asked.append(most)
        return self.answers.pop(0) if self.answers else []

    def poll(self, seconds: float) -> Event | None:
        return self.answers[0].pop(0) if self.answers and self.answers[0] else None

    def assign(self, places: Sequence[Any]) -> None: ...


def fetcher(*answers: list[Event]) -> tuple[Fetcher, Consumer]:
    def gone(partition: int, offset: int | None) -> TableStoreError:
        return NotFound(f"{partition}: {offset}", code="gone")

    brokers: Any = SimpleNamespace(bootstrap_servers="127.0.0.1:1", topic="t", if_gone="make it again")
    made = Fetcher("t", brokers, SETTINGS, system_ambient(), "reading topic t", gone)
    consumer = Consumer([*answers])
    made._consumer = consumer  # type: ignore[assignment]
    made.assign({0: 5})
    return made, consumer


def offsets(fetched: Fetched) -> list[int]:
    return [int(at) for at in fetched.offsets]


def test_positions_follow_messages_and_the_ends_of_partitions() -> None:
    found, _ = fetcher([Event(5), Event(6)], [Event(9, KafkaError._PARTITION_EOF)])
    assert offsets(found.fetch(10)) == [5, 6]
    assert found.positions == {0: 7}
    assert len(found.fetch(10)) == 0
    assert found.positions == {0: 9}, "markers take offsets, too"


def test_batches_become_smaller_where_messages_are_large() -> None:
    found, consumer = fetcher([Event(5, size=8 << 20)], [Event(6)])
    found.fetch(1000)
    found.fetch(1000)
    assert consumer.asked == [500, 4]


@pytest.mark.parametrize("read", [lambda f: f.fetch(10), lambda f: f.poll()], ids=["fetch", "poll"])
@pytest.mark.parametrize(
    ("event", "kind", "code"),
    [
        (KafkaError.OFFSET_OUT_OF_RANGE, NotFound, "gone"),
        (KafkaError._AUTO_OFFSET_RESET, NotFound, "gone"),
        # A tail raised the client's own error.
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, InvalidRequest, "log-not-authorized"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, NotFound, "log-not-found"),
    ],
)
def test_an_event_that_does_not_pass_is_an_error_of_ours(
    read: Callable[[Fetcher], Fetched], event: int, kind: type[TableStoreError], code: str
) -> None:
    found, _ = fetcher([Event(-1, event)])
    with pytest.raises(kind) as caught:
        read(found)
    assert caught.value.code == code


def test_an_event_that_passes_is_the_reason_if_nothing_arrives() -> None:
    found, _ = fetcher([Event(-1, KafkaError._TRANSPORT)])
    with pytest.raises(Unavailable, match=r"reading topic t: Kafka at 127\.0\.0\.1:1 sent nothing .*_TRANSPORT"):
        found.fetch(10)


def test_messages_are_grouped_and_cut_by_partition() -> None:
    fetched = Fetched.of([Event(5), Event(3, place=2), Event(6), Event(7)])  # type: ignore[list-item]
    assert {p: offsets(part) for p, part in fetched.by_partition().items()} == {0: [5, 6, 7], 2: [3]}
    assert offsets(fetched.before({0: 6})) == [5]
    assert fetched.before({0: 8, 2: 4}) is fetched
    assert fetched.last_offsets() == {0: 7, 2: 3}
