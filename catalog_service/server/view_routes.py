"""The paths of ``/api/v1`` for views, and for the names of tables and views."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from catalog_service.server.answering import answer, answer_created, answer_empty, lane_of_change, lanes_of, service_of
from catalog_service.server.documented_errors import problems, problems_of_bodies
from catalog_service.server.routes import PREFIX, Database, IfExists, IfNotExists, PageSize, PageToken, Table
from catalog_service.wire.page_tokens import PAGE_SIZE
from catalog_service.wire.tables import TableInfo
from catalog_service.wire.views import CreateView, Rename, ViewInfo, ViewPage

__all__ = ["view_router"]

_VIEWS = "/databases/{database}/views"
View = Annotated[str, Path(description="The name of a view.", examples=["large"])]

view_router = APIRouter(prefix=PREFIX)


@view_router.post(
    "/databases/{database}/tables/{table}/rename",
    summary="Rename a table",
    response_model=TableInfo,
    responses=problems_of_bodies(404, 409),
    tags=["tables"],
)
async def rename_table(database: Database, table: Table, body: Rename, request: Request) -> Response:
    """Gives a table another name in its database; a staged table is published by it.

    Its folder and the topic of its log keep their names, so readers and writers that have opened the table go on.
    With `replace` a table that has the new name is dropped in the same moment.

    Codes: `bad-name`, `table-not-found`, `table-exists`.
    """
    service = service_of(request)
    lane = await lane_of_change(request, database, body.name if body.replace else None)
    return await answer(lane, lambda: service.rename_table(database, table, body.name, replace=body.replace))


@view_router.get(_VIEWS, summary="List views", response_model=ViewPage, responses=problems(400, 404), tags=["views"])
async def list_views(
    database: Database, request: Request, page_size: PageSize = PAGE_SIZE, page_token: PageToken = None
) -> Response:
    """Lists a database's views by name."""
    views = service_of(request).views
    return await answer(lanes_of(request).rows, lambda: views.list(database, page_size, page_token))


@view_router.post(
    _VIEWS,
    summary="Create a view",
    status_code=201,
    response_model=ViewInfo,
    responses={200: {"description": "It existed", "model": ViewInfo}, **problems_of_bodies(404, 409)},
    tags=["views"],
)
async def create_view(
    database: Database,
    body: CreateView,
    request: Request,
    if_not_exists: IfNotExists = False,
    or_replace: Annotated[bool, Query(description="If a view has the name: replace it, and answer 200.")] = False,
) -> Response:
    """Creates a view. The service stores its query and does not parse it.

    Codes: `bad-name`, `bad-text`, `empty-query`, `too-long`, `table-exists` (also if a table has the name).
    """
    views = service_of(request).views
    return await answer_created(
        lanes_of(request).changes,
        lambda: views.create(database, body, if_not_exists=if_not_exists, or_replace=or_replace),
        lambda info: f"{PREFIX}/databases/{info.database}/views/{info.name}",
    )


@view_router.get(
    _VIEWS + "/{view}", summary="Get a view", response_model=ViewInfo, responses=problems(400, 404), tags=["views"]
)
async def get_view(database: Database, view: View, request: Request) -> Response:
    """Returns a view. Codes: `bad-name`, `database-not-found`, `view-not-found`."""
    views = service_of(request).views
    return await answer(lanes_of(request).rows, lambda: views.get(database, view))


@view_router.post(
    _VIEWS + "/{view}/rename",
    summary="Rename a view",
    response_model=ViewInfo,
    responses=problems_of_bodies(404, 409),
    tags=["views"],
)
async def rename_view(database: Database, view: View, body: Rename, request: Request) -> Response:
    """Gives a view another name in its database. Codes: `bad-name`, `view-not-found`, `table-exists`."""
    views = service_of(request).views
    lane = await lane_of_change(request, database, body.name if body.replace else None)
    return await answer(lane, lambda: views.rename(database, view, body.name, replaces=body.replace))


@view_router.delete(
    _VIEWS + "/{view}",
    summary="Drop a view",
    status_code=204,
    response_model=None,
    responses=problems(400, 404),
    tags=["views"],
)
async def drop_view(database: Database, view: View, request: Request, if_exists: IfExists = False) -> Response:
    """Drops a view. What it reads stays. Codes: `bad-name`, `database-not-found`, `view-not-found`."""
    views = service_of(request).views
    return await answer_empty(lanes_of(request).changes, lambda: views.drop(database, view, if_exists=if_exists))
