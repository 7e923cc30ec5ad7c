"""The paths of ``/api/v1``: HTTP in, use case, HTTP out. No decision is taken here."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.routing import APIRoute

from catalog_service.lease_wire import LeaseInfo, LeaseRequest
from catalog_service.pages import PAGE_SIZE, PAGE_SIZE_MAX
from catalog_service.problems import MEDIA_TYPE
from catalog_service.security import check_token
from catalog_service.service import CatalogService
from catalog_service.wire import (
    AlterTable,
    CatalogConfig,
    CreateDatabase,
    CreateTable,
    DatabaseInfo,
    DatabasePage,
    Health,
    SnapshotInfo,
    SnapshotPage,
    TableInfo,
    TablePage,
)

__all__ = ["PREFIX", "open_router", "router"]

PREFIX = "/api/v1"


def _service(request: Request) -> CatalogService:
    service: CatalogService = request.app.state.service
    return service


Service = Annotated[CatalogService, Depends(_service)]
Database = Annotated[str, Path(description="Name of a database.", examples=["shop"])]
Table = Annotated[str, Path(description="Name of a table.", examples=["orders"])]
PageSize = Annotated[
    int, Query(ge=1, le=PAGE_SIZE_MAX, description="Entries of a page, at most.", examples=[PAGE_SIZE])
]
PageToken = Annotated[
    str | None, Query(description="`next_page_token` of the page before; leave it out for the first.")
]
IfNotExists = Annotated[bool, Query(description="With a name that is taken: 200 and what is there, instead of 409.")]
IfExists = Annotated[bool, Query(description="With a name that is not there: 204, instead of 404.")]

_EXAMPLES: dict[int, tuple[str, str, str, str]] = {
    400: ("invalid-request", "The request is wrong", "bad-name", "database name 'my shop' is not allowed: …"),
    401: ("invalid-request", "The request is wrong", "token-missing", "this service wants a token: …"),
    403: ("invalid-request", "The request is wrong", "token-wrong", "the token is not this service's: …"),
    404: ("not-found", "Not found", "table-not-found", "there is no table 'orders' in database 'shop': …"),
    409: ("already-exists", "Already exists", "table-exists", "table 'orders' exists already: …"),
    500: (
        "corrupt",
        "Stored data is damaged",
        "table-files-missing",
        "the catalog has table shop.orders, and …",
    ),
    501: ("unsupported", "Not supported", "kafka-transaction-timeout", "the broker's limit would abort …"),
    503: ("unavailable", "Unavailable", "catalog-locked", "the catalog is locked by another process: …"),
}


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The documented errors of a route: its own, and those of every route."""
    return {status: _problem(status) for status in sorted({*statuses, 401, 403, 500, 503})}


def _problem(status: int) -> dict[str, Any]:
    kind, title, code, detail = _EXAMPLES[status]
    example = {
        "type": f"urn:tablestore:problem:{kind}",
        "title": title,
        "status": status,
        "detail": detail,
        "instance": f"{PREFIX}/databases/shop",
        "code": code,
    }
    content = {"schema": {"$ref": "#/components/schemas/Problem"}, "example": example}
    return {"description": title, "content": {MEDIA_TYPE: content}}


open_router = APIRouter(prefix=PREFIX)
router = APIRouter(prefix=PREFIX, dependencies=[Depends(check_token)])


@open_router.get("/health", summary="Is the service well?", responses={503: _problem(503)}, tags=["service"])
def get_health(service: Service) -> Health:
    """Asks the catalog's database. Needs no token."""
    service.check_health()
    return Health()


@router.get("/config", summary="What the service is", responses=_problems(), tags=["service"])
def get_config(service: Service, request: Request) -> CatalogConfig:
    """The warehouse, limits, and which endpoints this version has."""
    routes = [*open_router.routes, *router.routes]
    endpoints = [f"{method} {r.path}" for r in routes if isinstance(r, APIRoute) for method in sorted(r.methods or ())]
    return CatalogConfig(
        version=service.version,
        warehouse=service.warehouse,
        page_size=PAGE_SIZE,
        page_size_max=PAGE_SIZE_MAX,
        endpoints=sorted(endpoints),
    )


# ---------------------------------------------------------------------------------------------- databases


@router.get("/databases", summary="List databases", responses=_problems(400), tags=["databases"])
def list_databases(service: Service, page_size: PageSize = PAGE_SIZE, page_token: PageToken = None) -> DatabasePage:
    """By name."""
    return service.list_databases(page_size, page_token)


@router.post(
    "/databases",
    summary="Create a database",
    status_code=201,
    responses={200: {"description": "It was there", "model": DatabaseInfo}, **_problems(400, 409)},
    tags=["databases"],
)
def create_database(
    body: CreateDatabase, service: Service, response: Response, if_not_exists: IfNotExists = False
) -> DatabaseInfo:
    """Codes: `bad-text`, `bad-name`, `database-exists`."""
    info, created = service.create_database(body, if_not_exists=if_not_exists)
    _located(response, created, f"{PREFIX}/databases/{info.name}")
    return info


@router.get("/databases/{database}", summary="Get a database", responses=_problems(400, 404), tags=["databases"])
def get_database(database: Database, service: Service) -> DatabaseInfo:
    """Codes: `bad-name`, `database-not-found`."""
    return service.get_database(database)


@router.delete(
    "/databases/{database}",
    summary="Drop a database",
    status_code=204,
    responses=_problems(400, 404, 409),
    tags=["databases"],
)
def drop_database(
    database: Database,
    service: Service,
    if_exists: IfExists = False,
    cascade: Annotated[bool, Query(description="Drop its tables, their files and logs, too.")] = False,
) -> None:
    """Codes: `database-not-found`, `database-not-empty` (it has tables and `cascade` is false)."""
    service.drop_database(database, if_exists=if_exists, cascade=cascade)


# ---------------------------------------------------------------------------------------------- tables

_TABLES = "/databases/{database}/tables"


@router.get(_TABLES, summary="List tables", responses=_problems(400, 404), tags=["tables"])
def list_tables(
    database: Database, service: Service, page_size: PageSize = PAGE_SIZE, page_token: PageToken = None
) -> TablePage:
    """By name."""
    return service.list_tables(database, page_size, page_token)


@router.post(
    _TABLES,
    summary="Create a table",
    status_code=201,
    responses={
        200: {"description": "It was there; it may differ from what was asked for", "model": TableInfo},
        **_problems(400, 404, 409, 501),
    },
    tags=["tables"],
)
def create_table(
    database: Database,
    body: CreateTable,
    service: Service,
    response: Response,
    if_not_exists: IfNotExists = False,
) -> TableInfo:
    """Writes version 0 of its Delta log and makes its change log. On an error nothing is left.

    With the option `connector` it is a Kafka topic: the broker and the topic are looked at, and nothing is written.

    A primary-key column is NOT NULL unless it says otherwise, which is refused.

    Codes: `bad-text`, `bad-name`, `bad-column-name`, `bad-column-list`, `duplicate-column`, `empty-schema`,
    `unsupported-type`, `unknown-column`, `nullable-key`, `key-type`, `key-lacks-partition`, `partition-type`,
    `unknown-option`, `bad-option-value`, `bucket-key`, `sequence-field`, `log-servers`, `table-exists`,
    `location-not-empty`, `log-exists`; with a connector `missing-option`, `connector-key`, `connector-format`,
    `connector-properties`, `startup-mode`, `malformed-policy`, `topic-not-found`, `topic-partitions`.
    """
    info, created = service.create_table(database, body, if_not_exists=if_not_exists)
    _located(response, created, f"{PREFIX}/databases/{info.database}/tables/{info.name}")
    return info


@router.get(_TABLES + "/{table}", summary="Get a table", responses=_problems(400, 404), tags=["tables"])
def get_table(
    database: Database,
    table: Table,
    service: Service,
    snapshot: Annotated[
        bool, Query(description="Whether to read the newest version from storage for `current_snapshot`.")
    ] = True,
) -> TableInfo:
    """Codes: `database-not-found`, `table-not-found`, `table-files-missing`."""
    return service.get_table(database, table, with_snapshot=snapshot)


@router.patch(
    _TABLES + "/{table}",
    summary="Change a table",
    responses=_problems(400, 404, 409, 501),
    tags=["tables"],
)
def alter_table(database: Database, table: Table, body: AlterTable, service: Service) -> SnapshotInfo:
    """Changes columns, comments and options as one commit; all of the changes or none.

    The service changes metadata only: with `schema.evolution-mode = rewrite` dropping, renaming and widening are for
    the Python client or the command line, which write the files anew.

    Codes: `bad-change`, `unknown-column`, `column-in-use`, `fixed-option`, `option-not-set`, `not-wider`,
    `nested-change`, `nullable-key`, `not-null-column`, `bad-position`, `rewrite-needed`, `pending-runs`,
    `metadata-changed`, `runs-came`, and those of creating a table.
    """
    return service.alter_table(database, table, body)


@router.delete(
    _TABLES + "/{table}",
    summary="Drop a table",
    status_code=204,
    responses=_problems(400, 404),
    tags=["tables"],
)
def drop_table(database: Database, table: Table, service: Service, if_exists: IfExists = False) -> None:
    """Removes the table, its files and its log. After a 503 readers see it no more; a retry goes on.

    The topic of a table with a connector stays.
    """
    service.drop_table(database, table, if_exists=if_exists)


@router.get(
    _TABLES + "/{table}/snapshots", summary="List snapshots", responses=_problems(400, 404, 501), tags=["tables"]
)
def list_snapshots(
    database: Database,
    table: Table,
    service: Service,
    page_size: PageSize = PAGE_SIZE,
    page_token: PageToken = None,
) -> SnapshotPage:
    """Newest first."""
    return service.list_snapshots(database, table, page_size, page_token)


# ---------------------------------------------------------------------------------------------- leases

_LEASE = _TABLES + "/{table}/lease"


@router.post(_LEASE, summary="Take a table's lease", responses=_problems(400, 404, 409), tags=["leases"])
def acquire_lease(database: Database, table: Table, body: LeaseRequest, service: Service) -> LeaseInfo:
    """For who keeps the table, such as a compactor, so that no two do the same work. Codes: `lease-held`."""
    return service.acquire_lease(database, table, body)


@router.put(_LEASE, summary="Renew a table's lease", responses=_problems(400, 404, 409), tags=["leases"])
def renew_lease(database: Database, table: Table, body: LeaseRequest, service: Service) -> LeaseInfo:
    """Codes: `lease-lost` (it ran out and another took it, or it was released)."""
    return service.renew_lease(database, table, body)


@router.delete(
    _LEASE, summary="Release a table's lease", status_code=204, responses=_problems(400, 404), tags=["leases"]
)
def release_lease(
    database: Database,
    table: Table,
    service: Service,
    owner: Annotated[str, Query(description="Who took it; another's stays.", examples=["host-1/4711/0b0f6b52"])],
) -> None:
    """Ends it before it runs out."""
    service.release_lease(database, table, owner)


def _located(response: Response, created: bool, path: str) -> None:
    if created:
        response.headers["Location"] = path
    else:
        response.status_code = 200
