"""A server of TLS on loopback in front of one that has none, with a certificate of a private authority."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

import trustme

__all__ = ["TlsFront"]


class TlsFront:
    """Passes on what clients send over TLS, and what the server behind it answers.

    Attributes:
        port: Its port on 127.0.0.1.
        authority: The file with the certificate of the authority (PEM).
    """

    def __init__(self, behind: int, folder: Path) -> None:
        authority = trustme.CA()
        self.authority = folder / "authority.pem"
        authority.cert_pem.write_to_path(str(self.authority))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(self._context)
        self._behind = behind
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:  # a client that does not trust the certificate closes the connection
            secure = self._context.wrap_socket(client, server_side=True)
            with secure, socket.create_connection(("127.0.0.1", self._behind)) as server:
                back = threading.Thread(target=_pass_on, args=[server, secure], daemon=True)
                back.start()
                _pass_on(secure, server)
                back.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
