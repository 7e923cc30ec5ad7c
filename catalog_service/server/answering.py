"""Runs the work of a request in a lane, and turns its result into an HTTP answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import Request, Response
from pydantic import BaseModel

from catalog_service.server.lanes import Lane, Lanes
from catalog_service.use_cases.service import CatalogService

__all__ = ["answer", "answer_created", "answer_empty", "json_response", "lane_of_change", "lanes_of", "service_of"]


def service_of(request: Request) -> CatalogService:
    """Returns the use cases of the application that got the request."""
    service: CatalogService = request.app.state.service
    return service


def lanes_of(request: Request) -> Lanes:
    """Returns the lanes of the application that got the request."""
    lanes: Lanes = request.app.state.lanes
    return lanes


async def answer(lane: Lane, work: Callable[[], BaseModel]) -> Response:
    """Does the work in a lane. The result becomes JSON there, too: for a long list this takes milliseconds."""
    return json_response(await lane.run(lambda: work().model_dump_json(by_alias=True)))


async def answer_created(
    lane: Lane, work: Callable[[], tuple[BaseModel, bool]], path: Callable[[Any], str]
) -> Response:
    """Does work that creates something: answers 201 with its location, or 200 if it existed before."""
    info, is_new = await lane.run(work)
    content = info.model_dump_json(by_alias=True)
    return json_response(content, 201, {"Location": path(info)}) if is_new else json_response(content)


async def answer_empty(lane: Lane, work: Callable[[], None]) -> Response:
    """Does work that has no result: answers 204."""
    await lane.run(work)
    return Response(status_code=204)


def json_response(content: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Answers with a text that is JSON already."""
    return Response(content, status, headers, media_type="application/json")


async def lane_of_change(request: Request, database: str, table: str | None = None) -> Lane:
    """The lane of a change: one that may have to wait for a broker gets a lane of its own."""
    service, lanes = service_of(request), lanes_of(request)
    asks = await lanes.rows.run(lambda: service.asks_brokers(database, table))
    return lanes.brokers if asks else lanes.changes
