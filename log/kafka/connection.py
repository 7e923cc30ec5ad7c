"""A connection to one broker for the requests that librdkafka has no call for: one request, one response.

Plain TCP, TLS, and SASL's PLAIN and SCRAM over either (`log.kafka.security`).
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from typing import Any

from filestore.errors import InvalidRequest, Unsupported
from log.kafka.security import Login, login_of, tls_of
from log.kafka.wire import (
    ApiMessage,
    BrokenConnectionError,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    decoded,
    encoded,
    get_sasl_mechanism,
)

__all__ = ["Connection"]

_MAX_RESPONSE_BYTES = 64 << 20


class Connection:
    """One connection to one broker. Anything that goes wrong on it is an `OSError`; then make another.

    Args:
        address: Host and port.
        settings: librdkafka's settings: ``security.protocol``, ``ssl.*``, ``sasl.*``.
        timeout: For connecting and for each response, seconds.
    """

    def __init__(self, address: tuple[str, int], settings: Mapping[str, str], timeout: float) -> None:
        login = login_of(settings)
        self._correlation = 0
        self._socket = _connected(address, tls_of(settings), timeout)
        self._stream = self._socket.makefile("rb")
        if login is not None:
            try:
                self._authenticate(login)
            except BaseException:
                self.close()
                raise

    def request(self, message: ApiMessage) -> Any:
        """Sends one request and waits for its response."""
        self._correlation += 1
        self._socket.sendall(encoded(message, self._correlation))
        (size,) = struct.unpack(">i", self._exactly(4))
        if not 4 <= size <= _MAX_RESPONSE_BYTES:
            raise BrokenConnectionError(f"the answer would have {size} bytes: this is no Kafka broker")
        return decoded(message, self._correlation, self._exactly(size))

    def close(self) -> None:
        """Closes it."""
        self._stream.close()
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise BrokenConnectionError("the broker closed the connection")
        return data

    def _authenticate(self, login: Login) -> None:
        offered = self.request(SaslHandshakeRequest(mechanism=login.mechanism, version=1))
        if offered.error_code:
            raise Unsupported(
                f"the broker does not offer SASL mechanism {login.mechanism}: set sasl.mechanism to one that it offers "
                f"({', '.join(offered.mechanisms)})",
                code="log-sasl",
            )
        try:
            exchange = _exchange(login)
            while not exchange.is_done():
                response = self.request(SaslAuthenticateRequest(auth_bytes=exchange.auth_bytes(), version=0))
                if response.error_code:
                    raise ValueError(response.error_message)
                exchange.receive(response.auth_bytes)
        except (ValueError, LookupError) as error:
            raise InvalidRequest(
                f"the login with sasl.username and sasl.password failed: {error}. Check them, and that "
                "bootstrap.servers names the brokers where the user was made",
                code="log-not-authorized",
            ) from error


def _connected(address: tuple[str, int], tls: ssl.SSLContext | None, timeout: float) -> socket.socket:
    connected = socket.create_connection(address, timeout)
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected if tls is None else tls.wrap_socket(connected, server_hostname=address[0])
    except BaseException:
        connected.close()
        raise


def _exchange(login: Login) -> Any:
    """The client's side of a SASL mechanism. With SCRAM it ends by seeing that the broker knows the password, too."""
    mechanism, username, password = login
    if mechanism.startswith("SCRAM"):
        username = username.replace("=", "=3D").replace(",", "=2C")  # RFC 5802; kafka-python leaves it out
    return get_sasl_mechanism(mechanism)(
        sasl_mechanism=mechanism, sasl_plain_username=username, sasl_plain_password=password
    )
