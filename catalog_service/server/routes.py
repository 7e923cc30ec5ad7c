"""The paths of ``/api/v1``: each turns a request into a call of a use case, and its result into an answer."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from catalog_service.server.answering import (
    answer,
    answer_created,
    answer_empty,
    json_response,
    lane_of_change,
    lanes_of,
    service_of,
)
from catalog_service.server.documented_errors import problem, problems, problems_of_bodies
from catalog_service.wire.claims import ClaimRequest, NewestClaim, PublishRequest
from catalog_service.wire.databases import CreateDatabase, DatabaseInfo, DatabasePage, TablePage
from catalog_service.wire.leases import LeaseInfo, LeaseRequest
from catalog_service.wire.page_tokens import PAGE_SIZE, PAGE_SIZE_MAX
from catalog_service.wire.service import CatalogConfig, Health
from catalog_service.wire.tables import AlterTable, CreateTable, SnapshotInfo, SnapshotPage, TableInfo

__all__ = ["PREFIX", "Database", "IfExists", "IfNotExists", "PageSize", "PageToken", "Table", "open_router", "router"]

PREFIX = "/api/v1"


Database = Annotated[str, Path(description="The name of a database.", examples=["shop"])]
Table = Annotated[str, Path(description="The name of a table.", examples=["orders"])]
PageSize = Annotated[
    int, Query(ge=1, le=PAGE_SIZE_MAX, description="The largest number of entries of a page.", examples=[PAGE_SIZE])
]
PageToken = Annotated[
    str | None, Query(description="`next_page_token` of the page before; leave it out for the first page.")
]
IfNotExists = Annotated[bool, Query(description="If the name is taken: answer 200 with what exists, instead of 409.")]
IfExists = Annotated[bool, Query(description="If the name does not exist: answer 204, instead of 404.")]

open_router = APIRouter(prefix=PREFIX)
router = APIRouter(prefix=PREFIX)


@open_router.get("/health", summary="Does the service run?", response_model=Health, tags=["service"])
async def get_health() -> Response:
    """Answers at once: use it to decide whether to restart the process. It needs no token."""
    return json_response('{"status":"ok"}')


@open_router.get(
    "/ready",
    summary="Can the service answer?",
    response_model=Health,
    responses={503: problem(503)},
    tags=["service"],
)
async def get_ready(request: Request) -> Response:
    """Reads from the catalog's database: use it to decide whether to send requests here. It needs no token."""
    await lanes_of(request).probes.run(service_of(request).check_ready)
    return json_response('{"status":"ok"}')


@router.get(
    "/config", summary="What the service is", response_model=CatalogConfig, responses=problems(), tags=["service"]
)
async def get_config(request: Request) -> Response:
    """Returns the warehouse, limits, and the endpoints of this version."""
    service = service_of(request)
    config = CatalogConfig(
        version=service.version,
        warehouse=service.warehouse,
        page_size=PAGE_SIZE,
        page_size_max=PAGE_SIZE_MAX,
        endpoints=request.app.state.endpoints,
    )
    return json_response(config.model_dump_json(by_alias=True))


# ---------------------------------------------------------------------------------------------- databases


@router.get(
    "/databases", summary="List databases", response_model=DatabasePage, responses=problems(400), tags=["databases"]
)
async def list_databases(request: Request, page_size: PageSize = PAGE_SIZE, page_token: PageToken = None) -> Response:
    """Lists databases by name."""
    service = service_of(request)
    return await answer(lanes_of(request).rows, lambda: service.list_databases(page_size, page_token))


@router.post(
    "/databases",
    summary="Create a database",
    status_code=201,
    response_model=DatabaseInfo,
    responses={200: {"description": "It existed", "model": DatabaseInfo}, **problems_of_bodies(409)},
    tags=["databases"],
)
async def create_database(body: CreateDatabase, request: Request, if_not_exists: IfNotExists = False) -> Response:
    """Creates a database. Codes: `bad-text`, `bad-name`, `too-long`, `database-exists`."""
    service = service_of(request)
    return await answer_created(
        lanes_of(request).changes,
        lambda: service.create_database(body, if_not_exists=if_not_exists),
        lambda info: f"{PREFIX}/databases/{info.name}",
    )


@router.get(
    "/databases/{database}",
    summary="Get a database",
    response_model=DatabaseInfo,
    responses=problems(400, 404),
    tags=["databases"],
)
async def get_database(database: Database, request: Request) -> Response:
    """Returns a database. Codes: `bad-name`, `database-not-found`."""
    service = service_of(request)
    return await answer(lanes_of(request).rows, lambda: service.get_database(database))


@router.delete(
    "/databases/{database}",
    summary="Drop a database",
    status_code=204,
    response_model=None,
    responses=problems(400, 404, 409),
    tags=["databases"],
)
async def drop_database(
    database: Database,
    request: Request,
    if_exists: IfExists = False,
    cascade: Annotated[bool, Query(description="Whether to drop its tables, with files and logs, too.")] = False,
) -> Response:
    """Drops a database. Codes: `database-not-found`, `database-not-empty` (it has tables and `cascade` is false)."""
    service = service_of(request)
    lane = await lane_of_change(request, database)
    return await answer_empty(lane, lambda: service.drop_database(database, if_exists=if_exists, cascade=cascade))


# ---------------------------------------------------------------------------------------------- tables

_TABLES = "/databases/{database}/tables"


@router.get(_TABLES, summary="List tables", response_model=TablePage, responses=problems(400, 404), tags=["tables"])
async def list_tables(
    database: Database, request: Request, page_size: PageSize = PAGE_SIZE, page_token: PageToken = None
) -> Response:
    """Lists a database's tables by name."""
    service = service_of(request)
    return await answer(lanes_of(request).rows, lambda: service.list_tables(database, page_size, page_token))


@router.post(
    _TABLES,
    summary="Create a table",
    status_code=201,
    response_model=TableInfo,
    responses={
        200: {"description": "It existed; it may differ from the request", "model": TableInfo},
        **problems_of_bodies(404, 409, 501),
    },
    tags=["tables"],
)
async def create_table(
    database: Database,
    body: CreateTable,
    request: Request,
    if_not_exists: IfNotExists = False,
    staged: Annotated[
        bool, Query(description="Whether nobody sees it until a rename publishes it; the answer has its hidden name.")
    ] = False,
) -> Response:
    """Creates a table: writes version 0 of its Delta log and creates its change log. After an error nothing is left.

    With the option `connector` the table is a Kafka topic: the service checks the broker and the topic.

    A primary-key column is NOT NULL; a request that declares it nullable is refused.

    Codes: `bad-text`, `bad-name`, `bad-column-name`, `bad-column-list`, `duplicate-column`, `empty-schema`,
    `unsupported-type`, `unknown-column`, `nullable-key`, `key-type`, `key-lacks-partition`, `partition-type`,
    `unknown-option`, `bad-option-value`, `bucket-key`, `sequence-field`, `log-servers`, `table-exists`,
    `location-not-empty`, `log-exists`, `too-long`, `too-many-columns`, `too-many-options`, `broker-not-allowed`,
    `client-property`; with a connector `missing-option`, `connector-key`, `connector-format`,
    `connector-properties`, `startup-mode`, `malformed-policy`, `topic-not-found`, `topic-partitions`.
    """
    service, lanes = service_of(request), lanes_of(request)
    return await answer_created(
        lanes.brokers if service.names_broker(body) else lanes.changes,
        lambda: service.create_table(database, body, if_not_exists=if_not_exists, staged=staged),
        lambda info: f"{PREFIX}/databases/{info.database}/tables/{info.name}",
    )


@router.get(
    _TABLES + "/{table}", summary="Get a table", response_model=TableInfo, responses=problems(400, 404), tags=["tables"]
)
async def get_table(
    database: Database,
    table: Table,
    request: Request,
    snapshot: Annotated[
        bool, Query(description="Whether to read the newest version from storage for `current_snapshot`.")
    ] = True,
) -> Response:
    """Returns a table. Codes: `database-not-found`, `table-not-found`, `table-files-missing`."""
    service, lanes = service_of(request), lanes_of(request)
    lane = lanes.files if snapshot else lanes.rows
    return await answer(lane, lambda: service.get_table(database, table, with_snapshot=snapshot))


@router.patch(
    _TABLES + "/{table}",
    summary="Change a table",
    response_model=SnapshotInfo,
    responses=problems_of_bodies(404, 409, 501),
    tags=["tables"],
)
async def alter_table(database: Database, table: Table, body: AlterTable, request: Request) -> Response:
    """Changes columns, comments and options in one commit: all of the changes or none.

    The service changes only metadata: with `schema.evolution-mode = rewrite` use the Python client or the command line
    to drop, rename and widen columns: they rewrite the files.

    Codes: `bad-change`, `unknown-column`, `column-in-use`, `fixed-option`, `option-not-set`, `not-wider`,
    `nested-change`, `nullable-key`, `not-null-column`, `bad-position`, `rewrite-needed`, `pending-runs`,
    `metadata-changed`, `pending-run-added`, and those of creating a table.
    """
    service = service_of(request)
    lane = await lane_of_change(request, database, table)
    return await answer(lane, lambda: service.alter_table(database, table, body))


@router.delete(
    _TABLES + "/{table}",
    summary="Drop a table",
    status_code=204,
    response_model=None,
    responses=problems(400, 404),
    tags=["tables"],
)
async def drop_table(database: Database, table: Table, request: Request, if_exists: IfExists = False) -> Response:
    """Drops a table with its files and its log. After a 503 readers do not see it any more; a retry continues.

    The topic of a table with a connector stays.
    """
    service = service_of(request)
    lane = await lane_of_change(request, database, table)
    return await answer_empty(lane, lambda: service.drop_table(database, table, if_exists=if_exists))


@router.get(
    _TABLES + "/{table}/snapshots",
    summary="List snapshots",
    response_model=SnapshotPage,
    responses=problems(400, 404, 501),
    tags=["tables"],
)
async def list_snapshots(
    database: Database,
    table: Table,
    request: Request,
    page_size: PageSize = PAGE_SIZE,
    page_token: PageToken = None,
) -> Response:
    """Lists a table's versions, the newest first."""
    service = service_of(request)
    return await answer(lanes_of(request).files, lambda: service.list_snapshots(database, table, page_size, page_token))


# ---------------------------------------------------------------------------------------------- commits

_COMMITS = _TABLES + "/{table}/commits"


@router.get(
    _COMMITS, summary="Get the newest claim", response_model=NewestClaim, responses=problems(400, 404), tags=["commits"]
)
async def newest_claim(
    database: Database,
    table: Table,
    request: Request,
    table_id: Annotated[str, Query(description="The table that the client has opened.", max_length=36)],
) -> Response:
    """Returns the newest version that a writer has claimed, for warehouses whose commits the catalog holds."""
    service = service_of(request)
    return await answer(lanes_of(request).rows, lambda: service.newest_claim(database, table, table_id))


@router.post(
    _COMMITS,
    summary="Claim a version",
    response_model=NewestClaim,
    responses=problems_of_bodies(404),
    tags=["commits"],
)
async def claim_version(database: Database, table: Table, body: ClaimRequest, request: Request) -> Response:
    """Claims a version if the newest claim is still `after` and published; answers with the newest claim.

    The version is the client's if that claim has its file. A repetition changes nothing. Codes: `bad-claim`.
    """
    service = service_of(request)
    return await answer(lanes_of(request).rows, lambda: service.claim_version(database, table, body))


@router.put(
    _COMMITS,
    summary="Note that a claimed version is published",
    response_model=NewestClaim,
    responses=problems_of_bodies(404),
    tags=["commits"],
)
async def publish_claim(database: Database, table: Table, body: PublishRequest, request: Request) -> Response:
    """Notes that the entry of a claimed version is in the Delta log; answers with the newest claim.

    Codes: `bad-claim`.
    """
    service = service_of(request)
    return await answer(lanes_of(request).rows, lambda: service.publish_claim(database, table, body))


# ---------------------------------------------------------------------------------------------- leases

_LEASE = _TABLES + "/{table}/lease"


@router.post(
    _LEASE,
    summary="Take a table's lease",
    response_model=LeaseInfo,
    responses=problems_of_bodies(404, 409),
    tags=["leases"],
)
async def acquire_lease(database: Database, table: Table, body: LeaseRequest, request: Request) -> Response:
    """Takes the lease of a table for a process that maintains it, such as a compactor, so that no two do the same work.

    Codes: `lease-held`.
    """
    service = service_of(request)
    return await answer(lanes_of(request).rows, lambda: service.acquire_lease(database, table, body))


@router.put(
    _LEASE,
    summary="Renew a table's lease",
    response_model=LeaseInfo,
    responses=problems_of_bodies(404, 409),
    tags=["leases"],
)
async def renew_lease(database: Database, table: Table, body: LeaseRequest, request: Request) -> Response:
    """Extends a lease. Codes: `lease-lost` (it expired and another owner took it, or it was released)."""
    service = service_of(request)
    return await answer(lanes_of(request).rows, lambda: service.renew_lease(database, table, body))


@router.delete(
    _LEASE,
    summary="Release a table's lease",
    status_code=204,
    response_model=None,
    responses=problems(400, 404),
    tags=["leases"],
)
async def release_lease(
    database: Database,
    table: Table,
    request: Request,
    owner: Annotated[
        str, Query(description="The owner; a lease of another one stays.", examples=["host-1/4711/0b0f6b52"])
    ],
) -> Response:
    """Ends a lease before it expires."""
    service = service_of(request)
    return await answer_empty(lanes_of(request).rows, lambda: service.release_lease(database, table, owner))
