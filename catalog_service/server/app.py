"""The FastAPI application: it has the routes, and answers every error with a problem document."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response
from fastapi.routing import APIRoute
from prometheus_client.exposition import choose_encoder
from starlette.exceptions import HTTPException

from catalog_service.server.bodies import BoundedBodies
from catalog_service.server.guard import GuardedRequests
from catalog_service.server.head_requests import HeadRequests, allowed_methods
from catalog_service.server.lanes import Lanes
from catalog_service.server.metrics import METRICS_PATH, MeasuredRequests
from catalog_service.server.refusals import problem_response, refusal
from catalog_service.server.routes import PREFIX, open_router, router
from catalog_service.server.stopping import RunningRequests, StoppableRequests
from catalog_service.server.view_routes import view_router
from catalog_service.use_cases.service import CatalogService
from catalog_service.wire.problems import INTERNAL_ERROR, Problem, invalid_body, problem_of
from filestore.errors import InvalidRequest, NotFound, TableStoreError
from filestore.metrics.registry import Metrics

__all__ = ["create_app"]

logger = logging.getLogger(__name__)

_OPENAPI_PATH = "/openapi.json"
_SCHEME = "bearer"


def create_app(service: CatalogService, token: str | None = None) -> FastAPI:
    """Makes the application of a service, and closes the service when the application ends.

    Args:
        service: The use cases.
        token: The token that requests must send; None: they need none.
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
        openapi_url=_OPENAPI_PATH,
        # FastAPI's pages load scripts from other hosts: a closed network does not reach them, and nobody checks them.
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    app.state.lanes = Lanes()
    app.state.running = RunningRequests()
    app.state.guarded = token is not None
    metrics = Metrics()
    app.add_route(METRICS_PATH, _scrapes(metrics))
    routers = (open_router, router, view_router)
    for included in routers:
        app.include_router(included)
    routes = [route for included in routers for route in included.routes if isinstance(route, APIRoute)]
    app.state.routes = (*app.routes, *routes)
    app.state.endpoints = sorted(f"{method} {route.path}" for route in routes for method in route.methods or ())
    # Starlette runs the middleware that is added last first.
    app.add_middleware(HeadRequests)
    app.add_middleware(BoundedBodies)
    app.add_middleware(GuardedRequests, token=token, open_paths=_open_paths())
    app.add_middleware(StoppableRequests, running=app.state.running)
    app.add_middleware(MeasuredRequests, meter=metrics)
    app.add_exception_handler(TableStoreError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_bug)
    return app


class _App(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """Returns FastAPI's description of the API, with our problem documents instead of its 422."""
        if self.openapi_schema is None:
            document = get_openapi(
                title=self.title, version=self.version, description=self.description, routes=self.routes
            )
            guarded: list[dict[str, list[str]]] = [{_SCHEME: []}] if self.state.guarded else []
            open_paths = _open_paths()
            for path, operations in document["paths"].items():
                for operation in operations.values():
                    operation["responses"].pop("422", None)
                    operation["security"] = [] if path in open_paths else guarded
            document["components"]["securitySchemes"] = {
                _SCHEME: {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token that `tablestore serve --token` got.",
                }
            }
            schemas = document["components"]["schemas"]
            schemas.pop("HTTPValidationError", None)
            schemas.pop("ValidationError", None)
            problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(problem.pop("$defs"))
            schemas["Problem"] = problem
            self.openapi_schema = document
        return self.openapi_schema


def _open_paths() -> set[str]:
    """The paths that need no token: they name no tables, and probes have no secrets."""
    health = {route.path for route in open_router.routes if isinstance(route, APIRoute)}
    return {*health, METRICS_PATH, _OPENAPI_PATH}


def _scrapes(metrics: Metrics) -> Callable[[Request], Awaitable[Response]]:
    async def scraped(request: Request) -> Response:
        """Returns the metrics in the format that the client prefers."""
        encoder, media_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encoder(metrics.registry), media_type=media_type)

    return scraped


# The handlers are coroutines because Starlette calls functions in a thread pool that the service does not use.
async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, TableStoreError)
    response = refusal(error, request.url.path)
    if response.status_code >= 500:
        logger.warning("%s %s: %s (%s)", request.method, request.url.path, error.message, error.code)
    return response


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    invalid, violations = invalid_body(error.errors())
    problem = problem_of(invalid, request.url.path)
    return problem_response(problem.model_copy(update={"errors": violations}))


async def _on_http(request: Request, error: Exception) -> Response:
    """Answers requests that Starlette itself refuses: an unknown path, or a method that the path does not support."""
    assert isinstance(error, HTTPException)
    method, path = request.method, request.url.path
    if error.status_code == 404:
        problem = problem_of(
            NotFound(f"there is no path {path}: see {PREFIX}/config or /openapi.json", code="no-such-path"),
            path,
        )
    elif error.status_code == 405:
        allowed = allowed_methods(request.app.state.routes, request.scope)
        problem = problem_of(
            InvalidRequest(f"{path} does not support {method}: use {' or '.join(allowed)}", code="method-not-allowed"),
            path,
            405,
        )
        return problem_response(problem, {"Allow": ", ".join(allowed)})
    else:
        problem = problem_of(InvalidRequest(str(error.detail)), path, error.status_code)
    return problem_response(problem, error.headers)


async def _on_bug(request: Request, _: Exception) -> Response:
    """Answers with status 500. Starlette raises the error again afterwards, so the server's log has the traceback."""
    error = TableStoreError(
        "the service failed unexpectedly; its log has the reason, please report it", code=INTERNAL_ERROR
    )
    return refusal(error, request.url.path)
