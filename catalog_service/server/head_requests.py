"""Answers HEAD as GET without the body, and says which methods a path supports."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HeadRequests", "allowed_methods"]


class HeadRequests:
    """Handles a HEAD request as a GET request. FastAPI's routes have no HEAD of their own.

    Args:
        app: The application that answers requests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        asked = {**scope, "method": "GET"}  # a copy: the server sends no body, and its length, as HEAD asks for
        try:
            await self._app(asked, receive, without_body)
        finally:
            if "route" in asked:
                scope["route"] = asked["route"]  # for metrics


def allowed_methods(routes: Iterable[BaseRoute], scope: Scope) -> list[str]:
    """Returns the methods of all routes of a path. Starlette names those of the first one only."""
    found: set[str] = set()
    for route in routes:
        if route.matches(scope)[0] is not Match.NONE:
            found |= set(getattr(route, "methods", None) or ())
    return sorted(found | ({"HEAD"} if "GET" in found else set()))
