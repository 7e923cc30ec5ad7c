"""Brokers that do not say their limit on transactions. No broker runs."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigEntry, ConfigResource

from filestore.ambient import system_ambient
from filestore.errors import InvalidRequest, TableStoreError, Unavailable, Unsupported
from log.table.on_kafka.topic import Topic
from tests.conformance.log_store import make_config


def answered(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(value, Exception):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


@dataclass
class Admin:
    """A client of a cluster with one broker, which returns these settings or this error. It creates no topics."""

    reported: Mapping[str, ConfigEntry] | KafkaException

    def answer(self, asked: Future[Any]) -> Any:
        return asked.result()

    def describe_cluster(self) -> Future[Any]:
        return answered(SimpleNamespace(nodes=[SimpleNamespace(id=1)]))

    def describe_configs(self, resources: list[ConfigResource]) -> dict[ConfigResource, Future[Any]]:
        return {resource: answered(self.reported) for resource in resources}


def limit(value: str | None) -> dict[str, ConfigEntry]:
    return {"transaction.max.timeout.ms": ConfigEntry("transaction.max.timeout.ms", value)}


@pytest.mark.parametrize(
    ("reported", "kind", "code", "sentence"),
    [
        ({}, Unsupported, "kafka-transaction-timeout", "does not say its limit, transaction.max.timeout.ms"),
        (limit(None), Unsupported, "kafka-transaction-timeout", "does not say its limit, transaction.max.timeout.ms"),
        (limit("900000"), Unsupported, "kafka-transaction-timeout", "allows transactions of 900000 ms"),
        (
            KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED)),
            InvalidRequest,
            "log-not-authorized",
            "DESCRIBE_CONFIGS on the cluster",
        ),
    ],
    ids=["absent", "no-value", "too-small", "not-allowed"],
)
def test_a_log_with_transactions_needs_to_know_the_brokers_limit(
    monkeypatch: pytest.MonkeyPatch,
    reported: Mapping[str, ConfigEntry] | KafkaException,
    kind: type[TableStoreError],
    code: str,
    sentence: str,
) -> None:
    error = failure(monkeypatch, reported)
    assert type(error) is kind
    assert error.code == code
    assert sentence in error.message
    assert "log.kafka.transactions = false" in error.message


def test_another_error_of_the_broker_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    error = failure(monkeypatch, KafkaException(KafkaError(KafkaError.REQUEST_TIMED_OUT)))
    assert isinstance(error, Unavailable)


def failure(monkeypatch: pytest.MonkeyPatch, reported: Mapping[str, ConfigEntry] | KafkaException) -> TableStoreError:
    monkeypatch.setattr("log.kafka.topic.Admin", lambda settings: Admin(reported))
    config = make_config("", **{"log.system": "kafka", "log.kafka.bootstrap.servers": "127.0.0.1:9"})
    with pytest.raises(TableStoreError) as caught:
        Topic(config, system_ambient()).create()
    return caught.value
