"""A catalog that is locked, read-only, damaged or away: 503 (or 500) with a reason, and nothing changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import event

from catalog_service.client import connect
from catalog_service.database.engine import default_database_url
from catalog_service.server import serving
from catalog_service.wire.databases import CreateDatabase
from filestore.errors import Unavailable
from tests.catalog_service.faults import check, orders, running_service, with_database

BODY = {"name": "items", "schema": "id BIGINT"}


@pytest.fixture
def impatient(warehouse: str) -> Iterator[httpx.Client]:
    """A service that waits a tenth of a second for SQLite's lock."""
    with_database(warehouse, orders())
    database = default_database_url(warehouse) + "?timeout=0.1"
    with (
        serving(warehouse, database=database) as url,
        httpx.Client(base_url=f"{url}/api/v1", trust_env=False, timeout=60) as client,
    ):
        yield client


@pytest.fixture
def lock(warehouse: str) -> Iterator[sqlite3.Connection]:
    """Another process in the middle of a long write."""
    other = sqlite3.connect(f"{warehouse}/catalog.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    yield other
    other.close()


def changes(client: httpx.Client) -> Iterator[httpx.Response]:
    yield client.post("/databases", json={"name": "bank"})
    yield client.post("/databases/shop/tables", json=BODY)
    yield client.delete("/databases/shop/tables/orders")
    yield client.delete("/databases/shop", params={"cascade": True})


def test_locked(impatient: httpx.Client, lock: sqlite3.Connection, warehouse: str) -> None:
    for response in changes(impatient):
        problem = response.json()
        assert (response.status_code, problem["code"]) == (503, "catalog-locked")
        assert "nothing was changed" in problem["detail"]
    assert [t["name"] for t in impatient.get("/databases/shop/tables").json()["tables"]] == ["orders"]
    lock.execute("ROLLBACK")
    assert check(warehouse) == ["shop.orders"]
    assert impatient.post("/databases/shop/tables", json=BODY).status_code == 201


def test_read_only(warehouse: str) -> None:
    with_database(warehouse, orders())
    service = running_service(warehouse)
    event.listen(service._engine, "connect", lambda raw, _: raw.execute("PRAGMA query_only = ON"))
    service._engine.dispose()
    for call in (
        lambda: service.create_database(CreateDatabase(name="bank")),
        lambda: service.create_table("shop", orders(name="items")),
        lambda: service.drop_table("shop", "orders"),
        lambda: service.drop_database("shop", cascade=True),
    ):
        with pytest.raises(Unavailable, match="writable") as caught:
            call()
        assert caught.value.code == "catalog-read-only"
    assert service.get_table("shop", "orders").current_snapshot is not None
    service.close()
    assert check(warehouse) == ["shop.orders"]


def test_damaged(warehouse: str) -> None:
    with serving(warehouse) as url, httpx.Client(base_url=f"{url}/api/v1", trust_env=False, timeout=60) as client:
        client.post("/databases", json={"name": "shop"}).raise_for_status()
        with sqlite3.connect(f"{warehouse}/catalog.db") as raw:
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        raw.close()
        path = Path(warehouse, "catalog.db")
        path.write_bytes(path.read_bytes()[:100] + b"\xff" * 8000)
        answers = [client.get("/databases"), client.get("/ready")]
    assert {a.status_code for a in answers} <= {500, 503}
    assert {a.json()["code"] for a in answers} <= {"catalog-corrupt", "catalog-unavailable"}


def test_away(tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable) as caught:
        connect(str(tmp_path / "file" / "warehouse"))
    assert caught.value.code == "catalog-read-only"


def test_storage_that_fails(warehouse: str) -> None:
    with_database(warehouse)
    Path(warehouse, "shop").write_text("a file in the place of the folder")
    with connect(warehouse) as catalog:
        with pytest.raises(Unavailable):
            catalog.create_table("shop", orders())
        assert catalog.list_tables("shop") == []
        Path(warehouse, "shop").unlink()
        catalog.create_table("shop", orders())
    assert check(warehouse) == ["shop.orders"]
