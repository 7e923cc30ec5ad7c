"""Connections to SQLite are closed, and not only found by the garbage collector, which Python 3.13 reports."""

from __future__ import annotations

import gc
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

import tablestore
from catalog_service.database.engine import default_database_url
from catalog_service.use_cases.opening import open_service
from filestore import sqlite_files
from filestore.errors import Unsupported


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """Returns how many connections are gone or open without having been closed."""
    opened = {"now": 0}

    class Counted(sqlite_files.Connection):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            opened["now"] += 1

        def close(self) -> None:
            opened["now"] -= 1
            super().close()

    monkeypatch.setattr(sqlite_files, "Connection", Counted)
    yield lambda: opened["now"]


def test_a_store_that_is_forgotten_closes_its_connections(warehouse: str, left: Callable[[], int]) -> None:
    store = tablestore.connect(warehouse)
    store.create_database("shop")
    table = store.create_table("shop.t", "id BIGINT", options={"log.system": "none"})
    assert left() > 0
    del store, table
    gc.collect()
    assert left() == 0


def test_a_catalog_that_is_refused_leaves_no_connection(warehouse: str, left: Callable[[], int]) -> None:
    url = default_database_url(warehouse)
    open_service(warehouse, url).close()
    with closing(sqlite3.connect(f"{warehouse}/catalog.db")) as raw, raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(Unsupported):
        open_service(warehouse, url)
    assert left() == 0
