"""SCRAM's messages against examples that others published, and brokers that do not answer as they should."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from filestore.ambient import system_ambient
from filestore.errors import InvalidRequest, TableStoreError, Unsupported
from log.kafka.connection import Connection
from log.kafka.scram import ClientFinal, check_server_final, check_text, client_final, client_first

NONCE = "rOprNGfwEbeRWgbNEkqO"
FULL_NONCE = f"{NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
SERVER_FIRST = f"r={FULL_NONCE},s={SALT},i=4096"


def final(server_first: str | bytes = SERVER_FIRST, mechanism: str = "SCRAM-SHA-256") -> ClientFinal:
    message = server_first if isinstance(server_first, bytes) else server_first.encode()
    return client_final(mechanism, "user", "pencil", NONCE, message)


@pytest.mark.parametrize(
    ("mechanism", "proof", "signature"),
    [
        # RFC 7677 section 3
        (
            "SCRAM-SHA-256",
            "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
            "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ),
        # The same exchange with the other hash, from the tests of MailKit
        (
            "SCRAM-SHA-512",
            "gMGXRcevScNtxZ6/8lQYpGtnsNAc3mGcmNomv+xnoOMw+3R2xNJdMNnzMlTN8PPC6wdp6dybEmDYXYTxwnYPJQ==",
            "ZQnYEgWQMFmmsM8aQMF0nDDCy/AgCzkwk8CmMZYcMg0vSVlKDanekLtifDSeVGT4+5ZxXnJq199RVG2rR7N7Zw==",
        ),
    ],
)
def test_published_exchanges(mechanism: str, proof: str, signature: str) -> None:
    assert client_first("user", NONCE) == f"n,,n=user,r={NONCE}".encode()
    last = final(mechanism=mechanism)
    assert last.message == f"c=biws,r={FULL_NONCE},p={proof}".encode()
    check_server_final(f"v={signature}".encode(), last.signature)
    check_server_final(f"v={signature},x=an extension".encode(), last.signature)


def test_commas_and_equals_signs_of_a_username_are_escaped() -> None:
    assert client_first("a=2C,b", "n") == b"n,,n=a=3D2C=2Cb,r=n"


@pytest.mark.parametrize(
    "server_first",
    [
        SERVER_FIRST.replace(NONCE, "another"),
        f"r={NONCE},s={SALT},i=4096",  # the broker added nothing
        f"m=something new,{SERVER_FIRST}",
        f"r={FULL_NONCE},s=W22Z%,i=4096",
        f"r={FULL_NONCE},s=W22,i=4096",
        f"r={FULL_NONCE},s={SALT},i=-4096",
        f"r={FULL_NONCE},s={SALT},i={'9' * 5000}",
        f"r={FULL_NONCE},s={SALT}",
        "e=unknown-user",
        "",
        b"\xff\xfe",
    ],
)
def test_an_answer_that_is_not_to_this_exchange_is_refused(server_first: str | bytes) -> None:
    with pytest.raises(InvalidRequest, match="another exchange") as caught:
        final(server_first)
    assert caught.value.code == "log-not-authorized"


@pytest.mark.parametrize("iterations", [1, 4095, 10_000_001])
def test_iterations_that_protect_nothing_or_take_for_ever_are_refused(iterations: int) -> None:
    with pytest.raises(Unsupported, match=f"hashed {iterations} times") as caught:
        final(f"r={FULL_NONCE},s={SALT},i={iterations}")
    assert caught.value.code == "log-sasl"


@pytest.mark.parametrize(
    ("server_final", "said"),
    [
        ("e=invalid-proof", "refuses sasl.username and sasl.password: invalid-proof"),
        (f"v={'A' * 43}=", "did not prove"),
        ("v=", "did not prove"),
        ("", "not what SCRAM"),
        ("v=?", "not what SCRAM"),
    ],
)
def test_a_broker_that_does_not_know_the_password_is_refused(server_final: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said) as caught:
        check_server_final(server_final.encode(), final().signature)
    assert caught.value.code == "log-not-authorized"


@pytest.mark.parametrize("text", ["", "ann", "it's 100 %, = ok", "Müller", "東京", "שלם", "🔑"])
def test_what_sasl_prep_leaves_as_it_is_is_taken(text: str) -> None:
    check_text("sasl.password", text)


@pytest.mark.parametrize(
    "text",
    [
        "Mu\u0308ller",  # two characters that are one
        "ﬁsh",  # a ligature
        "a\u00a0b",  # a space that is none
        "so\u00adft",  # a hyphen that is not there
        "a\0b",
        "\ue000",  # private use
        "\ud800",
        "שלם1",  # from right to left, then from left to right
        "שa",
    ],
)
def test_what_sasl_prep_would_change_or_forbid_is_refused(text: str) -> None:
    with pytest.raises(Unsupported, match=r"^sasl\.password has characters") as caught:
        check_text("sasl.password", text)
    assert caught.value.code == "log-sasl"
    assert text not in caught.value.message


# ------------------------------------------------------------------------------------------- a connection

Answer = Callable[[bytes], bytes]
OFFERED = struct.pack(">hih5sh13s", 0, 2, 5, b"PLAIN", 13, b"SCRAM-SHA-256")


def told(message: str) -> bytes:
    """A SaslAuthenticate response: no error, no sentence, a message."""
    return struct.pack(">hhi", 0, -1, len(message)) + message.encode()


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


def challenge(request: bytes) -> bytes:
    nonce = request.rpartition(b",r=")[2].decode()
    return told(f"r={nonce}more,s={SALT},i=4096")


@pytest.mark.parametrize(
    ("answers", "kind", "code"),
    [
        (
            [lambda _: OFFERED, challenge, lambda _: told(f"v={'A' * 43}=")],
            InvalidRequest,
            "log-not-authorized",
        ),
        ([lambda _: OFFERED, challenge, lambda _: told("")], InvalidRequest, "log-not-authorized"),
        ([lambda _: OFFERED, lambda _: told("welcome")], InvalidRequest, "log-not-authorized"),
        ([lambda _: struct.pack(">hih5s", 33, 1, 5, b"PLAIN")], Unsupported, "log-sasl"),
    ],
    ids=["impostor", "no-proof", "no-challenge", "not-offered"],
)
def test_a_connection_trusts_no_broker_without_proof(
    answers: list[Answer], kind: type[TableStoreError], code: str
) -> None:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "user",
        "sasl.password": "pencil",
    }
    with broker(*answers) as address:
        with pytest.raises(kind) as caught:
            Connection(address, settings, 10.0, system_ambient())
        assert caught.value.code == code
