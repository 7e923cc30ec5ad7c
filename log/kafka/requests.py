"""Sends requests to coordinators and to given brokers, and retries them after errors that may be temporary."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential

from filestore.ambient import Ambient
from filestore.errors import InvalidRequest, Unavailable
from log.kafka.connection import Connection
from log.kafka.security import parse_servers
from log.kafka.wire import ApiMessage, CoordinatorType, FindCoordinatorRequest, errors

__all__ = ["Address", "Requests", "lasting_code", "require_ok"]

Address = tuple[str, int]
T = TypeVar("T")

RETRY_SECONDS = 30.0


class _TransientError(Exception):
    """The answer may be different soon: retry the request."""


class Requests:
    """Sends requests to brokers, over connections that it keeps. One thread at a time.

    Args:
        servers: ``bootstrap.servers``.
        settings: librdkafka's security settings.
        timeout: For each answer, seconds.
        ambient: Waits between retries.
    """

    def __init__(self, servers: str, settings: Mapping[str, str], timeout: float, ambient: Ambient) -> None:
        self._servers = parse_servers(servers)
        self._settings = settings
        self._timeout = timeout
        self._ambient = ambient
        self._connections: dict[Address, Connection] = {}
        self._answered = False

    def close(self) -> None:
        """Closes the connections; a later call makes new ones."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def at_coordinator(self, transaction_id: str, request: ApiMessage, parse: Callable[[Any], T]) -> T:
        """Sends a request to the coordinator of a transactional id; returns what ``parse`` makes of the answer."""

        def attempt() -> T:
            # Looked up each time: a coordinator moves when its broker dies.
            return self._once(self._coordinator(transaction_id), request, parse)

        return self._retried(attempt)

    def at(self, broker: Address, request: ApiMessage, parse: Callable[[Any], T]) -> T:
        """Sends a request to one broker; returns what ``parse`` makes of the answer."""
        return self._retried(lambda: self._once(broker, request, parse))

    def _coordinator(self, transaction_id: str) -> Address:
        request = FindCoordinatorRequest(key=transaction_id, key_type=CoordinatorType.TRANSACTION, version=2)

        def parse(found: Any) -> Address:
            require_ok(found)
            return found.host, found.port

        problem: OSError | None = None
        for server in self._servers:
            try:
                return self._once(server, request, parse)
            except OSError as error:
                problem = error
        assert problem is not None
        raise problem

    def _once(self, broker: Address, request: ApiMessage, parse: Callable[[Any], T]) -> T:
        with self._connection(broker) as connection:
            response = connection.request(request)
            self._answered = True
            return parse(response)

    @contextmanager
    def _connection(self, broker: Address) -> Iterator[Connection]:
        if broker not in self._connections:
            self._connections[broker] = Connection(broker, self._settings, self._timeout)
        try:
            yield self._connections[broker]
        except OSError:
            self._connections.pop(broker).close()
            raise

    def _lasting(self, error: BaseException) -> InvalidRequest | None:
        """Returns the error that no retry can help against; None after any answer, since the settings have worked."""
        servers = ",".join(f"{host}:{port}" for host, port in self._servers)
        if self._answered:
            return None
        if isinstance(error, ssl.SSLCertVerificationError):
            return InvalidRequest(
                f"Kafka at {servers}: the broker's certificate is not accepted ({error}): check ssl.ca.location, and "
                "that bootstrap.servers has a name of the certificate",
                code="log-settings",
            )
        if isinstance(error, socket.gaierror) and error.errno != socket.EAI_AGAIN:
            return InvalidRequest(
                f"Kafka at {servers}: a broker's name does not resolve ({error}): correct it in bootstrap.servers, or "
                "in the brokers' advertised.listeners",
                code="log-servers",
            )
        return None

    def _retried(self, attempt: Callable[[], T]) -> T:
        retrying = Retrying(
            retry=retry_if_exception(
                lambda error: isinstance(error, (_TransientError, OSError)) and self._lasting(error) is None
            ),
            wait=wait_exponential(multiplier=0.02, max=1.0),
            stop=stop_after_delay(min(RETRY_SECONDS, 3 * self._timeout)),
            sleep=self._ambient.sleep,
            reraise=True,
        )
        try:
            return retrying(attempt)
        except (_TransientError, OSError) as error:
            if (lasting := self._lasting(error)) is not None:
                raise lasting from error
            servers = ",".join(f"{host}:{port}" for host, port in self._servers)
            raise Unavailable(
                f"Kafka at {servers} did not answer a request about a transaction ({error}): retry later",
                code="log-unavailable",
            ) from error


def lasting_code(response: Any) -> int:
    """Kafka's error code of a response, unless it is worth another try or a matter of rights."""
    error = errors.for_code(response.error_code)
    # A topic that a broker does not know was deleted, as a rule.
    if error.retriable and error is not errors.UnknownTopicOrPartitionError:
        raise _TransientError(error.__name__)
    if issubclass(error, errors.AuthorizationError):
        raise InvalidRequest(
            f"Kafka does not allow this user a request about a transaction ({error.__name__}): check the broker's ACLs",
            code="log-not-authorized",
        )
    return int(response.error_code)


def require_ok(response: Any) -> None:
    """Raises `Unavailable` if the response has an error that no retry removed."""
    if code := lasting_code(response):
        raise Unavailable(
            f"Kafka answered a request about a transaction with error {code} ({errors.for_code(code).__name__})",
            code="log-unavailable",
        )
