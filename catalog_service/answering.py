"""From a request to the lane that does its work, and from what the work gives to an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import Request, Response
from pydantic import BaseModel

from catalog_service.lanes import Lane, Lanes
from catalog_service.service import CatalogService

__all__ = ["answered", "done", "json_response", "lane_of_change", "lanes_of", "made", "service_of"]


def service_of(request: Request) -> CatalogService:
    """The use cases."""
    service: CatalogService = request.app.state.service
    return service


def lanes_of(request: Request) -> Lanes:
    """Where work is done."""
    lanes: Lanes = request.app.state.lanes
    return lanes


async def answered(lane: Lane, work: Callable[[], BaseModel]) -> Response:
    """Does the work in a lane. Its answer becomes text there, too: that of a long list takes milliseconds."""
    return json_response(await lane.run(lambda: work().model_dump_json(by_alias=True)))


async def made(lane: Lane, work: Callable[[], tuple[BaseModel, bool]], path: Callable[[Any], str]) -> Response:
    """The same of what may have been there before: 201 with its place if it was made now."""
    info, is_new = await lane.run(work)
    content = info.model_dump_json(by_alias=True)
    return json_response(content, 201, {"Location": path(info)}) if is_new else json_response(content)


async def done(lane: Lane, work: Callable[[], None]) -> Response:
    """The same of work that has no answer."""
    await lane.run(work)
    return Response(status_code=204)


def json_response(content: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON as it is."""
    return Response(content, status, headers, media_type="application/json")


async def lane_of_change(request: Request, database: str, table: str | None = None) -> Lane:
    """The lane of a change: of what may wait for a broker another one."""
    service, lanes = service_of(request), lanes_of(request)
    asks = await lanes.rows.run(lambda: service.asks_brokers(database, table))
    return lanes.brokers if asks else lanes.changes
