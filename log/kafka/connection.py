"""A connection that speaks Kafka's wire format: one request, one answer (kafka.apache.org/protocol).

Plain TCP, TLS, and SASL's PLAIN and SCRAM over either, by the names of librdkafka's settings.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from typing import Self

from filestore.ambient import Ambient
from filestore.errors import InvalidRequest, Unsupported
from log.kafka.scram import HASHES, check_server_final, check_text, client_final, client_first

__all__ = ["BrokenConnectionError", "Connection", "Reader", "Writer", "check_security", "parse_servers"]

_CLIENT_ID = b"tablestore"
_PLAIN = "PLAIN"
_SASL_HANDSHAKE = 17
_SASL_AUTHENTICATE = 36
_MAX_REPLY_BYTES = 64 << 20
# Ways of librdkafka to say what `_tls` takes from files of PEM.
_FOREIGN_TLS = frozenset({"ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem", "ssl.keystore.location"})


class BrokenConnectionError(ConnectionError):
    """The other side hung up, or does not speak Kafka.

    An `OSError`, so that callers try again like after any other.
    """


class Writer:
    """Builds a request's body. Strings and arrays are *compact* in flexible versions (KIP-482)."""

    def __init__(self, *, flexible: bool = False) -> None:
        self._parts = bytearray()
        self._flexible = flexible

    def pack(self, layout: str, *values: object) -> Self:
        """Numbers, big-endian."""
        self._parts += struct.pack(f">{layout}", *values)
        return self

    def string(self, text: str) -> Self:
        """A string that is not null."""
        data = text.encode()
        self.length(len(data), "h")
        self._parts += data
        return self

    def blob(self, data: bytes) -> Self:
        """Bytes that are not null."""
        self.length(len(data), "i")
        self._parts += data
        return self

    def length(self, count: int, layout: str = "i") -> Self:
        """The length of an array that follows."""
        return self._varint(count + 1) if self._flexible else self.pack(layout, count)

    def tags(self) -> Self:
        """No tagged fields."""
        return self.pack("b", 0)

    def _varint(self, value: int) -> Self:
        while value > 0x7F:
            self._parts.append(value & 0x7F | 0x80)
            value >>= 7
        self._parts.append(value)
        return self

    def done(self) -> bytes:
        """The body."""
        return bytes(self._parts)


class Reader:
    """Takes an answer apart, front to back."""

    def __init__(self, data: bytes, *, flexible: bool = False) -> None:
        self._data = data
        self._at = 0
        self._flexible = flexible

    def unpack(self, layout: str) -> tuple[int, ...]:
        """Numbers, big-endian."""
        values = struct.unpack_from(f">{layout}", self._data, self._at)
        self._at += struct.calcsize(f">{layout}")
        return values

    def number(self, layout: str) -> int:
        """One number."""
        return self.unpack(layout)[0]

    def string(self) -> str:
        """A string; null is empty."""
        length = self.length("h")
        text = self._data[self._at : self._at + max(length, 0)].decode()
        self._at += max(length, 0)
        return text

    def blob(self) -> bytes:
        """Bytes; null is empty."""
        length = max(self.length("i"), 0)
        data = self._data[self._at : self._at + length]
        self._at += length
        return data

    def length(self, layout: str = "i") -> int:
        """The length of an array; -1 for null."""
        return self._varint() - 1 if self._flexible else self.number(layout)

    def tags(self) -> None:
        """Passes over tagged fields."""
        for _ in range(self._varint()):
            self._varint()
            self._at += self._varint()

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7


class Connection:
    """One connection to one broker. Anything that goes wrong on it is an `OSError`; then make another.

    Args:
        address: Host and port.
        settings: librdkafka's settings: ``security.protocol``, ``ssl.*``, ``sasl.*``.
        timeout: For connecting and for each answer, seconds.
        ambient: Gives SCRAM's nonce.
    """

    def __init__(self, address: tuple[str, int], settings: Mapping[str, str], timeout: float, ambient: Ambient) -> None:
        protocol = _protocol(settings)
        login = _login(settings) if protocol.startswith("SASL") else None
        self._correlation = 0
        self._socket = socket.create_connection(address, timeout)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if protocol.endswith("SSL"):
                self._socket = _tls(settings).wrap_socket(self._socket, server_hostname=address[0])
            if login is not None:
                self._authenticate(*login, ambient.new_id())
        except BaseException:
            self._socket.close()
            raise

    def request(self, key: int, version: int, body: bytes, *, flexible: bool = False) -> Reader:
        """Sends one request and waits for its answer."""
        self._correlation += 1
        head = struct.pack(">hhih", key, version, self._correlation, len(_CLIENT_ID)) + _CLIENT_ID
        message = head + (b"\0" if flexible else b"") + body
        self._socket.sendall(struct.pack(">i", len(message)) + message)
        (size,) = struct.unpack(">i", self._exactly(4))
        if not 4 <= size <= _MAX_REPLY_BYTES:
            raise BrokenConnectionError(f"the answer would have {size} bytes: this is no Kafka broker")
        reader = Reader(self._exactly(size), flexible=flexible)
        if reader.number("i") != self._correlation:
            raise BrokenConnectionError("the answer belongs to another request")
        if flexible:
            reader.tags()
        return reader

    def close(self) -> None:
        """Closes it."""
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise BrokenConnectionError("the broker closed the connection")
            data += piece
        return bytes(data)

    def _authenticate(self, mechanism: str, username: str, password: str, nonce: str) -> None:
        reply = self.request(_SASL_HANDSHAKE, 1, Writer().string(mechanism).done())
        if reply.number("h"):
            offered = ", ".join(reply.string() for _ in range(reply.length()))
            raise Unsupported(
                f"the broker does not offer SASL mechanism {mechanism}: set sasl.mechanism to one that it offers "
                f"({offered})",
                code="log-sasl",
            )
        if mechanism == _PLAIN:
            self._answer_to(f"\0{username}\0{password}".encode())
            return
        answer = self._answer_to(client_first(username, nonce))
        final = client_final(mechanism, username, password, nonce, answer)
        check_server_final(self._answer_to(final.message), final.signature)

    def _answer_to(self, message: bytes) -> bytes:
        """The broker's answer to a message of a SASL mechanism."""
        reply = self.request(_SASL_AUTHENTICATE, 0, Writer().blob(message).done())
        error, reason = reply.number("h"), reply.string()
        if error:
            raise InvalidRequest(
                f"the broker refuses sasl.username and sasl.password: {reason}",
                code="log-not-authorized",
            )
        return reply.blob()


def check_security(settings: Mapping[str, str]) -> None:
    """Refuses what librdkafka could connect with and this connection could not.

    Raises:
        InvalidRequest: ``log-properties``.
        Unsupported: ``log-sasl``; ``log-tls``: a key or certificate that is not in a file of PEM.
    """
    protocol = _protocol(settings)
    if protocol.startswith("SASL"):
        _login(settings)
    if protocol.endswith("SSL") and (strange := sorted(_FOREIGN_TLS & settings.keys())):
        raise Unsupported(
            f"{strange[0]} cannot be used for ending transactions: name files of PEM with ssl.ca.location, "
            "ssl.certificate.location and ssl.key.location",
            code="log-tls",
        )


def parse_servers(servers: str) -> list[tuple[str, int]]:
    """Hosts and ports of ``bootstrap.servers``; the port's default is 9092.

    Raises:
        InvalidRequest: ``log-servers``.
    """
    found = []
    for server in servers.split(","):
        host, _, port = server.strip().rpartition("://")[2].rpartition(":")
        if not host:
            host, port = port, "9092"
        if not port.isdecimal():
            raise InvalidRequest(f"Kafka broker {server.strip()!r} is not written as host:port", code="log-servers")
        found.append((host.strip("[]"), int(port)))
    return found


def _protocol(settings: Mapping[str, str]) -> str:
    protocol = settings.get("security.protocol", "plaintext").upper()
    if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise InvalidRequest(f"security.protocol {protocol!r} does not exist", code="log-properties")
    return protocol


def _login(settings: Mapping[str, str]) -> tuple[str, str, str]:
    """Mechanism, username and password."""
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", "GSSAPI"))
    if mechanism not in (_PLAIN, *HASHES):
        raise Unsupported(
            f"SASL mechanism {mechanism} cannot be used for ending transactions: set sasl.mechanism to "
            f"{', '.join([_PLAIN, *HASHES])}, or use certificates (security.protocol = SSL)",
            code="log-sasl",
        )
    username, password = settings.get("sasl.username", ""), settings.get("sasl.password", "")
    if mechanism in HASHES:
        check_text("sasl.username", username)
        check_text("sasl.password", password)
    return mechanism, username, password


def _tls(settings: Mapping[str, str]) -> ssl.SSLContext:
    authority = settings.get("ssl.ca.location")
    context = ssl.create_default_context(cafile=None if authority in (None, "probe") else authority)
    if settings.get("ssl.endpoint.identification.algorithm", "https") == "none":
        context.check_hostname = False
    if settings.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate := settings.get("ssl.certificate.location"):
        context.load_cert_chain(certificate, settings.get("ssl.key.location"), settings.get("ssl.key.password"))
    return context
