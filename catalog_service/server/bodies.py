"""Bounds requests' bodies before anything parses them: their size, their depth, and how slowly they arrive."""

from __future__ import annotations

import asyncio
import re
from typing import NoReturn

import numpy as np
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from catalog_service.server.refusals import BodyTooLarge, BodyTooSlow, send_refusal
from filestore.errors import InvalidRequest, TableStoreError

__all__ = ["BODY_BYTES_MAX", "BODY_SECONDS_MAX", "JSON_DEPTH_MAX", "BoundedBodies", "json_depth"]

BODY_BYTES_MAX = 1_000_000
BODY_SECONDS_MAX = 30.0
JSON_DEPTH_MAX = 32

_BODYLESS = frozenset({"GET", "HEAD", "OPTIONS"})
# Matches also a text that does not end, up to the end of the body: so no byte is scanned twice.
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+\\?(?:"|\Z)', re.DOTALL)
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"{[")] = 1
_STEPS[list(b"}]")] = -1


class BoundedBodies:
    """Reads a request's body whole, within the bounds, and hands it on. It does not parse the body.

    Args:
        app: The application that answers requests.
        seconds: How long a body may take to arrive.
    """

    def __init__(self, app: ASGIApp, seconds: float = BODY_SECONDS_MAX) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http" or _bodyless(scope):
            await self._app(scope, receive, send)
            return
        try:
            body = await self._read(scope, receive)
            if body is not None and (depth := json_depth(body)) > JSON_DEPTH_MAX:
                raise InvalidRequest(
                    f"the request's JSON is nested {depth} deep, and the bound is {JSON_DEPTH_MAX}: no request needs "
                    "more than 4",
                    code="body-too-deep",
                )
        except TableStoreError as error:
            await send_refusal(error, scope, receive, send)
            return
        if body is not None:
            await self._app(scope, _again(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """Returns the body; None if the client disconnected."""
        length = dict(scope["headers"]).get(b"content-length", b"")
        if length.isdigit() and int(length[:20]) > BODY_BYTES_MAX:
            _too_large()
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > BODY_BYTES_MAX:
                        _too_large()
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise BodyTooSlow(
                f"the request's body did not arrive within {self._seconds:g} s: nothing was changed; send it at once"
            ) from None


def json_depth(body: bytes) -> int:
    """Returns how deep brackets are nested in a JSON text. For other texts the number has no meaning."""
    if body.count(b"{") + body.count(b"[") <= JSON_DEPTH_MAX:
        return 0  # too few to be too deep
    steps = _STEPS[np.frombuffer(_TEXT.sub(b"", body), np.uint8)]
    return int(np.cumsum(steps, dtype=np.int32).max(initial=0))


def _bodyless(scope: Scope) -> bool:
    """Returns whether nothing reads the body of such a request: the server discards it as it arrives."""
    return scope["method"] in _BODYLESS


def _too_large() -> NoReturn:
    raise BodyTooLarge(
        f"the request's body is larger than {BODY_BYTES_MAX:,} bytes: nothing was changed; shorten comments and "
        "options, "
        "or create a table with fewer columns and add the others by ALTER"
    )


def _again(body: bytes, receive: Receive) -> Receive:
    given = False

    async def once() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return once
