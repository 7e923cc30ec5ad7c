"""Producers: those that a process keeps, those with a transactional id, and the end of their transactions.

librdkafka takes half a second before the first message of an idempotent producer. That is a timer in its idempotence
(rdkafka_idempotence.c asks for a producer id 500 ms after a producer was made). One that belongs to no transaction can
write for one after the other, and is used by one writer at a time.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException, Producer

from filestore.ambient import Ambient
from filestore.errors import CommitUnknown, Unavailable
from log.kafka.sending import DELIVERY_SECONDS

__all__ = ["KeptProducer", "commit", "keep", "new_producer", "take"]

_MOST_IDLE = 8

_Key = tuple[int, tuple[tuple[str, Any], ...]]


@dataclass(slots=True)
class KeptProducer:
    """A producer, and what it has written so far.

    Attributes:
        producer: The producer.
        sent: How many messages it has written, by topic and partition.
        identity: Its producer id and epoch, once they were read from a record.
    """

    producer: Producer
    sent: Counter[tuple[str, int]] = field(default_factory=Counter)
    identity: tuple[int, int] | None = None


_idle: dict[_Key, list[KeptProducer]] = {}
_lock = threading.Lock()


def take(settings: Mapping[str, Any]) -> KeptProducer:
    """Returns a kept producer of these settings that nobody uses, or a new one."""
    with _lock:
        if listed := _idle.get(_key(settings)):
            return listed.pop()
    return KeptProducer(Producer(dict(settings)))


def keep(settings: Mapping[str, Any], kept: KeptProducer) -> None:
    """Keeps a producer for the next writer. REQUIRES: all messages that it was given were delivered."""
    with _lock:
        for stale in [key for key in _idle if key[0] != os.getpid()]:
            del _idle[stale]  # of the process that this one was forked from, whose threads are not here
        listed = _idle.setdefault(_key(settings), [])
        if sum(map(len, _idle.values())) < _MOST_IDLE:
            listed.append(kept)


def _key(settings: Mapping[str, Any]) -> _Key:
    return os.getpid(), tuple(sorted((name, value) for name, value in settings.items() if name != "logger"))


def new_producer(settings: Mapping[str, Any], seconds: float) -> Producer:
    """Makes a producer. With a transactional id it first aborts what an earlier producer of that id left open.

    Args:
        settings: The client's.
        seconds: How long that may take.
    """
    producer = Producer(dict(settings))
    if "transactional.id" in settings:
        producer.init_transactions(seconds)
    return producer


def commit(producer: Producer, transaction_id: str, seconds: float, ambient: Ambient, action: str) -> None:
    """Commits the producer's transaction, again while errors pass.

    Args:
        producer: With an open transaction.
        transaction_id: Its transactional id, for errors.
        seconds: How long one request may take.
        ambient: The clock.
        action: What errors say was tried.

    Raises:
        Unavailable: ``log-delivery``: it was not committed.
        CommitUnknown: the broker took the request and did not answer.
    """
    until_ms = ambient.now_ms() + int(DELIVERY_SECONDS * 1000)
    while True:
        try:
            producer.commit_transaction(seconds)
            return
        except KafkaException as error:
            cause = error.args[0]
            if not cause.retriable():
                raise Unavailable(
                    f"{action}: the transaction was not committed ({cause.str()}); nothing was written",
                    code="log-delivery",
                ) from error
            if ambient.now_ms() > until_ms:
                raise CommitUnknown(
                    f"{action}: the broker did not say whether transaction {transaction_id} was committed "
                    f"({cause.str()}): look whether its rows are there before writing them again"
                ) from error
