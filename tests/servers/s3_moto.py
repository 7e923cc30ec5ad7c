"""The process of a `MotoServer`: moto behind a server that keeps connections; ``python -m tests.servers.s3_moto PORT``.

moto's own server closes each connection after one request. Requests run one after another, because moto looks whether
a key exists and writes it in two steps: two racers with ``If-None-Match`` could both win.
"""

from __future__ import annotations

import io
import logging
import sys
from http.server import ThreadingHTTPServer
from threading import Lock
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import DechunkedInput

APP = DomainDispatcherApplication(create_backend_app)
ONE_AT_A_TIME = Lock()
NO_BODY = (204, 304)


class Handler(MotoRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave in one packet

    def run_wsgi(self) -> None:
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.wfile.flush()
        environ = self.make_environ()
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            body = DechunkedInput(self.rfile).read()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        environ |= {"wsgi.input": io.BytesIO(body), "wsgi.input_terminated": True, "CONTENT_LENGTH": str(len(body))}
        with ONE_AT_A_TIME:
            answer = _call(environ)
        self._reply(*answer)

    def _reply(self, status: str, headers: list[tuple[str, str]], body: bytes) -> None:
        code, _, reason = status.partition(" ")
        self.send_response(int(code), reason)
        names = {name.lower() for name, _ in headers}
        for name, value in headers:
            if name.lower() != "content-length" or self.command == "HEAD":
                self.send_header(name, value)
        if int(code) not in NO_BODY and not (self.command == "HEAD" and "content-length" in names):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD" and int(code) not in NO_BODY:
            self.wfile.write(body)
        self.wfile.flush()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        sys.stderr.write(f"{self.command} {self.path} {code}\n")


def _call(environ: dict[str, Any]) -> tuple[str, list[tuple[str, str]], bytes]:
    answer: list[tuple[str, list[tuple[str, str]]]] = []

    def start_response(status: str, headers: list[tuple[str, str]], _: object = None) -> object:
        answer[:] = [(status, headers)]
        return None

    pieces = APP(environ, start_response)
    try:
        body = b"".join(pieces)
    finally:
        if hasattr(pieces, "close"):
            pieces.close()
    return *answer[-1], body


class Server(ThreadingHTTPServer):
    """Has what werkzeug's handler asks its server for."""

    daemon_threads = True
    request_queue_size = 256
    multithread = True
    multiprocess = False
    ssl_context = None
    passthrough_errors = True
    _server_version = "moto"


if __name__ == "__main__":
    logging.getLogger("werkzeug").disabled = True
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
