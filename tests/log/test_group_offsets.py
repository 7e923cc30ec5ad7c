"""Offsets that a group keeps: what brokers refuse of single partitions is an error."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, TopicPartition

from filestore.ambient import system_ambient
from filestore.errors import TableStoreError
from filestore.model.schema import Column
from filestore.model.table_columns import TableColumns
from log.connectors.declaration import KafkaDeclaration
from log.kafka.group_offsets import GroupOffsets

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

    def list_consumer_group_offsets(self, asked: list[Any]) -> dict[str, Future[Any]]:
        return self._answer(asked)

    def alter_consumer_group_offsets(self, asked: list[Any]) -> dict[str, Future[Any]]:
        return self._answer(asked)

    def _answer(self, asked: list[Any]) -> dict[str, Future[Any]]:
        refused = self.code is not None and self.left != 0
        if refused and self.left is not None:
            self.left -= 1
        error = KafkaError(self.code) if refused else None
        partitions = [TopicPartition("t", 0, 7), SimpleNamespace(topic="t", partition=1, offset=8, error=error)]
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(topic_partitions=partitions))
        return {asked[0].group_id: answer}


def offsets(code: int | None, times: int | None = None) -> GroupOffsets:
    declaration = KafkaDeclaration.of(TableColumns((Column("value", pa.binary()),)), (), OPTIONS)
    made = GroupOffsets(declaration, "g", replace(system_ambient(), sleep=lambda _: None))
    made._admin = Brokers(code, times)  # type: ignore[assignment]
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
