"""Checks the service's one static token, and where the service may listen without one."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable

from filestore.errors import InvalidRequest

__all__ = ["TokenMissing", "TokenWrong", "check_exposure", "check_header"]


class TokenMissing(InvalidRequest):
    """The request has no token (401)."""

    default_code = "token-missing"


class TokenWrong(InvalidRequest):
    """The request has another token (401)."""

    default_code = "token-wrong"


def check_exposure(host: str, address: str, token: str | None, *, insecure: bool) -> None:
    """Refuses to start a service that other machines can reach and that requires no token.

    Args:
        host: The host as the user wrote it, for the message.
        address: The host's IP address.
        token: The token that requests must send.
        insecure: Whether the user allows it all the same.

    Raises:
        InvalidRequest: ``token-needed``.
    """
    if token is not None or insecure or ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return
    raise InvalidRequest(
        f"other machines can reach {host}, and whoever reaches a service without a token may drop all tables: pass "
        "--token or $TABLESTORE_TOKEN, listen at 127.0.0.1, or pass --insecure if the network itself keeps others out",
        code="token-needed",
    )


def check_header(headers: Iterable[tuple[bytes, bytes]], token: str) -> None:
    """Checks that a request has the service's token.

    Args:
        headers: The request's headers, with names in lower case.
        token: The service's token.

    Raises:
        InvalidRequest: ``repeated-header``: it has the header twice, of which each server takes another one.
        TokenMissing: the request has no bearer token.
        TokenWrong: it has another one.
    """
    found = [value for name, value in headers if name == b"authorization"]
    if len(found) > 1:
        raise InvalidRequest("the request has two headers Authorization: send one", code="repeated-header")
    scheme, _, given = (found[0] if found else b"").partition(b" ")
    if scheme.lower() != b"bearer" or not given.strip():
        raise TokenMissing(
            "this service requires a token: send 'Authorization: Bearer <token>' "
            "(tablestore.connect(url, token=…), or --token on the command line)"
        )
    if not hmac.compare_digest(given.strip(), token.encode()):
        raise TokenWrong("the token is wrong for this service: ask its administrator for the right one")
