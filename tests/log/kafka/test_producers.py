"""Producers that a process keeps for the next writer."""

from __future__ import annotations

from log.kafka.producers import keep, take

SERVERS = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}


def test_a_writer_gets_a_kept_producer_of_its_own_settings_only() -> None:
    """Logs of one cluster shared theirs, so an eventual log could wait for another's linger of 50 ms."""
    slow = {**SERVERS, "linger.ms": "50"}
    kept = take(slow)
    keep(slow, kept)
    assert take({**SERVERS, "linger.ms": "1"}) is not kept
    assert take(dict(reversed(slow.items()))) is kept
    assert take(slow) is not kept, "one writer at a time"
