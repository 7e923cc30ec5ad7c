"""Bounds what a connection may send outside of bodies, and how slowly: request lines, headers, trailers, silence.

httptools has no bound for them, and would keep a header of any size. uvicorn waits for a first request for ever.
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from catalog_service.server.connections import CONNECTION, Connection

__all__ = ["HEAD_BYTES_MAX", "HEAD_SECONDS_MAX", "WRITE_SECONDS_MAX", "BoundedHeads"]

HEAD_BYTES_MAX = 65_536
HEAD_SECONDS_MAX = 10.0
"""The time for the request line and headers to arrive; before the first ones a client may be silent as long."""
WRITE_SECONDS_MAX = 30.0
"""The time for which a client may read nothing of an answer."""

_FRAMES = 9  # at most so many received bytes belong to one byte of a body: a chunk of one byte takes six
_IN_A_HEADER = 4  # a colon, a space and a line break


def _refusal(status: HTTPStatus, code: str, detail: str) -> bytes:
    problem = {
        "type": "urn:tablestore:problem:invalid-request",
        "title": "The request is wrong",
        "status": status.value,
        "detail": detail,
        "instance": "",
        "code": code,
    }
    body = json.dumps(problem, separators=(",", ":")).encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        "content-type: application/problem+json\r\n"
        f"content-length: {len(body)}\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode() + body


_TOO_LONG = _refusal(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    "head-too-large",
    "the request line and headers are too long: shorten them",
)
_TOO_SLOW = _refusal(
    HTTPStatus.REQUEST_TIMEOUT,
    "head-too-slow",
    f"the request line and headers did not arrive within {HEAD_SECONDS_MAX:g} s: send them at once",
)


class BoundedHeads(HttpToolsProtocol):
    """Closes a connection whose request line, headers, trailers or chunk frames are too long, or too slow.

    One timer runs while a client owes us something and no request is being answered: it is not set anew by what
    arrives in between, so a client cannot prolong it byte by byte. Between two requests uvicorn's own timer runs.

    Attributes:
        connection: Its place among the service's connections.
    """

    def __init__(self, connection: Connection, **given: Any) -> None:
        super().__init__(**given)
        self.connection = connection
        self._began = False
        self._in_head = False
        self._refused = False
        self._head = 0
        self._received = 0
        self._bodies = 0
        self._owed: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------------------------------------ the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Waits for the first request."""
        super().connection_made(transport)
        self.connection.end = transport.abort
        self._owe()

    def connection_lost(self, exc: Exception | None) -> None:
        """Frees its place."""
        super().connection_lost(exc)
        self._paid()
        self._read()
        self.connection.gone()

    def data_received(self, data: bytes) -> None:
        """Parses the bytes that arrived."""
        if self._refused:
            return
        self._began = False
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._began:
            self._received = self._bodies = 0
        else:
            self._received += len(data)
            if self._received > HEAD_BYTES_MAX + _FRAMES * self._bodies:
                self._refuse(_TOO_LONG)
                return
        if self._answers_nothing and self.timeout_keep_alive_task is None:
            self._owe()  # the rest of a head, or of a body that nobody reads: uvicorn has just switched its timer off

    def pause_writing(self) -> None:
        """Waits for the client to read."""
        super().pause_writing()
        self._unread = self._unread or self.loop.call_later(WRITE_SECONDS_MAX, self.transport.abort)

    def resume_writing(self) -> None:
        """Goes on: the client has read."""
        super().resume_writing()
        self._read()

    def timeout_keep_alive_handler(self) -> None:
        """Closes an idle connection. `close` alone would wait for a client that does not read its answers."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    # --------------------------------------------------------------------------------------------------- the parser

    def on_message_begin(self) -> None:
        """Notes that a request begins."""
        self._began = self._in_head = True
        self._head = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Counts a part of the request line."""
        self._head += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Counts a header."""
        self._head += len(name) + len(value) + _IN_A_HEADER
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begins to answer a request, or refuses its head."""
        self._in_head = False
        if self._refused:
            return
        if self._head > HEAD_BYTES_MAX:
            self._refuse(_TOO_LONG)
            return
        self._paid()
        # who has the token is known by the application
        self.scope["extensions"] = {CONNECTION: {CONNECTION: self.connection}}
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Counts a part of a request's body."""
        self._bodies += len(body)
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Ends a request's body."""
        if not self._refused:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Ends an answer."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._close()
        elif self._in_head:  # a part of the next request is there already
            self._owe()

    # ------------------------------------------------------------------------------------------------------- the end

    @property
    def _answers_nothing(self) -> bool:
        # uvicorn's type hides that `cycle` is None before the first request
        return self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]

    def _too_slow(self) -> None:
        self._owed = None
        if self._in_head:
            self._refuse(_TOO_SLOW)
        elif not self.transport.is_closing():
            self.transport.abort()  # it has asked for nothing, so there is nothing to answer

    def _refuse(self, answer: bytes) -> None:
        self._refused = True
        self._paid()
        if self._answers_nothing and not self.transport.is_closing():
            self.transport.write(answer)
        self._close()

    def _close(self) -> None:
        """Closes the connection, also if the client does not read the answer."""
        self.transport.close()
        self._unread = self._unread or self.loop.call_later(WRITE_SECONDS_MAX, self.transport.abort)

    def _owe(self) -> None:
        self._owed = self._owed or self.loop.call_later(HEAD_SECONDS_MAX, self._too_slow)

    def _paid(self) -> None:
        if self._owed is not None:
            self._owed.cancel()
            self._owed = None

    def _read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
