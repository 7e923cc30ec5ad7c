"""One static token for the whole service. Users and roles come with the service in earnest."""

from __future__ import annotations

import hmac

from fastapi import Request

from filestore.errors import InvalidRequest

__all__ = ["TokenMissing", "TokenWrong", "check_token"]


class TokenMissing(InvalidRequest):
    """401: the service wants a token."""

    default_code = "token-missing"


class TokenWrong(InvalidRequest):
    """403: that is not the token."""

    default_code = "token-wrong"


def check_token(request: Request) -> None:
    """Lets a request pass that has the service's token, and every request if the service has none."""
    expected: str | None = request.app.state.token
    if expected is None:
        return
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not given.strip():
        raise TokenMissing(
            "this service wants a token: send 'Authorization: Bearer <token>' "
            "(tablestore.connect(url, token=…), or --token on the command line)"
        )
    if not hmac.compare_digest(given.strip().encode(), expected.encode()):
        raise TokenWrong("the token is not this service's: ask whoever started it for the right one")
