"""Serves ``/metrics`` of a process that has no other server, such as a compactor or a reader of tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import start_http_server

from filestore.errors import Unavailable
from filestore.metrics.registry import Metrics

__all__ = ["serving_metrics"]


@contextmanager
def serving_metrics(metrics: Metrics, port: int, host: str = "127.0.0.1") -> Iterator[str]:
    """Serves ``/metrics`` from a thread while the block runs; yields the URL.

    Args:
        metrics: The values to serve.
        port: The port; 0 chooses any free one.
        host: The address to listen at; loopback by default. A client needs no token.

    Raises:
        Unavailable: ``port-in-use``.
    """
    try:
        server, thread = start_http_server(port, host, metrics.registry)
    except OSError as error:
        raise Unavailable(
            f"cannot listen at {host}:{port}: {error.strerror or error}; choose another port, or 0 for any free one",
            code="port-in-use",
        ) from error
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
