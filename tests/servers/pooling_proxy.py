"""A proxy that pools PostgreSQL's connections as PgBouncer does, by transaction or by session.

    with PoolingProxy(server.url, by="transaction") as proxy:
        connect(warehouse, database=proxy.url)

It speaks as much of the protocol as one user without a password needs.
"""

from __future__ import annotations

import shutil
import socket
import struct
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

_PORT = 5432
_STARTUP = b"user\0postgres\0database\0postgres\0\0"


class _Stream:
    """Messages of the protocol on a socket: a type, and its bytes with the header."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._file = connected.makefile("rb")

    def startup(self) -> None:
        (length,) = struct.unpack("!i", self._exactly(4))
        self._exactly(length - 4)

    def message(self) -> tuple[bytes, bytes]:
        head = self._exactly(5)
        return head[:1], head + self._exactly(struct.unpack("!i", head[1:])[0] - 4)

    def close(self) -> None:
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # another thread may be reading
        self._file.close()
        self.socket.close()

    def _exactly(self, count: int) -> bytes:
        found = self._file.read(count)
        if len(found) < count:
            raise EOFError
        return found


class PoolingProxy:
    """Gives a client any free connection: for a transaction, or for as long as the client stays."""

    def __init__(self, url: str, by: str) -> None:
        self._server = f"{parse_qs(urlsplit(url).query)['host'][0]}/.s.PGSQL.{_PORT}"
        self._by_transaction = by == "transaction"
        self._folder = Path(tempfile.mkdtemp(prefix="proxy"))
        self._listener = socket.socket(socket.AF_UNIX)
        self._free: list[_Stream] = []
        self._settings = b""
        self._clients = 0

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self._folder}"

    def __enter__(self) -> Self:
        self._free.append(self._connect())
        self._listener.bind(f"{self._folder}/.s.PGSQL.{_PORT}")
        self._listener.listen(64)
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        while self._free:
            self._free.pop().close()
        shutil.rmtree(self._folder)

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                client, _ = self._listener.accept()
                self._clients += 1
                threading.Thread(target=self._serve, args=(_Stream(client), self._clients), daemon=True).start()

    def _connect(self) -> _Stream:
        connected = socket.socket(socket.AF_UNIX)
        connected.connect(self._server)
        connected.sendall(struct.pack("!ii", len(_STARTUP) + 8, 196608) + _STARTUP)
        stream, settings = _Stream(connected), b""
        while (read := stream.message())[0] != b"Z":
            settings += read[1] if read[0] == b"S" else b""
        self._settings = settings
        return stream

    def _serve(self, client: _Stream, number: int) -> None:
        server: _Stream | None = None
        try:
            client.startup()
            hello = b"R" + struct.pack("!ii", 8, 0) + self._settings
            client.socket.sendall(hello + b"K" + struct.pack("!iii", 12, 2_000_000_000 + number, 1) + b"Z\0\0\0\5I")
            while True:
                asked = b""
                kind = b""
                while kind not in (b"Q", b"S"):
                    kind, message = client.message()
                    if kind == b"X":
                        return
                    asked += message
                server = server or (self._free.pop() if self._free else self._connect())
                server.socket.sendall(asked)
                kind = b""
                while kind != b"Z":
                    kind, message = server.message()
                    client.socket.sendall(message)
                if self._by_transaction and message[-1:] == b"I":
                    self._free.append(server)
                    server = None
        except (EOFError, OSError):
            return
        finally:
            client.close()
            if server is not None:
                server.close()  # as PgBouncer does, which resets a session before another client gets it
