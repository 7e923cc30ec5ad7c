"""Errors of a transaction coordinator that is starting. Without a broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from filestore.ambient import Ambient, system_ambient
from log.table.on_kafka.store import KafkaLog
from tests.conformance.log_store import make_config


class _Cluster:
    """Brokers whose coordinator knows of its transactions only at the n-th question."""

    def __init__(self, known_at: int, open_ids: Sequence[str]) -> None:
        self.questions = 0
        self.fenced: list[str] = []
        self._known_at = known_at
        self._open = list(open_ids)

    def brokers(self) -> list[tuple[str, int]]:
        return [("broker", 9092)]

    def list_open(self, brokers: object, prefix: str) -> list[str]:
        self.questions += 1
        return list(self._open) if self.questions >= self._known_at else []

    def fence(self, transaction_id: str) -> None:
        self.fenced.append(transaction_id)
        self._open.remove(transaction_id)

    def stable_offsets(self) -> dict[int, int]:
        return {0: 3 if self._open else 7}

    def end_offsets(self) -> dict[int, int]:
        return {0: 7}

    def close(self) -> None:
        pass


def kafka_log(cluster: _Cluster, ambient: Ambient) -> KafkaLog:
    config = make_config("", **{"log.system": "kafka", "log.kafka.bootstrap.servers": "127.0.0.1:9"})
    log = KafkaLog(config, ambient)
    log._topic = log._transactions = cluster  # type: ignore[assignment]
    return log


@pytest.fixture
def ambient() -> Ambient:
    return replace(system_ambient(), sleep=lambda _: None)


@pytest.mark.parametrize("known_at", [1, 2, 5])
def test_it_is_asked_again_while_the_partitions_say_that_something_is_open(known_at: int, ambient: Ambient) -> None:
    cluster = _Cluster(known_at, ["t/c/0.0", "t/c/1.0"])
    assert kafka_log(cluster, ambient).abort_unnamed(lambda ids: ids) == ["t/c/0.0", "t/c/1.0"]
    assert cluster.fenced == ["t/c/0.0", "t/c/1.0"]
    assert cluster.questions == known_at


def test_a_living_writer_explains_it(ambient: Ambient) -> None:
    cluster = _Cluster(1, ["t/dead/0.0", "t/living/0.0"])
    assert kafka_log(cluster, ambient).abort_unnamed(lambda ids: [i for i in ids if "dead" in i]) == ["t/dead/0.0"]
    assert cluster.questions == 1
