"""The catalog over HTTP: a client of the catalog service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from catalog_service.client.connecting import checked_url, connection_error, http_client, is_tls_error
from catalog_service.model.names import fold_name, fold_table
from catalog_service.wire.claims import ClaimRequest, NewestClaim, PublishRequest
from catalog_service.wire.databases import CreateDatabase, DatabasePage, TablePage
from catalog_service.wire.leases import LeaseInfo, LeaseRequest
from catalog_service.wire.page_tokens import PAGE_SIZE_MAX, every_page
from catalog_service.wire.problems import MEDIA_TYPE, Problem, error_of
from catalog_service.wire.views import CreateView, Rename, ViewInfo, ViewPage
from filestore.ambient import Ambient, system_ambient
from filestore.arguments import checks_arguments
from filestore.contexts import Closing
from filestore.errors import Unavailable, Unsupported

if TYPE_CHECKING:
    from catalog_service.wire.registrations import Registration
    from catalog_service.wire.tables import AlterTable, CreateTable, SnapshotInfo, TableInfo

__all__ = ["HttpCatalog"]

Answer = TypeVar("Answer", bound=BaseModel)

_GET_ATTEMPTS = 3


@checks_arguments()
class HttpCatalog(Closing):
    """Implements `catalog_service.client.Catalog`. Threads may share it.

    Only reads are retried when no answer arrives: a repeated ``create_table`` could find the table that its first
    attempt created.

    Args:
        url: The URL of the service, such as ``http://127.0.0.1:8080``.
        token: The token of the service, if it requires one.
        ambient: It makes the pauses between attempts.

    Raises:
        InvalidRequest: ``bad-url``, ``bad-token``, ``ca-file``.
    """

    def __init__(self, url: str, token: str | None = None, ambient: Ambient | None = None) -> None:
        self.url = checked_url(url)
        self._ambient = ambient or system_ambient()
        self._http = http_client(self.url, f"{self.url}/api/v1", token)

    def create_database(self, name: str, *, if_not_exists: bool = False, comment: str | None = None) -> None:
        """Creates a database."""
        body = CreateDatabase(name=name, comment=comment)
        self._change("POST", "/databases", {"if_not_exists": if_not_exists}, body)

    def drop_database(self, name: str, *, if_exists: bool = False, cascade: bool = False) -> None:
        """Drops a database."""
        self._change("DELETE", _database(name), {"if_exists": if_exists, "cascade": cascade})

    def list_databases(self) -> list[str]:
        """Returns the names of all databases in order; reads all pages."""
        pages = every_page(lambda token: self._get(DatabasePage, "/databases", _page(token)))
        return [database.name for page in pages for database in page.databases]

    def create_table(
        self, database: str, table: CreateTable, *, if_not_exists: bool = False, staged: bool = False
    ) -> TableInfo:
        """Creates a table."""
        from catalog_service.wire.tables import TableInfo  # loads Arrow, which lists do not need

        path = f"{_database(database)}/tables"
        response = self._change("POST", path, {"if_not_exists": if_not_exists, "staged": staged}, table)
        return self._parsed(TableInfo, response)

    def get_table(self, database: str, name: str, *, with_snapshot: bool = False) -> TableInfo:
        """Returns a table in full."""
        from catalog_service.wire.tables import TableInfo  # loads Arrow, which lists do not need

        return self._get(TableInfo, _table(database, name), {"snapshot": with_snapshot})

    def alter_table(self, database: str, name: str, changes: AlterTable) -> SnapshotInfo:
        """Changes a table's columns, comments and options."""
        from catalog_service.wire.tables import SnapshotInfo  # loads Arrow, which lists do not need

        return self._parsed(SnapshotInfo, self._change("PATCH", _table(database, name), {}, changes))

    def list_tables(self, database: str) -> list[str]:
        """Returns the names of a database's tables in order; reads all pages."""
        pages = every_page(lambda token: self._get(TablePage, f"{_database(database)}/tables", _page(token)))
        return [table.name for page in pages for table in page.tables]

    def rename_table(self, database: str, name: str, new_name: str, *, replace: bool = False) -> TableInfo:
        """Gives a table another name."""
        from catalog_service.wire.tables import TableInfo  # loads Arrow, which lists do not need

        body = Rename(name=new_name, replace=replace)
        return self._parsed(TableInfo, self._change("POST", f"{_table(database, name)}/rename", {}, body))

    def create_view(
        self, database: str, view: CreateView, *, if_not_exists: bool = False, or_replace: bool = False
    ) -> ViewInfo:
        """Creates a view."""
        query = {"if_not_exists": if_not_exists, "or_replace": or_replace}
        return self._parsed(ViewInfo, self._change("POST", f"{_database(database)}/views", query, view))

    def get_view(self, database: str, name: str) -> ViewInfo:
        """Returns a view."""
        return self._get(ViewInfo, _view(database, name), {})

    def list_views(self, database: str) -> list[str]:
        """Returns the names of a database's views in order; reads all pages."""
        pages = every_page(lambda token: self._get(ViewPage, f"{_database(database)}/views", _page(token)))
        return [view.name for page in pages for view in page.views]

    def rename_view(self, database: str, name: str, new_name: str) -> ViewInfo:
        """Gives a view another name."""
        body = Rename(name=new_name)
        return self._parsed(ViewInfo, self._change("POST", f"{_view(database, name)}/rename", {}, body))

    def drop_view(self, database: str, name: str, *, if_exists: bool = False) -> None:
        """Drops a view."""
        self._change("DELETE", _view(database, name), {"if_exists": if_exists})

    def drop_table(self, database: str, name: str, *, if_exists: bool = False) -> None:
        """Drops a table."""
        self._change("DELETE", _table(database, name), {"if_exists": if_exists})

    def register(self, place: str | None = None, name: str | None = None) -> list[Registration]:
        """Raises `Unsupported`: it is done where the warehouse is."""
        raise Unsupported(
            "a catalog service does not register tables: run `tablestore register` with the path or URL of its "
            "warehouse as catalog, and with its database, while the service runs or not",
            code="not-with-a-service",
        )

    def acquire_lease(self, database: str, name: str, request: LeaseRequest) -> LeaseInfo:
        """Takes a table's lease."""
        return self._parsed(LeaseInfo, self._change("POST", f"{_table(database, name)}/lease", {}, request))

    def renew_lease(self, database: str, name: str, request: LeaseRequest) -> LeaseInfo:
        """Extends a lease."""
        return self._parsed(LeaseInfo, self._change("PUT", f"{_table(database, name)}/lease", {}, request))

    def release_lease(self, database: str, name: str, owner: str) -> None:
        """Ends a lease."""
        self._change("DELETE", f"{_table(database, name)}/lease", {"owner": owner})

    def newest_claim(self, database: str, name: str, table_id: str) -> NewestClaim:
        """Returns the newest claim of a table's versions."""
        return self._get(NewestClaim, f"{_table(database, name)}/commits", {"table_id": table_id})

    def claim_version(self, database: str, name: str, request: ClaimRequest) -> NewestClaim:
        """Claims a version."""
        return self._parsed(NewestClaim, self._change("POST", f"{_table(database, name)}/commits", {}, request))

    def publish_claim(self, database: str, name: str, request: PublishRequest) -> NewestClaim:
        """Notes that a claimed version is published."""
        return self._parsed(NewestClaim, self._change("PUT", f"{_table(database, name)}/commits", {}, request))

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    # ------------------------------------------------------------------------------------------ requests

    def _get(self, kind: type[Answer], path: str, query: Mapping[str, Any]) -> Answer:
        attempts = Retrying(
            stop=stop_after_attempt(_GET_ATTEMPTS),
            wait=wait_exponential(multiplier=0.1, max=1.0),
            retry=retry_if_exception(_may_pass),
            sleep=self._ambient.sleep,
            reraise=True,
        )
        try:
            response = attempts(self._http.get, path, params=_query(query))
        except httpx.TransportError as error:
            raise connection_error(self.url, error) from error
        return self._parsed(kind, response)

    def _change(
        self, method: str, path: str, query: Mapping[str, Any], body: BaseModel | None = None
    ) -> httpx.Response:
        content = None if body is None else body.model_dump_json(by_alias=True, exclude_none=True)
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            response = self._http.request(method, path, params=_query(query), content=content, headers=headers)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise connection_error(self.url, error) from error
        except httpx.TransportError as error:
            raise Unavailable(
                f"the catalog service at {self.url} took the request and did not answer ({error}): check whether it "
                "was done, or retry with if_not_exists / if_exists",
                code="reply-lost",
            ) from error
        self._raise_problem(response)
        return response

    def _parsed(self, kind: type[Answer], response: httpx.Response) -> Answer:
        self._raise_problem(response)
        try:
            return kind.model_validate_json(response.content)
        except ValidationError as error:
            raise self._not_a_catalog(response) from error

    def _raise_problem(self, response: httpx.Response) -> None:
        if response.is_success:
            return
        if response.headers.get("Content-Type", "").partition(";")[0] != MEDIA_TYPE:
            raise self._not_a_catalog(response)
        try:
            problem = Problem.model_validate_json(response.content)
        except ValidationError as error:
            raise self._not_a_catalog(response) from error
        raise error_of(problem)

    def _not_a_catalog(self, response: httpx.Response) -> Unavailable:
        return Unavailable(
            f"the answer to {response.request.method} {response.request.url} (status {response.status_code}) is not a "
            f"catalog service's: is {self.url} the address of one?",
            code="not-a-catalog",
        )


def _may_pass(error: BaseException) -> bool:
    """Returns whether a retry may succeed: a wrong certificate stays wrong."""
    return isinstance(error, httpx.TransportError) and not is_tls_error(error)


def _database(name: str) -> str:
    # The name is checked here, too: "" or "../x" would change the path.
    return f"/databases/{fold_name('database', name)}"


def _table(database: str, name: str) -> str:
    return f"{_database(database)}/tables/{fold_table(name)}"


def _view(database: str, name: str) -> str:
    return f"{_database(database)}/views/{fold_name('view', name)}"


def _page(token: str | None) -> dict[str, Any]:
    return {"page_size": PAGE_SIZE_MAX} | ({} if token is None else {"page_token": token})


def _query(query: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in query.items()}
