"""Checks the service's token: every path requires it, except those that are listed as open."""

from __future__ import annotations

from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from catalog_service.server.connections import CONNECTION
from catalog_service.server.refusals import send_refusal
from catalog_service.server.security import check_header
from filestore.errors import InvalidRequest

__all__ = ["GuardedRequests"]


class GuardedRequests:
    """Checks the token before it reads anything else, so that a path that nobody listed is closed.

    Args:
        app: The application that answers requests.
        token: The token that requests must send; None: they need none.
        open_paths: The paths that need no token.
    """

    def __init__(self, app: ASGIApp, token: str | None, open_paths: Collection[str]) -> None:
        self._app = app
        self._token = token
        self._open = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] == "http":
            try:
                self._check(scope)
            except InvalidRequest as error:
                await send_refusal(error, scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        if self._token is not None:
            if scope["path"] in self._open:
                return
            check_header(scope["headers"], self._token)
        connection = scope.get("extensions", {}).get(CONNECTION, {}).get(CONNECTION)
        if connection is not None:
            connection.trust()
