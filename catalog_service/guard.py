"""Lets requests in: all paths want the service's token, but those that are named here."""

from __future__ import annotations

from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from catalog_service.refusals import send_refusal
from catalog_service.security import TokenMissing, TokenWrong, check_header

__all__ = ["GuardedRequests"]


class GuardedRequests:
    """Checks the token before anything of a request is read, so that a path that is forgotten is closed.

    Args:
        app: What answers requests.
        token: What they must bring; None: nothing.
        open_paths: What needs no token.
    """

    def __init__(self, app: ASGIApp, token: str | None, open_paths: Collection[str]) -> None:
        self._app = app
        self._token = token
        self._open = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http" and self._token is not None and scope["path"] not in self._open:
            try:
                check_header(scope["headers"], self._token)
            except (TokenMissing, TokenWrong) as error:
                await send_refusal(error, scope, receive, send)
                return
        await self._app(scope, receive, send)
