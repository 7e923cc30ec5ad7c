"""Settings that every Kafka client of ours begins with."""

from __future__ import annotations

from collections.abc import Mapping
from logging import Logger
from typing import Any

from filestore.errors import InvalidRequest
from filestore.secrets import holds_secret, resolved

__all__ = ["CONSUMER_DEFAULTS", "PRODUCER_DEFAULTS", "UNBOUNDED_QUEUE", "of_clients", "seconds_of"]

# A dead broker is an answer within seconds, not minutes: librdkafka waits 60 s for a reply and 300 s for a
# delivery. And one that is back is found within a second: it would look again after up to 10.
_TIMEOUT = "socket.timeout.ms"
_CLIENT_DEFAULTS = {
    _TIMEOUT: "10000",
    "reconnect.backoff.max.ms": "1000",
    "socket.keepalive.enable": "true",
    "client.id": "tablestore",
}
PRODUCER_DEFAULTS = {
    "delivery.timeout.ms": "60000",
    "linger.ms": "5",
    # Connecting to the broker only when it is needed makes init_transactions wait on timers: 60 or 500 ms,
    # not 3.
    "enable.sparse.connections": "false",
}
# The writer bounds what is in flight itself: a full queue in the middle of a batch would change the order.
UNBOUNDED_QUEUE = {"queue.buffering.max.messages": 10_000_000, "queue.buffering.max.kbytes": 2_097_151}
CONSUMER_DEFAULTS = {
    "queued.max.messages.kbytes": "32768",
    # Only records that are there are asked for: a request that waits at a partition's end would hold up the
    # next range's by as long, by default half a second. Measured: two small ranges in 13 ms, not 1004.
    "fetch.wait.max.ms": "5",
    # With a full queue a partition is asked again after that: by default a second, in which the queue is long empty.
    "fetch.queue.backoff.ms": "5",
    "check.crcs": "true",
}


def of_clients(properties: Mapping[str, str], servers: str | None, logger: Logger) -> dict[str, Any]:
    """Returns the settings of all clients: a table's properties over our defaults, with the secrets they refer to.

    Errors quote the others, so a reference in one of them stays one.

    Args:
        properties: As the table has them.
        servers: The brokers.
        logger: For what librdkafka reports.

    Raises:
        InvalidRequest: ``bad-secret``.
    """
    given = {name: resolved(value) if holds_secret(name) else value for name, value in properties.items()}
    return {**_CLIENT_DEFAULTS, **given, "bootstrap.servers": servers, "logger": logger}


def seconds_of(properties: Mapping[str, Any]) -> float:
    """Returns how long a request may take with a table's properties: ``socket.timeout.ms`` in seconds."""
    text = str(properties.get(_TIMEOUT, _CLIENT_DEFAULTS[_TIMEOUT]))
    if not text.isdecimal():
        raise InvalidRequest(f"{_TIMEOUT} = {text!r} is not a number of milliseconds", code="log-properties")
    return int(text) / 1000
