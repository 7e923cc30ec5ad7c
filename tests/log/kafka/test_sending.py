"""A sender says why a message was refused, though the client learns of it in two ways."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from filestore.ambient import system_ambient
from filestore.errors import InvalidRequest, Unavailable
from log.kafka.sending import Sender

BROKERS = SimpleNamespace(bootstrap_servers="localhost:9092", topic="topic", if_gone="")


class Refusing:
    """A client in whose transaction a message has failed. Its report comes behind the error of the next message."""

    def __init__(self, on_delivery: Callable[[KafkaError | None, Any], None], cause: int | None) -> None:
        self.on_delivery, self.cause, self.polled = on_delivery, cause, 0

    def __len__(self) -> int:
        return int(self.cause is not None)

    def produce(self, *_: object) -> None:
        raise KafkaException(KafkaError(KafkaError._STATE))

    def poll(self, _: float) -> None:
        self.polled += 1
        if self.polled == 3 and self.cause is not None:
            self.on_delivery(KafkaError(self.cause), None)


def _sent(cause: int | None) -> None:
    def connect(on_delivery: Callable[..., None]) -> Producer:
        return cast(Producer, Refusing(on_delivery, cause))

    Sender("topic", BROKERS, system_ambient(), "writing", connect, "the limit").send([b"value"])


def test_regression_the_cause_is_named_and_not_the_state_that_it_leads_to() -> None:
    with pytest.raises(InvalidRequest, match="raise the limit") as caught:
        _sent(KafkaError.MSG_SIZE_TOO_LARGE)
    assert caught.value.code == "message-too-large"


def test_a_state_without_a_cause_is_what_is_known() -> None:
    with pytest.raises(Unavailable, match="_STATE") as caught:
        _sent(None)
    assert caught.value.code == "log-delivery"
