"""Producers that a process keeps for the next writer."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from filestore.ambient import Ambient, system_ambient
from filestore.errors import CommitUnknown, Unavailable
from log.kafka.producers import commit, keep, take
from log.kafka.sending import DELIVERY_SECONDS

SERVERS = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}


def test_a_writer_gets_a_kept_producer_of_its_own_settings_only() -> None:
    """Logs of one cluster shared theirs, so an eventual log could wait for another's linger of 50 ms."""
    slow = {**SERVERS, "linger.ms": "50"}
    kept = take(slow)
    keep(slow, kept)
    assert take({**SERVERS, "linger.ms": "1"}) is not kept
    assert take(dict(reversed(slow.items()))) is kept
    assert take(slow) is not kept, "one writer at a time"


class Brokers:
    """A producer whose commits fail in turn; the last one of them succeeds."""

    def __init__(self, *errors: KafkaError) -> None:
        self.errors = [*errors]

    def commit_transaction(self, seconds: float) -> None:
        if self.errors:
            raise KafkaException(self.errors.pop(0))


def clock(step_ms: int) -> Ambient:
    times = count(0, step_ms)
    return replace(system_ambient(), now_ms=lambda: next(times))


def end(producer: Any, step_ms: int = 1) -> None:
    commit(producer, "shop.1", 1.0, clock(step_ms), "writing")


AGAIN = KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True)
FENCED = KafkaError(KafkaError.INVALID_PRODUCER_EPOCH, "fenced")


def test_a_commit_is_asked_for_again_until_the_broker_answers() -> None:
    brokers = Brokers(AGAIN, AGAIN)
    end(brokers)
    assert not brokers.errors


def test_a_commit_that_the_broker_refuses_wrote_nothing() -> None:
    words = r"^writing: the transaction was not committed \(fenced\); nothing was written"
    with pytest.raises(Unavailable, match=words) as caught:
        end(Brokers(AGAIN, FENCED, AGAIN))
    assert caught.value.code == "log-delivery"


def test_a_commit_without_an_answer_may_have_been_done() -> None:
    words = "the broker did not say whether transaction shop.1 was committed .*: look whether its rows are there before"
    with pytest.raises(CommitUnknown, match=words):
        end(Brokers(*[AGAIN] * 100), step_ms=int(DELIVERY_SECONDS * 1000) // 3)
