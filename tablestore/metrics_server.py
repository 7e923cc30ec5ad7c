"""``/metrics`` of a process that serves nothing else, such as a compactor or a program that follows tables."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from filestore.errors import Unavailable
from filestore.metrics.exposition import MEDIA_TYPE, text
from filestore.metrics.registry import Metrics

__all__ = ["serving_metrics"]

PATH = "/metrics"


@contextmanager
def serving_metrics(metrics: Metrics, port: int, host: str = "127.0.0.1") -> Iterator[str]:
    """Serves ``/metrics`` from a thread while the block runs; gives the URL.

    Args:
        metrics: Whose values.
        port: 0: any free one.
        host: Address to listen at: loopback, unless told otherwise. Whoever reaches it needs no token.

    Raises:
        Unavailable: ``port-in-use``.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # http.server's name
            if self.path.partition("?")[0] != PATH:
                self.send_error(404, f"only {PATH} is here")
                return
            body = text(metrics.families()).encode()
            self.send_response(200)
            self.send_header("Content-Type", MEDIA_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # http.server's name
            """A scrape is no news."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except OSError as error:
        raise Unavailable(
            f"cannot listen at {host}:{port}: {error.strerror or error}; choose another port, or 0 for any free one",
            code="port-in-use",
        ) from error
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="metrics", daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_address[1]}{PATH}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
