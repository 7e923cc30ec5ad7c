"""``/metrics`` of a process that serves nothing else, such as a compactor or a program that follows tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import start_http_server

from filestore.errors import Unavailable
from filestore.metrics.registry import Metrics

__all__ = ["serving_metrics"]


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
