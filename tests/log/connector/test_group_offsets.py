"""Offsets that a group keeps: from the first one of a cluster on, and what brokers refuse of single partitions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from filestore.ambient import system_ambient
from filestore.errors import TableStoreError
from filestore.model.schema import Column
from filestore.model.table_columns import TableColumns
from log.connector.declaration import KafkaDeclaration
from log.connector.groups import group_offsets
from log.kafka.groups import GroupOffsets
from tests.servers.kafka import KafkaBroker, quiet

OPTIONS = {
    "connector": "kafka",
    "topic": "t",
    "value.format": "raw",
    "properties.bootstrap.servers": "127.0.0.1:1",
    "properties.socket.timeout.ms": "50",
}


class Brokers:
    """They answer for the group, and refuse its second partition; for good, or the first few times."""

    def __init__(self, code: int | None, times: int | None = None) -> None:
        self.code = code
        self.left = times

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions={0: None, 1: None})})

    def committed(self, asked: list[TopicPartition], timeout: float) -> list[Any]:
        return self._answer(asked)

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[Any]:
        return self._answer(offsets)

    def _answer(self, asked: list[TopicPartition]) -> list[Any]:
        assert [(at.topic, at.partition) for at in asked] == [("t", 0), ("t", 1)]
        refused = self.code is not None and self.left != 0
        if refused and self.left is not None:
            self.left -= 1
        error = KafkaError(self.code) if refused else None
        return [TopicPartition("t", 0, 7), SimpleNamespace(topic="t", partition=1, offset=8, error=error)]


def offsets(code: int | None, times: int | None = None) -> GroupOffsets:
    declaration = KafkaDeclaration.of(TableColumns((Column("value", pa.binary()),)), (), OPTIONS)
    made = group_offsets(declaration, "g", replace(system_ambient(), sleep=lambda _: None))
    made._consumer = Brokers(code, times)  # type: ignore[assignment]
    return made


@pytest.mark.parametrize(
    ("code", "ours"),
    [
        (KafkaError.UNKNOWN_MEMBER_ID, "group-in-use"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "log-not-authorized"),
        (KafkaError.COORDINATOR_NOT_AVAILABLE, "log-unavailable"),
    ],
)
def test_what_is_refused_of_one_partition_is_an_error(code: int, ours: str) -> None:
    assert offsets(None).read() == {0: 7, 1: 8}
    offsets(None).write({0: 7, 1: 8})
    with pytest.raises(TableStoreError) as caught:
        offsets(code).write({0: 7, 1: 8})
    assert caught.value.code == ours
    with pytest.raises(TableStoreError):
        offsets(code).read()


@pytest.mark.parametrize(
    "code", [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS]
)
def test_brokers_are_asked_again_while_the_coordinator_moves(code: int) -> None:
    assert offsets(code, times=3).read() == {0: 7, 1: 8}
    offsets(code, times=3).write({0: 7, 1: 8})


def test_what_does_not_pass_is_not_asked_again() -> None:
    with pytest.raises(TableStoreError):
        offsets(KafkaError.GROUP_AUTHORIZATION_FAILED, times=1).read()


@pytest.mark.parametrize(("group", "ours"), [("", "bad-consumer-id"), ("\ud800", "bad-text"), ("a\0b", "bad-text")])
def test_regression_an_id_that_no_group_can_have_ended_the_process(group: str, ours: str) -> None:
    """An empty id and half a surrogate pair did; with NUL two readers shared the place of one."""
    declaration = KafkaDeclaration.of(TableColumns((Column("value", pa.binary()),)), (), OPTIONS)
    for wrong, code in [(group, ours), ("a" * 32_768, "bad-consumer-id")]:
        with pytest.raises(TableStoreError) as caught:
            group_offsets(declaration, wrong, system_ambient())
        assert caught.value.code == code


@pytest.mark.deep
@pytest.mark.kafka
def test_regression_a_clusters_first_group_ended_the_process(tmp_path: Path) -> None:
    """The admin client's way died of it, once in two times."""
    with KafkaBroker(tmp_path) as broker:
        options = OPTIONS | {"properties.bootstrap.servers": broker.bootstrap, "properties.socket.timeout.ms": "20000"}
        declaration = KafkaDeclaration.of(TableColumns((Column("value", pa.binary()),)), (), options)
        admin = AdminClient(quiet(broker.bootstrap))
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result()
        first, other = (group_offsets(declaration, group, system_ambient()) for group in ("first", "other"))
        assert first.read() == {}
        first.write({1: 3})
        assert first.read() == {1: 3}
        assert other.read() == {}
