"""Idempotent producers that a process keeps: librdkafka takes half a second before the first message of each.

That is a timer in its idempotence (rdkafka_idempotence.c asks for a producer id 500 ms after a producer was made). One
that belongs to no transaction can write for one after the other, and is used by one writer at a time.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from dataclasses import dataclass, field

from confluent_kafka import Producer

from log.kafka.settings import plain_producer_settings
from log.store import LogConfig

__all__ = ["KeptProducer", "keep", "take"]

_MOST_IDLE = 8

_Key = tuple[int, str | None, tuple[tuple[str, str], ...]]


@dataclass(slots=True)
class KeptProducer:
    """A producer, and what it has written so far.

    Attributes:
        producer: The producer.
        sent: How many messages it has written, by topic and partition.
        identity: Its producer id and epoch, once a record has told them.
    """

    producer: Producer
    sent: Counter[tuple[str, int]] = field(default_factory=Counter)
    identity: tuple[int, int] | None = None


_idle: dict[_Key, list[KeptProducer]] = {}
_lock = threading.Lock()


def take(config: LogConfig) -> KeptProducer:
    """One that nobody uses, or a new one."""
    with _lock:
        if listed := _idle.get(_key(config)):
            return listed.pop()
    return KeptProducer(Producer(plain_producer_settings(config)))


def keep(config: LogConfig, kept: KeptProducer) -> None:
    """For the next writer. REQUIRES: all that it was given was written, and nothing else."""
    with _lock:
        for stale in [key for key in _idle if key[0] != os.getpid()]:
            del _idle[stale]  # of the process that this one was forked from, whose threads are not here
        listed = _idle.setdefault(_key(config), [])
        if sum(map(len, _idle.values())) < _MOST_IDLE:
            listed.append(kept)


def _key(config: LogConfig) -> _Key:
    return os.getpid(), config.bootstrap_servers, config.properties
