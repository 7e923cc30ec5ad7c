"""The FastAPI application: routes, and every error as a problem document."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, Response
from prometheus_client.exposition import choose_encoder
from starlette.exceptions import HTTPException

from catalog_service.problems import INTERNAL_ERROR, MEDIA_TYPE, invalid_body, problem_of
from catalog_service.request_metrics import METRICS_PATH, MeasuredRequests
from catalog_service.routes import PREFIX, open_router, router
from catalog_service.security import TokenMissing, TokenWrong
from catalog_service.service import CatalogService
from catalog_service.wire import Problem
from filestore.errors import InvalidRequest, NotFound, TableStoreError
from filestore.metrics.registry import Metrics

__all__ = ["create_app"]

logger = logging.getLogger(__name__)

_STATUS_OF: dict[type[TableStoreError], int] = {TokenMissing: 401, TokenWrong: 403}


def create_app(service: CatalogService, token: str | None = None) -> FastAPI:
    """An application around a service, which it closes at its end.

    Args:
        service: The use cases.
        token: What requests must bring; None: nothing.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = _App(
        title="Tablestore catalog",
        version=service.version,
        description="Databases and tables of a Tablestore warehouse. Errors are RFC 9457 problem documents.",
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.service = service
    app.state.token = token
    metrics = Metrics()
    app.add_middleware(MeasuredRequests, meter=metrics)
    app.add_route(METRICS_PATH, _scrapes(metrics))
    app.include_router(open_router)
    app.include_router(router)
    app.add_exception_handler(TableStoreError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_bug)
    return app


class _App(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """FastAPI's description, with our problem documents in the place of its 422."""
        if self.openapi_schema is None:
            document = get_openapi(
                title=self.title, version=self.version, description=self.description, routes=self.routes
            )
            for path in document["paths"].values():
                for operation in path.values():
                    operation["responses"].pop("422", None)
            schemas = document["components"]["schemas"]
            schemas.pop("HTTPValidationError", None)
            schemas.pop("ValidationError", None)
            problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(problem.pop("$defs"))
            schemas["Problem"] = problem
            self.openapi_schema = document
        return self.openapi_schema


def _scrapes(metrics: Metrics) -> Callable[[Request], Response]:
    def scraped(request: Request) -> Response:
        """In the format that who asks understands best."""
        encoder, media_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encoder(metrics.registry), media_type=media_type)

    return scraped


def _answer(problem: Problem, headers: dict[str, str] | None = None) -> JSONResponse:
    content = problem.model_dump(mode="json", exclude_none=True)
    return JSONResponse(content, problem.status, headers=headers, media_type=MEDIA_TYPE)


def _on_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, TableStoreError)
    problem = problem_of(error, request.url.path, _STATUS_OF.get(type(error)))
    if problem.status >= 500:
        logger.warning("%s %s: %s (%s)", request.method, request.url.path, error.message, error.code)
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else None
    return _answer(problem, headers)


def _on_invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    invalid, violations = invalid_body(error.errors())
    problem = problem_of(invalid, request.url.path)
    return _answer(problem.model_copy(update={"errors": violations}))


def _on_http(request: Request, error: Exception) -> JSONResponse:
    """What Starlette itself refuses: an unknown path, a method that the path has not."""
    assert isinstance(error, HTTPException)
    method, path = request.method, request.url.path
    if error.status_code == 404:
        problem = problem_of(
            NotFound(f"there is no path {path}: see {PREFIX}/config or /openapi.json", code="no-such-path"),
            path,
        )
    elif error.status_code == 405:
        problem = problem_of(InvalidRequest(f"{path} has no {method}", code="method-not-allowed"), path, 405)
    else:
        problem = problem_of(InvalidRequest(str(error.detail)), path, error.status_code)
    return _answer(problem, dict(error.headers or {}))


def _on_bug(request: Request, _: Exception) -> JSONResponse:
    """Starlette raises it again after the answer, so that the server's log has the traceback."""
    error = TableStoreError(
        "the service failed unexpectedly; its log has the reason, please report it", code=INTERNAL_ERROR
    )
    return _answer(problem_of(error, request.url.path))
