"""Our own requests to brokers that do not answer as they should, without a broker; and what they leave in logs."""

from __future__ import annotations

import hashlib
import hmac
import logging
import socket
import struct
import subprocess
import sys
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from filestore.errors import InvalidRequest, TableStoreError, Unsupported
from log.kafka.connection import Connection
from log.kafka.wire import BrokenConnectionError, FindCoordinatorRequest

PASSWORD = "it's 100 %, = ﬁne\u00a0"  # with what SASLprep would change, and Kafka's clients do not
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")

Answer = Callable[[bytes], bytes]
"""From a request without its length to a response without length and correlation id."""


def offered(*mechanisms: str, error: int = 0) -> Answer:
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in mechanisms)
    return lambda _: struct.pack(">hi", error, len(mechanisms)) + names


def replied(message: str) -> Answer:
    """A SaslAuthenticate response: no error, no sentence, a message."""
    return lambda _: struct.pack(">hhi", 0, -1, len(message)) + message.encode()


def refused(_: bytes) -> bytes:
    return struct.pack(">hh5si", 58, 5, b"wrong", 0)


def challenge(request: bytes) -> bytes:
    nonce = request.rpartition(b",r=")[2].decode()
    return replied(f"r={nonce}more,s={b64encode(SALT).decode()},i=4096")(request)


@contextmanager
def broker(*answers: Answer) -> Iterator[tuple[str, int]]:
    """Listens, and answers one connection's requests with those in turn."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, connection.makefile("rwb") as stream:
                for answer in answers:
                    (size,) = struct.unpack(">i", stream.read(4))
                    request = stream.read(size)
                    reply = request[4:8] + answer(request)
                    stream.write(struct.pack(">i", len(reply)) + reply)
                    stream.flush()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()
        finally:
            thread.join(10)
    assert not thread.is_alive()


def login(address: tuple[str, int], mechanism: str = "SCRAM-SHA-256", username: str = "user") -> Connection:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": username,
        "sasl.password": PASSWORD,
    }
    return Connection(address, settings, 10.0)


@pytest.mark.parametrize(
    ("answers", "kind", "code"),
    [
        ([offered("SCRAM-SHA-256"), challenge, replied(f"v={'A' * 43}=")], InvalidRequest, "log-not-authorized"),
        ([offered("SCRAM-SHA-256"), challenge, replied("")], InvalidRequest, "log-not-authorized"),
        ([offered("SCRAM-SHA-256"), challenge, replied("e=invalid-proof")], InvalidRequest, "log-not-authorized"),
        ([offered("SCRAM-SHA-256"), replied("welcome")], InvalidRequest, "log-not-authorized"),
        ([offered("SCRAM-SHA-256"), replied("r=another,s=QUJD,i=4096")], InvalidRequest, "log-not-authorized"),
        ([offered("SCRAM-SHA-256"), refused], InvalidRequest, "log-not-authorized"),
        ([offered("PLAIN", error=33)], Unsupported, "log-sasl"),
    ],
    ids=["impostor", "no-proof", "error", "no-challenge", "another-exchange", "refused", "not-offered"],
)
def test_a_connection_trusts_no_broker_without_proof(
    answers: list[Answer], kind: type[TableStoreError], code: str
) -> None:
    with broker(*answers) as address:
        with pytest.raises(kind) as caught:
            login(address)
        assert caught.value.code == code
        assert PASSWORD not in caught.value.message


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_proves_the_password_as_it_is_and_escapes_the_username(mechanism: str) -> None:
    """The broker's side of RFC 5802, by nothing but hashlib."""
    digest = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    salted = hashlib.pbkdf2_hmac(digest, PASSWORD.encode(), SALT, 4096)
    message_before: list[bytes] = []

    def first(request: bytes) -> bytes:
        message_before.append(request.rpartition(b"n,,")[2])
        response = challenge(request)
        message_before.append(response[8:])
        return response

    def final(request: bytes) -> bytes:
        bare, _, proof = request[request.index(b"c=biws") :].rpartition(b",p=")
        exchange = b",".join([*message_before, bare])
        key = hmac.digest(salted, b"Client Key", digest)
        signature = hmac.digest(hashlib.new(digest, key).digest(), exchange, digest)
        assert b64decode(proof) == bytes(a ^ b for a, b in zip(key, signature, strict=True))
        signed = hmac.digest(hmac.digest(salted, b"Server Key", digest), exchange, digest)
        return replied(f"v={b64encode(signed).decode()}")(request)

    with broker(offered(mechanism), first, final) as address:
        login(address, mechanism, "a=2C,b").close()
    assert message_before[0].startswith(b"n=a=3D2C=2Cb,r=")


def test_passwords_are_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with broker(offered("PLAIN"), replied("")) as address:
        login(address, "PLAIN").close()
    assert PASSWORD not in caplog.text


@pytest.mark.parametrize(
    "answer",
    [lambda _: b"", lambda _: b"\0" * 5, lambda _: b"\0\0\0\0\0\0\x7f\xff", lambda request: b"\0" * 200],
    ids=["nothing", "half", "a string that is not there", "zeros"],
)
def test_what_is_no_answer_breaks_the_connection_or_is_an_error(answer: Answer) -> None:
    request = FindCoordinatorRequest(key="a/b/c", key_type=1, version=2)
    with broker(answer) as address:
        connection = Connection(address, {}, 10.0)
        try:
            assert connection.request(request).host == ""
        except BrokenConnectionError:
            pass
        finally:
            connection.close()


def test_a_port_that_is_not_kafkas_is_noticed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = Connection(server.getsockname(), {}, 10.0)
        other, _ = server.accept()
        with other:
            other.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            with pytest.raises(BrokenConnectionError, match="no Kafka broker"):
                connection.request(FindCoordinatorRequest(key="a/b/c", key_type=1, version=2))
        connection.close()


def test_files_of_tls_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "ca.pem")
    with pytest.raises(InvalidRequest, match=r"ca\.pem") as caught:
        Connection(("127.0.0.1", 9), {"security.protocol": "SSL", "ssl.ca.location": missing}, 1.0)
    assert caught.value.code == "log-settings"


def test_it_can_be_imported_where_warnings_are_errors() -> None:
    """Python 3.11 and 3.12 call deprecated what kafka-python reads its schemas with."""
    subprocess.run([sys.executable, "-W", "error", "-c", "import log.kafka.connection"], check=True, timeout=60)
