"""Stops cleanly: running requests get some seconds, and then an answer that says what happened."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from catalog_service.server.refusals import send_refusal
from filestore.errors import Unavailable

__all__ = ["RunningRequests", "StoppableRequests"]


class RunningRequests:
    """The requests that are running."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[Any]] = set()
        self.stopped = False

    def stop(self) -> None:
        """Ends them with a 503. REQUIRES: the caller is in the event loop."""
        self.stopped = True
        for task in list(self.tasks):
            task.cancel()


class StoppableRequests:
    """Registers requests while they run, and answers those that are ended.

    Args:
        app: The application that answers them.
        running: Where they are registered.
    """

    def __init__(self, app: ASGIApp, running: RunningRequests) -> None:
        self._app = app
        self._running = running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        task = asyncio.current_task()
        if scope["type"] != "http" or task is None:
            await self._app(scope, receive, send)
            return
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        self._running.tasks.add(task)
        try:
            await self._app(scope, receive, noting)
        except asyncio.CancelledError:
            if not self._running.stopped:
                raise
            task.uncancel()
            if not begun:
                await send_refusal(_stopping(scope["method"]), scope, receive, send)
        finally:
            self._running.tasks.discard(task)


def _stopping(method: str) -> Unavailable:
    if method == "GET":
        return Unavailable("the service is stopping: retry when it is back", code="service-stopping")
    return Unavailable(
        "the service is stopping and did not wait for the end of this request, which may have been done or not: check, "
        "or retry with if_not_exists / if_exists",
        code="service-stopping",
    )
