"""Page tokens: opaque to clients, and inside the last key of the page before.

A page is "what comes after this key", not "from row 200", so that inserts and deletes between two pages
neither double nor skip what was there all along. A token holds what it pages over: used elsewhere it is
refused.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from filestore.errors import InvalidRequest

__all__ = ["PAGE_SIZE", "PAGE_SIZE_MAX", "cut", "decode_token", "encode_token"]

PAGE_SIZE = 100
PAGE_SIZE_MAX = 1000
_TOKEN_LENGTH_MAX = 512
_KEY = re.compile(r"[a-z0-9_]{1,100}")  # a name or a version

Row = TypeVar("Row")


def encode_token(scope: str, after: str) -> str:
    """The token of the page that follows the key `after`.

    Args:
        scope: What is paged over, such as ``tables:shop``.
        after: The last key of this page.
    """
    return base64.urlsafe_b64encode(json.dumps([1, scope, after]).encode()).decode().rstrip("=")


def decode_token(scope: str, token: str | None) -> str | None:
    """The key after which the page begins; None for the first page.

    Raises:
        InvalidRequest: ``bad-page-token``: not a token of ours, or one of another list.
    """
    if not token:
        return None
    parts = _parts(token)
    if parts is None:
        raise InvalidRequest(
            "page_token is not one that this service gave: pass next_page_token of the page before as it is, "
            "or none to begin again",
            code="bad-page-token",
        )
    if parts[0] != scope:
        raise InvalidRequest(
            f"page_token belongs to another list ({parts[0]!r}): leave it out to begin with the first page",
            code="bad-page-token",
        )
    return parts[1]


def cut(rows: Sequence[Row], size: int, scope: str, key: Callable[[Row], str]) -> tuple[Sequence[Row], str | None]:
    """A page of at most `size` rows, and the token of the next if there are more.

    Args:
        rows: In order, one more than `size` if there are that many.
        size: Rows of a page.
        scope: What is paged over.
        key: A row's key.
    """
    page = rows[:size]
    return page, encode_token(scope, key(page[-1])) if len(rows) > size else None


def _parts(token: str) -> tuple[str, str] | None:
    if len(token) > _TOKEN_LENGTH_MAX:
        return None
    try:
        padded = token.encode("ascii") + b"=" * (-len(token) % 4)
        value = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (UnicodeError, binascii.Error, ValueError):
        return None
    match value:
        case [1, str(scope), str(after)] if _KEY.fullmatch(after):
            return scope, after
    return None
