"""The rule for the service's token: a client sends it in a header, and the service compares it."""

from __future__ import annotations

import re

from filestore.errors import InvalidRequest

__all__ = ["checked_token"]

# RFC 6750's characters and spaces: an HTTP header could not carry others unchanged.
_TOKEN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


def checked_token(token: str) -> str:
    """Returns a token if it can be sent in a header.

    Raises:
        InvalidRequest: ``token-empty``: it has no characters; ``bad-token``: characters that no header can hold.
    """
    if not token.strip():
        raise InvalidRequest(
            "the token is empty, which would let everybody in: set --token or $TABLESTORE_TOKEN to a secret, or unset "
            "both for no authentication",
            code="token-empty",
        )
    if not _TOKEN.fullmatch(token):
        raise InvalidRequest(
            "the token holds characters that an HTTP header cannot carry, or begins or ends with a space: use "
            "printable ASCII, for example the output of `openssl rand -hex 32`",
            code="bad-token",
        )
    return token
