"""Bounds the request line and headers: httptools has no bound for them, and would keep a header of any size."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["HEAD_BYTES_MAX", "BoundedHeads"]

HEAD_BYTES_MAX = 65_536
_FRAMES = 9  # at most so many received bytes belong to one byte of a body: a chunk of one byte takes six

_BODY = (
    b'{"type":"urn:tablestore:problem:invalid-request","title":"The request is wrong","status":431,'
    b'"detail":"the request line and headers are too long: shorten them","instance":"","code":"head-too-large"}'
)
_REFUSED = b"".join(
    (
        b"HTTP/1.1 431 Request Header Fields Too Large\r\n",
        b"content-type: application/problem+json\r\n",
        b"content-length: %d\r\n" % len(_BODY),
        b"connection: close\r\n\r\n",
        _BODY,
    )
)


class BoundedHeads(HttpToolsProtocol):
    """Closes a connection whose request line, headers, trailers or chunk frames are too long.

    It does not count the bytes that arrive together with a request's first byte: they are one read of the socket.
    """

    _began = False
    _received = 0
    _bodies = 0

    def data_received(self, data: bytes) -> None:
        """Parses the bytes that arrived."""
        self._began = False
        super().data_received(data)
        if self._began:
            self._received = self._bodies = 0
            return
        self._received += len(data)
        if self._received > HEAD_BYTES_MAX + _FRAMES * self._bodies and not self.transport.is_closing():
            # uvicorn's type hides that `cycle` is None before the first request
            if self.cycle is None or self.cycle.response_complete:  # type: ignore[redundant-expr]
                self.transport.write(_REFUSED)
            self.transport.close()

    def on_message_begin(self) -> None:
        """Notes that a request begins."""
        self._began = True
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        """Counts a part of a request's body."""
        self._bodies += len(body)
        super().on_body(body)
