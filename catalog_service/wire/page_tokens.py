"""Page tokens: clients pass them back unread; a token holds the last key of the page before.

A page is "the rows after this key", not "from row 200", so that inserts and deletes between two pages neither repeat
nor skip rows that existed all along. A token names the list that it belongs to, and is refused for any other.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from filestore.errors import InvalidRequest

__all__ = ["PAGE_SIZE", "PAGE_SIZE_MAX", "cut", "decode_token", "encode_token", "every_page"]

PAGE_SIZE = 100
PAGE_SIZE_MAX = 1000
_TOKEN_LENGTH_MAX = 512
_KEY = re.compile(r"[a-z0-9_]{1,100}")  # a name or a version

Row = TypeVar("Row")


class _Page(Protocol):
    @property
    def next_page_token(self) -> str | None: ...


Page = TypeVar("Page", bound=_Page)


def every_page(read: Callable[[str | None], Page]) -> Iterator[Page]:
    """Yields all pages of a list; `read` gets the token of a page, and None for the first one."""
    page = read(None)
    yield page
    while page.next_page_token is not None:
        page = read(page.next_page_token)
        yield page


def encode_token(scope: str, after: str) -> str:
    """Encodes the token of the page that follows the key `after`.

    Args:
        scope: The list that is paged, such as ``tables:shop``.
        after: The last key of this page.
    """
    return base64.urlsafe_b64encode(json.dumps([1, scope, after]).encode()).decode().rstrip("=")


def decode_token(scope: str, token: str | None) -> str | None:
    """Decodes a token: returns the key after which the page begins; None for the first page.

    Raises:
        InvalidRequest: ``bad-page-token``: the token is not from this service, or is for another list.
    """
    if not token:
        return None
    parts = _parts(token)
    if parts is None:
        raise InvalidRequest(
            "this service did not issue that page_token: pass next_page_token of the page before unchanged, "
            "or leave it out to begin again",
            code="bad-page-token",
        )
    if parts[0] != scope:
        raise InvalidRequest(
            f"page_token belongs to another list ({parts[0]!r}): leave it out to begin with the first page",
            code="bad-page-token",
        )
    return parts[1]


def cut(rows: Sequence[Row], size: int, scope: str, key: Callable[[Row], str]) -> tuple[Sequence[Row], str | None]:
    """Returns a page of at most `size` rows, and the token of the next page if there are more rows.

    Args:
        rows: The rows in order; one more than `size` if there are that many.
        size: The rows of a page.
        scope: The list that is paged.
        key: Returns a row's key.
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
