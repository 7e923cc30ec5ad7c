"""What is measured of requests: ASGI middleware, since a response is not done when its handler is."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from filestore.metrics.meter import LATENCY_S, Kind, Meter, Metric

__all__ = ["METRICS_PATH", "REQUEST_METRICS", "MeasuredRequests"]

METRICS_PATH = "/metrics"
"""Needs no token, like the service's health: it names no tables."""

REQUESTS = Metric(
    "tablestore_catalog_requests_total",
    Kind.COUNTER,
    "Requests, by the path's template; one that no path fits has the path `<none>`.",
    ("method", "path", "status"),
)
SECONDS = Metric(
    "tablestore_catalog_request_duration_seconds",
    Kind.HISTOGRAM,
    "From a request to the end of its answer.",
    ("method", "path"),
    LATENCY_S,
)
REQUEST_METRICS = (REQUESTS, SECONDS)

_NO_PATH = "<none>"
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})


class MeasuredRequests:
    """Counts requests and takes their time.

    Args:
        app: What answers them.
        meter: Takes the values.
    """

    def __init__(self, app: ASGIApp, meter: Meter) -> None:
        self._app = app
        self._meter = meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; others' kinds of connections pass."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), "500"

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            method = scope["method"] if scope["method"] in _METHODS else "<other>"
            path = getattr(scope.get("route"), "path", _NO_PATH)
            self._meter.add(REQUESTS, (method, path, status))
            self._meter.observe(SECONDS, (method, path), time.perf_counter() - began)
