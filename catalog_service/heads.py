"""HTTP's parser with a bound for what is no body: httptools has none, and would keep a header of any size."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["HEAD_BYTES_MAX", "BoundedHeads"]

HEAD_BYTES_MAX = 65_536
_FRAMES = 9  # bytes received for each byte of a body, at most: a chunk of one byte takes six

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
    """Closes a connection whose request line, headers, trailers and frames of chunks are too long.

    What arrives together with a request's first byte is not counted: that is one read of the socket.
    """

    _began = False
    _received = 0
    _bodies = 0

    def data_received(self, data: bytes) -> None:
        """Parses what arrived."""
        self._began = False
        super().data_received(data)
        if self._began:
            self._received = self._bodies = 0
            return
        self._received += len(data)
        if self._received > HEAD_BYTES_MAX + _FRAMES * self._bodies and not self.transport.is_closing():
            # uvicorn's type hides that there is none before the first request
            if self.cycle is None or self.cycle.response_complete:  # type: ignore[redundant-expr]
                self.transport.write(_REFUSED)
            self.transport.close()

    def on_message_begin(self) -> None:
        """A request's first byte."""
        self._began = True
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        """A part of its body."""
        self._bodies += len(body)
        super().on_body(body)
