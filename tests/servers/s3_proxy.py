"""A proxy in front of an S3 server that counts requests, delays them and injects faults.

    with S3Proxy(server) as proxy:
        proxy.choose = lambda call: Fault.RESET_AFTER if call.kind is Kind.PUT and call.attempt == 1 else None
        ...  # a client of `proxy.endpoint`, with the credentials of the server
        assert proxy.count(Kind.PUT) == 2

It keeps connections as S3 does, and sends each request as it is, with the client's ``Host``, so that signatures stay
valid. Bodies flow through in pieces. Its threads run in this process: what a client in this process may block
(the interpreter's lock) blocks the proxy, too.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import select
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from io import BufferedReader
from threading import Event, Lock, Thread
from typing import Self
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from tests.servers.s3 import S3Endpoint
from tests.servers.system import Startable, free_ports

__all__ = ["Call", "Chooser", "Fault", "Kind", "S3Proxy"]

PIECE = 1 << 16
CONDITIONS = ("if-match", "if-none-match")
SLOW_PIECES = 8
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Kind(StrEnum):
    """What a request asks for."""

    GET = "get"
    GET_RANGE = "get range"
    HEAD = "head"
    PUT = "put"
    PUT_IF = "put if"  # with If-None-Match or If-Match
    COPY = "copy"
    PUT_PART = "put part"
    LIST = "list"
    DELETE = "delete"
    DELETE_MANY = "delete many"
    CREATE_UPLOAD = "create upload"
    COMPLETE_UPLOAD = "complete upload"
    ABORT_UPLOAD = "abort upload"
    OTHER = "other"  # buckets, lists of parts and uploads, and the rest


class Fault(StrEnum):
    """What goes wrong. *After* means that the server has done what the request asks for."""

    SLOW_DOWN = "503 before"
    SLOW_DOWN_AFTER = "503 after"
    CONFLICT = "409 before"  # ConditionalRequestConflict
    GATEWAY = "504 before"  # of something between client and server, which does not know what the server does
    MALFORMED = "400 before"  # InvalidRequest
    EXPIRED = "400 expired"  # ExpiredToken
    REFUSED = "403 before"  # the access key is unknown
    RESET = "reset before"
    RESET_AFTER = "reset after"
    TIME_OUT = "no reply, before"  # until the client gives up
    TIME_OUT_AFTER = "no reply, after"
    CUT_OFF = "cut off"  # the connection ends in the middle of the reply's body
    SLOW_BODY = "slow body"  # the reply's body takes `S3Proxy.slow_s`
    DROP_CONDITIONS = "drop conditions"  # the server sees neither If-None-Match nor If-Match
    TWICE = "sent twice"  # the server gets the request twice, and its second reply comes back
    PARTLY = "partly"  # of the objects of a DELETE_MANY a half is deleted; the reply has an error for each other one


BEFORE = (
    Fault.SLOW_DOWN,
    Fault.CONFLICT,
    Fault.GATEWAY,
    Fault.MALFORMED,
    Fault.EXPIRED,
    Fault.REFUSED,
    Fault.RESET,
    Fault.TIME_OUT,
)
_PASSED = (None, Fault.DROP_CONDITIONS, Fault.TWICE)
"""The server's reply comes back as it is."""
ERRORS = {
    Fault.SLOW_DOWN: ("503 Slow Down", "SlowDown", "Please reduce your request rate."),
    Fault.SLOW_DOWN_AFTER: ("503 Slow Down", "SlowDown", "Please reduce your request rate."),
    Fault.CONFLICT: (
        "409 Conflict",
        "ConditionalRequestConflict",
        "The conditional request cannot succeed due to a conflicting operation against this resource.",
    ),
    Fault.GATEWAY: ("504 Gateway Timeout", "GatewayTimeout", "The server did not respond in time."),
    Fault.MALFORMED: ("400 Bad Request", "InvalidRequest", "The request is malformed."),
    Fault.REFUSED: ("403 Forbidden", "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist."),
    Fault.EXPIRED: ("400 Bad Request", "ExpiredToken", "The provided token has expired."),
}


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as it arrived.

    Args:
        number: 1 for the first one since `S3Proxy.reset`.
        kind: What it asks for.
        bucket: Empty if it names none.
        key: Of the object; the prefix of a list.
        attempt: 1 for the first call with this kind, bucket, key and range, 2 for the second, and so on.
        range: As in the header, ``bytes=0-9``; empty without.
        conditional: Whether it has If-None-Match or If-Match; completions of uploads may have them, too.
        size: The bytes of its body; -1 if they are not announced.
        access_key: With which it is signed; empty if it is not.
    """

    number: int
    kind: Kind
    bucket: str
    key: str
    attempt: int = 1
    range: str = ""
    conditional: bool = False
    size: int = 0
    access_key: str = ""


Chooser = Callable[[Call], Fault | None]


class S3Proxy(Startable, S3Endpoint):
    """Answers on a port of its own, with the buckets and credentials of the server.

    Args:
        server: Whose requests it passes on.
        choose: Chooses the fault of a call; without one none has a fault. It should be pure: it runs in the threads
            of the connections. It may be replaced at any time, as `delay_s` may.
        delay_s: How long each request waits before it reaches the server, or the fault.
    """

    def __init__(self, server: S3Endpoint, choose: Chooser | None = None, delay_s: float = 0.0) -> None:
        [self._port] = free_ports(1)
        super().__init__(f"http://127.0.0.1:{self._port}", server.access_key, server.secret_key, server.region)
        self.bucket = server.bucket
        self._thread_name = f"s3-proxy-{self._port}"
        self.choose = choose or _no_fault
        self.delay_s = delay_s
        self.slow_s = 1.0
        """How long a slow body takes."""
        self._server = server
        self._lock = Lock()
        self._calls: list[Call] = []
        self._faults: list[tuple[Call, Fault]] = []
        self._attempts: Counter[tuple[object, ...]] = Counter()
        self._listener: socket.socket | None = None
        self._stopping = Event()
        self._open: dict[socket.socket, Thread] = {}
        self._accepting: Thread | None = None

    def new_bucket(self) -> str:
        """Creates a bucket of the server; that is not counted."""
        return self._server.new_bucket()

    @property
    def calls(self) -> list[Call]:
        """Those since the last reset, in the order in which they arrived."""
        with self._lock:
            return list(self._calls)

    @property
    def faults(self) -> list[tuple[Call, Fault]]:
        """The calls that had a fault, and the fault."""
        with self._lock:
            return list(self._faults)

    def count(self, *kinds: Kind) -> int:
        """How many calls of these kinds arrived; without a kind, of all."""
        return sum(not kinds or call.kind in kinds for call in self.calls)

    def counts(self) -> dict[Kind, int]:
        """How many calls of each kind arrived; kinds without a call are absent."""
        return dict(Counter(call.kind for call in self.calls))

    def reset(self) -> None:
        """Forgets all calls; numbers and attempts begin with 1 again."""
        with self._lock:
            self._calls.clear()
            self._faults.clear()
            self._attempts.clear()

    def start(self) -> Self:
        """Listens, on the same port as before."""
        assert self._listener is None, "the proxy runs"
        self._stopping = Event()
        self._listener = socket.create_server(("127.0.0.1", self._port), backlog=256)
        self._accepting = Thread(
            target=self._accept, args=(self._listener, self._stopping), name=f"s3-proxy-{self._port}"
        )
        self._accepting.start()
        return self

    def stop(self) -> None:
        """An outage: refuses connections, and ends those that are open. Nothing happens if it does not run."""
        if self._listener is None:
            return
        self._stopping.set()
        _shut(self._listener)
        assert self._accepting is not None
        self._accepting.join()
        self._listener.close()
        self._listener = None
        with self._lock:
            connections = dict(self._open)
            for connection in connections:
                _shut(connection)
        for thread in connections.values():
            thread.join()

    def _accept(self, listener: socket.socket, stopping: Event) -> None:
        while not stopping.is_set():
            try:
                client, _ = listener.accept()
            except OSError:
                return
            thread = Thread(target=self._serve, args=(client, stopping), name=self._thread_name, daemon=True)
            with self._lock:
                self._open[client] = thread
                thread.start()

    def _serve(self, client: socket.socket, stopping: Event) -> None:
        """Serves one connection to its end."""
        upstream = _Upstream(self._server.endpoint)
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # it ends with the client, with a stop, or where one of the two sides breaks off
            with client.makefile("rb") as reader, suppress(OSError, _EndedError):
                while not stopping.is_set() and self._serve_one(client, reader, upstream, stopping):
                    pass
        finally:
            with self._lock:
                upstream.close()
                self._open.pop(client)
                client.close()

    def _serve_one(self, client: socket.socket, reader: BufferedReader, upstream: _Upstream, stopping: Event) -> bool:
        """Serves one request; returns whether the connection goes on."""
        request = _Head.read(reader)
        if request is None:
            return False
        call = self._record(request)
        fault = self.choose(call)
        if fault is not None:
            with self._lock:
                self._faults.append((call, fault))
        stopping.wait(self.delay_s)
        if request.value("expect").lower() == "100-continue":
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        if fault in BEFORE:
            for _ in _pieces(reader, request):
                pass
            return _answer_with(fault, client, request, stopping)
        if fault is Fault.PARTLY:
            _send(client, *self._deleted_partly(call.bucket, b"".join(_pieces(reader, request))))
            return True
        reply, pieces = self._passed_on(fault, request, _pieces(reader, request), upstream)
        if fault in _PASSED:
            _send(client, reply.without("connection"), pieces)
        else:
            body = b"".join(pieces)
            if fault is Fault.SLOW_BODY:
                _send(client, reply.without("connection"), self._slowly(body, stopping))
            elif fault is Fault.CUT_OFF:
                return _cut_off(client, request, reply.without("connection"), body)
            else:
                return _answer_with(fault, client, request, stopping)
        return request.value("connection").lower() != "close"

    def _passed_on(
        self, fault: Fault | None, request: _Head, body: Iterator[bytes], upstream: _Upstream
    ) -> tuple[_Head, Iterator[bytes]]:
        if fault is Fault.DROP_CONDITIONS:
            request = _signed_again(request, self)
        if fault is Fault.TWICE:
            whole = b"".join(body)
            for _ in upstream.ask(request, iter((whole,)))[1]:
                pass
            body = iter((whole,))
        return upstream.ask(request, body)

    def _slowly(self, body: bytes, stopping: Event) -> Iterator[bytes]:
        size = len(body) // SLOW_PIECES + 1
        for at in range(0, len(body), size):
            stopping.wait(self.slow_s / SLOW_PIECES)
            yield body[at : at + size]

    def _deleted_partly(self, bucket: str, body: bytes) -> tuple[_Head, Iterator[bytes]]:
        """Deletes every second object that the request names; returns the reply."""
        keys = [unescape(key) for key in re.findall(r"<Key>(.*?)</Key>", body.decode())]
        with self._server.client() as s3:
            for key in keys[::2]:
                s3.delete_object(Bucket=bucket, Key=key)
        entries = [f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys[::2]]
        entries += [
            f"<Error><Key>{escape(key)}</Key><Code>InternalError</Code><Message>Try again.</Message></Error>"
            for key in keys[1::2]
        ]
        namespace = "http://s3.amazonaws.com/doc/2006-03-01/"
        reply = f'<?xml version="1.0"?><DeleteResult xmlns="{namespace}">{"".join(entries)}</DeleteResult>'.encode()
        headers = (("Content-Type", "application/xml"), ("Content-Length", str(len(reply))))
        return _Head("HTTP/1.1 200 OK", headers), iter((reply,))

    def _record(self, request: _Head) -> Call:
        kind, bucket, key = _asked(request)
        asked_range = request.value("range")
        with self._lock:
            self._attempts[kind, bucket, key, asked_range] += 1
            call = Call(
                number=len(self._calls) + 1,
                kind=kind,
                bucket=bucket,
                key=key,
                attempt=self._attempts[kind, bucket, key, asked_range],
                range=asked_range,
                conditional=any(map(request.value, CONDITIONS)),
                size=-1 if request.is_chunked else int(request.value("content-length") or 0),
                access_key=request.value("authorization").partition("Credential=")[2].partition("/")[0],
            )
            self._calls.append(call)
        return call


def _no_fault(_: Call) -> None:
    return None


def _asked(request: _Head) -> tuple[Kind, str, str]:
    """Returns the kind of a request, its bucket and its key."""
    method, target, _ = request.first.split(" ")
    parts = urlsplit(target)
    bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    if not key:
        return _asked_of_bucket(method, bucket, query)
    upload = "uploadId" in query
    if method == "PUT" and not upload:
        if request.value("x-amz-copy-source"):
            return Kind.COPY, bucket, key
        kind = Kind.PUT_IF if any(map(request.value, CONDITIONS)) else Kind.PUT
        return kind if not set(query) - {"x-id"} else Kind.OTHER, bucket, key
    if method == "GET" and not upload:
        return Kind.GET_RANGE if request.value("range") else Kind.GET, bucket, key
    if method == "POST" and "uploads" in query:
        return Kind.CREATE_UPLOAD, bucket, key
    with_upload = {"PUT": Kind.PUT_PART, "POST": Kind.COMPLETE_UPLOAD, "DELETE": Kind.ABORT_UPLOAD}
    without = {"HEAD": Kind.HEAD, "DELETE": Kind.DELETE}
    return (with_upload if upload else without).get(method, Kind.OTHER), bucket, key


def _asked_of_bucket(method: str, bucket: str, query: dict[str, str]) -> tuple[Kind, str, str]:
    if method == "POST" and "delete" in query:
        return Kind.DELETE_MANY, bucket, ""
    listing = {"list-type", "prefix", "delimiter", "marker", "max-keys", "encoding-type"}
    if method == "GET" and bucket and "uploads" not in query and (not query or listing & set(query)):
        return Kind.LIST, bucket, query.get("prefix", "")
    return Kind.OTHER, bucket, ""


class _EndedError(Exception):
    """The other side ended the connection in the middle of a message."""


@dataclass(frozen=True, slots=True)
class _Head:
    """The first line and the headers of a request or a reply, in the order and with the spelling of the wire."""

    first: str
    headers: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, reader: BufferedReader) -> _Head | None:
        """Reads one; returns None if the other side ended the connection before it."""
        first = reader.readline()
        if not first:
            return None
        headers = []
        while (line := reader.readline()) != b"\r\n":
            if not line:
                raise _EndedError
            name, _, value = line.decode("latin-1").partition(":")
            headers.append((name, value.strip()))
        return cls(first.decode("latin-1").strip(), tuple(headers))

    def value(self, name: str) -> str:
        """Of the header, in any spelling; empty without it."""
        return next((value for header, value in self.headers if header.lower() == name), "")

    def without(self, *names: str) -> _Head:
        return _Head(self.first, tuple(header for header in self.headers if header[0].lower() not in names))

    def with_header(self, name: str, value: str) -> _Head:
        return _Head(self.first, (*self.without(name.lower()).headers, (name, value)))

    @property
    def is_chunked(self) -> bool:
        return "chunked" in self.value("transfer-encoding").lower()

    def wire(self) -> bytes:
        lines = [self.first, *(f"{name}: {value}" for name, value in self.headers), "", ""]
        return "\r\n".join(lines).encode("latin-1")


def _pieces(reader: BufferedReader, head: _Head) -> Iterator[bytes]:
    """Yields the body as it is on the wire, with the sizes of its chunks if it is chunked."""
    if not head.is_chunked:
        yield from _exactly(reader, int(head.value("content-length") or 0))
        return
    size = -1
    while size:
        line = reader.readline()
        if not line:
            raise _EndedError
        size = int(line.partition(b";")[0], 16)
        yield line
        yield from _exactly(reader, size)
        if size:
            yield reader.readline()
    while (line := reader.readline()) not in (b"\r\n", b""):  # headers after the body
        yield line
    yield b"\r\n"


def _exactly(reader: BufferedReader, size: int) -> Iterator[bytes]:
    while size:
        piece = reader.read1(min(size, PIECE))
        if not piece:
            raise _EndedError
        size -= len(piece)
        yield piece


class _Upstream:
    """The connection to the server that belongs to one connection of a client."""

    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint)
        self._address = (parts.hostname, parts.port)
        self._connection: socket.socket | None = None
        self._reader: BufferedReader | None = None

    def ask(self, request: _Head, body: Iterator[bytes]) -> tuple[_Head, Iterator[bytes]]:
        """Sends the request; returns the head of the reply, and its body, which must be read to its end."""
        connection, reader = self._connect()
        _send(connection, request.without("connection", "expect"), body)
        reply = _Head.read(reader)
        while reply is not None and reply.first.split(" ")[1] == "100":
            reply = _Head.read(reader)
        if reply is None:
            raise _EndedError
        method, status = request.first.split(" ")[0], reply.first.split(" ")[1]
        if method == "HEAD" or status in ("204", "304"):
            return reply, self._until_the_end(reply, iter(()))
        if not reply.is_chunked and not reply.value("content-length"):
            rest = reader.read()
            self.close()
            return reply.with_header("Content-Length", str(len(rest))), iter((rest,))
        return reply, self._until_the_end(reply, _pieces(reader, reply))

    def _until_the_end(self, reply: _Head, pieces: Iterator[bytes]) -> Iterator[bytes]:
        yield from pieces
        if reply.value("connection").lower() == "close":
            self.close()

    def _connect(self) -> tuple[socket.socket, BufferedReader]:
        # the server has closed a connection that waited for long if there is something to read
        if self._connection is not None and select.select([self._connection], [], [], 0)[0]:
            self.close()
        if self._connection is None or self._reader is None:
            self._connection = socket.create_connection(self._address)
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._reader = self._connection.makefile("rb")
        return self._connection, self._reader

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._connection is not None:
            self._connection.close()
        self._connection = self._reader = None


def _send(connection: socket.socket, head: _Head, pieces: Iterator[bytes]) -> None:
    """Sends a message; its head leaves together with the first piece of its body."""
    connection.sendall(head.wire() + next(pieces, b""))
    for piece in pieces:
        connection.sendall(piece)


def _answer_with(fault: Fault, client: socket.socket, request: _Head, stopping: Event) -> bool:
    """Answers without what the server said, if it was asked at all; returns whether the connection goes on."""
    if fault in (Fault.RESET, Fault.RESET_AFTER):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        return False
    if fault in (Fault.TIME_OUT, Fault.TIME_OUT_AFTER):
        with suppress(OSError):
            client.recv(1, socket.MSG_PEEK)  # returns when the client closes its side, or the proxy stops
        return False
    status, code, message = ERRORS[fault]
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
    reply = _Head(f"HTTP/1.1 {status}", (("Content-Type", "application/xml"), ("Content-Length", str(len(body)))))
    _send(client, reply, iter([b"" if request.first.startswith("HEAD ") else body.encode()]))
    return True


def _cut_off(client: socket.socket, request: _Head, reply: _Head, body: bytes) -> bool:
    """Sends a half of the reply; of a reply without a body it sends nothing, or promises a body if it may have one."""
    if not body and not request.first.startswith("HEAD ") and reply.first.split(" ")[1] not in ("204", "304"):
        reply = reply.with_header("Content-Length", "16")
    elif not body:
        return False
    client.sendall(reply.wire() + body[: len(body) // 2])
    return False


def _signed_again(request: _Head, user: S3Endpoint) -> _Head:
    """Returns the request without its conditions, with a valid signature (version 4, in the header Authorization)."""
    head = request.without(*CONDITIONS)
    found = re.match(
        r"AWS4-HMAC-SHA256 Credential=[^/]+/(?P<scope>[^,]+), ?SignedHeaders=(?P<names>[^,]+), ?Signature=",
        request.value("authorization"),
    )
    if found is None:
        return head
    names = [name for name in found["names"].split(";") if name not in CONDITIONS]
    method, target, _ = request.first.split(" ")
    parts = urlsplit(target)
    query = sorted((_quoted(name), _quoted(value)) for name, value in parse_qsl(parts.query, keep_blank_values=True))
    canonical = [method, parts.path, "&".join("=".join(pair) for pair in query)]
    canonical += [*(f"{name}:{' '.join(head.value(name).split())}" for name in names), "", ";".join(names)]
    canonical += [head.value("x-amz-content-sha256")]
    digest = hashlib.sha256("\n".join(canonical).encode("latin-1")).hexdigest()
    key = f"AWS4{user.secret_key}".encode()
    for step in found["scope"].split("/"):
        key = _hmac(key, step)
    text = "\n".join(["AWS4-HMAC-SHA256", head.value("x-amz-date"), found["scope"], digest])
    signature = _hmac(key, text).hex()
    value = (
        f"AWS4-HMAC-SHA256 Credential={user.access_key}/{found['scope']}, "
        f"SignedHeaders={';'.join(names)}, Signature={signature}"
    )
    return head.with_header("Authorization", value)


def _quoted(text: str) -> str:
    return quote(text, safe="-_.~")


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):  # the other side may have ended it
        connection.shutdown(socket.SHUT_RDWR)
