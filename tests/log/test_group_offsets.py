"""Offsets that a group keeps: what brokers refuse of single partitions is an error."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, TopicPartition

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
}


class Brokers:
    """They answer for the group, and refuse its second partition."""

    def __init__(self, code: int | None) -> None:
        self.code = code

    def list_consumer_group_offsets(self, asked: list[Any]) -> dict[str, Future[Any]]:
        return self._answer(asked)

    def alter_consumer_group_offsets(self, asked: list[Any]) -> dict[str, Future[Any]]:
        return self._answer(asked)

    def _answer(self, asked: list[Any]) -> dict[str, Future[Any]]:
        error = None if self.code is None else KafkaError(self.code)
        partitions = [TopicPartition("t", 0, 7), SimpleNamespace(topic="t", partition=1, offset=8, error=error)]
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(topic_partitions=partitions))
        return {asked[0].group_id: answer}


def offsets(code: int | None) -> GroupOffsets:
    made = GroupOffsets(KafkaDeclaration.of(TableColumns((Column("value", pa.binary()),)), (), OPTIONS), "g")
    made._admin = Brokers(code)  # type: ignore[assignment]
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
