"""SCRAM: the client's side as pure functions over its four messages (RFC 5802, RFC 7677; in Kafka: KIP-84).

    client_first    I am this user; a nonce
    server_first    that nonce and more of it; the salt and how often to hash
    client_final    a proof of knowing the password
    server_final    a proof of knowing the password's hash: it is the broker that the user was made at

Without channel binding, which Kafka does not have.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import stringprep
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn
from unicodedata import ucd_3_2_0

from filestore.errors import InvalidRequest, Unsupported

__all__ = ["HASHES", "ClientFinal", "check_server_final", "check_text", "client_final", "client_first"]

HASHES: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Names of mechanisms that Kafka has, and hashlib's names of their hashes."""

# Fewer make a stolen exchange cheap to guess from, and Kafka has no fewer; more keep a client busy for seconds.
_ITERATIONS = range(4096, 10_000_001)

_NO_CHANNEL_BINDING = "n,,"
_BASE64 = "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_SERVER_FIRST = re.compile(rf"r=([!-+\--~]+),s=({_BASE64}),i=([1-9][0-9]{{0,9}})(?:,.*)?")
_SERVER_FINAL = re.compile(rf"v=({_BASE64})(?:,.*)?")

# RFC 4013, "Prohibited Output"
_FORBIDDEN = (
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


@dataclass(frozen=True, slots=True)
class ClientFinal:
    """The client's last message, and the signature that the broker has to answer it with."""

    message: bytes
    signature: bytes


def check_text(setting: str, text: str) -> None:
    """Refuses a username or password that SASLprep (RFC 4013) would change or forbid.

    The RFC wants it prepared; Kafka's brokers and its other clients leave it as it is. What both ways are the same for
    can be used with any broker.

    Raises:
        Unsupported: ``log-sasl``. The message does not tell the text: it may be a password.
    """
    if _prepared(text) != text or any(forbids(char) for char in text for forbids in _FORBIDDEN) or _mixes(text):
        raise Unsupported(
            f"{setting} has characters that SASLprep (RFC 4013) would change or forbid, and Kafka would not: "
            "brokers could take it for two different texts. Give the user one without control characters, "
            "unusual spaces, ligatures and letters composed of several characters",
            code="log-sasl",
        )


def client_first(username: str, nonce: str) -> bytes:
    """The first message.

    Args:
        username: As `check_text` lets it through.
        nonce: Printable ASCII without a comma, never used before and not to be guessed.
    """
    return f"{_NO_CHANNEL_BINDING}{_first_bare(username, nonce)}".encode()


def client_final(mechanism: str, username: str, password: str, nonce: str, server_first: bytes) -> ClientFinal:
    """The last message, which answers the broker's first.

    Args:
        mechanism: One of `HASHES`.
        username: As in `client_first`.
        password: As `check_text` lets it through.
        nonce: As in `client_first`.
        server_first: What the broker answered to that.

    Raises:
        InvalidRequest: ``log-not-authorized``: the broker answers something else than SCRAM, or another exchange.
        Unsupported: ``log-sasl``: it wants too few or too many iterations.
    """
    found = _SERVER_FIRST.fullmatch(_text(server_first)) or _not_scram()
    full_nonce, salt, iterations = found[1], b64decode(found[2]), int(found[3])
    if not full_nonce.startswith(nonce) or full_nonce == nonce:
        _not_scram()
    if iterations not in _ITERATIONS:
        raise Unsupported(
            f"the broker wants the password hashed {iterations} times, and from {_ITERATIONS[0]} to "
            f"{_ITERATIONS[-1]} are sound: set this user's iterations with kafka-configs",
            code="log-sasl",
        )
    digest = HASHES[mechanism]
    without_proof = f"c={_base64(_NO_CHANNEL_BINDING.encode())},r={full_nonce}"
    exchange = b",".join([_first_bare(username, nonce).encode(), server_first, without_proof.encode()])
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    client_signature = hmac.digest(hashlib.new(digest, client_key).digest(), exchange, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, client_signature, strict=True))
    server_key = hmac.digest(salted, b"Server Key", digest)
    return ClientFinal(f"{without_proof},p={_base64(proof)}".encode(), hmac.digest(server_key, exchange, digest))


def check_server_final(server_final: bytes, signature: bytes) -> None:
    """Sees that the broker knows the password's hash.

    Raises:
        InvalidRequest: ``log-not-authorized``: it does not, or it refuses the user.
    """
    text = _text(server_final)
    if text.startswith("e="):
        raise InvalidRequest(
            f"the broker refuses sasl.username and sasl.password: {text[2:]}", code="log-not-authorized"
        )
    found = _SERVER_FINAL.fullmatch(text) or _not_scram()
    if not hmac.compare_digest(found[1], _base64(signature)):
        raise InvalidRequest(
            "the broker did not prove that it knows this user's password: it is not the one that the user was made "
            "at, or somebody stands between. Check the address of the brokers",
            code="log-not-authorized",
        )


def _first_bare(username: str, nonce: str) -> str:
    escaped = username.replace("=", "=3D").replace(",", "=2C")
    return f"n={escaped},r={nonce}"


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _text(message: bytes) -> str:
    return message.decode(errors="replace")  # the character that this gives is in no message of SCRAM


def _not_scram() -> NoReturn:
    raise InvalidRequest(
        "the broker's answer is not what SCRAM (RFC 5802) has there, or belongs to another exchange: check the address "
        "of the brokers and sasl.mechanism",
        code="log-not-authorized",
    )


def _prepared(text: str) -> str:
    mapped = (" " if stringprep.in_table_c12(char) else char for char in text if not stringprep.in_table_b1(char))
    return ucd_3_2_0.normalize("NFKC", "".join(mapped))


def _mixes(text: str) -> bool:
    """Whether it goes from right to left, but not as a whole (RFC 3454, "Bidirectional Characters")."""
    if not any(map(stringprep.in_table_d1, text)):
        return False
    inside = any(map(stringprep.in_table_d2, text))
    return inside or not (stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1]))
