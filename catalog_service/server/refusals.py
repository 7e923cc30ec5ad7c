"""Converts errors to HTTP answers, for the application and the middleware around it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from catalog_service.server.security import TokenMissing, TokenWrong
from catalog_service.wire.problems import MEDIA_TYPE, Problem, problem_of
from filestore.errors import InvalidRequest, TableStoreError, Unavailable

__all__ = ["BodyTooLarge", "BodyTooSlow", "Busy", "problem_response", "refusal", "send_refusal"]


class BodyTooLarge(InvalidRequest):
    """The body is too large (413)."""

    default_code = "body-too-large"


class BodyTooSlow(InvalidRequest):
    """The rest of the body did not arrive in time (408)."""

    default_code = "body-too-slow"


class Busy(Unavailable):
    """The service has too many requests of one kind (503); a retry after a moment may succeed."""

    default_code = "service-busy"


_STATUS_OF: Mapping[type[TableStoreError], int] = {
    TokenMissing: 401,
    TokenWrong: 401,
    BodyTooSlow: 408,
    BodyTooLarge: 413,
}
_HEADERS_OF: Mapping[type[TableStoreError], dict[str, str]] = {
    TokenMissing: {"WWW-Authenticate": 'Bearer realm="tablestore"'},
    TokenWrong: {"WWW-Authenticate": 'Bearer realm="tablestore", error="invalid_token"'},
    # The rest of the body is not read, so the connection cannot be used again.
    BodyTooSlow: {"Connection": "close"},
    BodyTooLarge: {"Connection": "close"},
    Busy: {"Retry-After": "1"},
}


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """Answers with a problem document."""
    content: Any = problem.model_dump_json(exclude_none=True)
    return Response(content, problem.status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def refusal(error: TableStoreError, path: str) -> Response:
    """Answers with an error: with the status and the headers of its class."""
    kind = type(error)
    return problem_response(problem_of(error, path, _STATUS_OF.get(kind)), _HEADERS_OF.get(kind))


async def send_refusal(error: TableStoreError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answers a request with an error, from a middleware."""
    await refusal(error, scope["path"])(scope, receive, send)
