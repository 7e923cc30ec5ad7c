"""Measures and logs requests, as ASGI middleware: an answer is still being sent when its handler has returned."""

from __future__ import annotations

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from filestore.metrics.meter import LATENCY_S, Kind, Meter, Metric
from filestore.process_log import fields

__all__ = ["ACCESS_LOG", "METRICS_PATH", "REQUEST_METRICS", "MeasuredRequests"]

METRICS_PATH = "/metrics"
"""The path of the metrics. It needs no token, as the service's health: it names no tables."""

ACCESS_LOG = logging.getLogger("catalog_service.access")
"""Logs a line for each request: errors of the service as WARNING, probes and scrapes as DEBUG, the others as INFO."""

REQUESTS = Metric(
    "tablestore_catalog_requests_total",
    Kind.COUNTER,
    "Requests, by the path's template; a request that matches no path has the path `<none>`.",
    ("method", "path", "status"),
)
SECONDS = Metric(
    "tablestore_catalog_request_duration_seconds",
    Kind.HISTOGRAM,
    "The time from a request to the end of its answer.",
    ("method", "path"),
    LATENCY_S,
)
REQUEST_METRICS = (REQUESTS, SECONDS)

_NO_PATH = "<none>"
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
_PROBES = ("/health", "/ready", METRICS_PATH)


class MeasuredRequests:
    """Counts requests, measures their time, and logs them.

    Args:
        app: The application that answers them.
        meter: It gets the values.
    """

    def __init__(self, app: ASGIApp, meter: Meter) -> None:
        self._app = app
        self._meter = meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request; other kinds of connections pass."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, size = time.perf_counter(), 500, 0

        async def noting(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            seconds = time.perf_counter() - began
            method = scope["method"] if scope["method"] in _METHODS else "<other>"
            path = getattr(scope.get("route"), "path", _NO_PATH)
            self._meter.add(REQUESTS, (method, path, str(status)))
            self._meter.observe(SECONDS, (method, path), seconds)
            _log(scope, status, size, seconds)


def _log(scope: Scope, status: int, size: int, seconds: float) -> None:
    level = logging.INFO
    if status >= 500:
        level = logging.WARNING
    elif scope["path"].endswith(_PROBES):
        level = logging.DEBUG
    if ACCESS_LOG.isEnabledFor(level):
        # Logged as it was sent, percent-encoded, and escaped: a line break could forge a line. No query holds a secret.
        asked = b"?".join(filter(None, (scope.get("raw_path", b""), scope["query_string"])))
        shown = asked.decode("latin-1").encode("unicode_escape").decode()
        client = (scope.get("client") or ("-",))[0]
        ms = seconds * 1000
        more = fields(client=client, method=scope["method"], path=shown, status=status, bytes=size, ms=round(ms, 1))
        ACCESS_LOG.log(level, '%s "%s %s" %d %d %.1fms', client, scope["method"], shown, status, size, ms, extra=more)
