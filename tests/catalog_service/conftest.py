"""A warehouse, a service over HTTP, and both kinds of client."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from catalog_service.client import Catalog, connect
from catalog_service.server import serving
from tests.catalog_service.faults import OPEN
from tests.servers.postgres import PostgresServer


@pytest.fixture(autouse=True)
def close_services() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


@pytest.fixture
def warehouse(tmp_path) -> str:
    return str(tmp_path / "warehouse")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A PostgreSQL server for the tests of a module."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def database(server: PostgresServer) -> str:
    """The URL of an empty database in PostgreSQL."""
    server.empty()
    return server.url


@pytest.fixture
def url(warehouse: str) -> Iterator[str]:
    with serving(warehouse) as url:
        yield url


@pytest.fixture
def api(url: str) -> Iterator[httpx.Client]:
    """Plain HTTP, as any language would speak it."""
    with httpx.Client(base_url=f"{url}/api/v1", trust_env=False, timeout=60) as client:
        yield client


@pytest.fixture(params=["http", "embedded"])
def catalog(request: pytest.FixtureRequest, warehouse: str) -> Iterator[Catalog]:
    """Every implementation of the protocol."""
    if request.param == "embedded":
        with connect(warehouse) as catalog:
            yield catalog
    else:
        with serving(warehouse) as url, connect(url) as catalog:
            yield catalog
