"""What each statement of the catalog's database leaves alone, whoever calls it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog_service.engine import default_database_url, migrate, open_engine
from catalog_service.locks import FileLocks
from catalog_service.repository import Repository
from catalog_service.schema import DatabaseRow, State, TableRow
from tests.catalog_service.faults import AMBIENT
from tests.tables import define


@pytest.fixture
def repository(warehouse: str) -> Iterator[Repository]:
    engine = open_engine(default_database_url(warehouse))
    migrate(engine, FileLocks(Path(f"{engine.url.database}-locks"), AMBIENT, 30.0))
    repository = Repository(engine)
    repository.add_database(DatabaseRow("shop", State.ACTIVE, None, 0))
    yield repository
    engine.dispose()


def test_a_database_stays_until_it_is_dropped_and_has_no_table_left(repository: Repository) -> None:
    """The files of a table whose row is left still have to be removed, and only the database leads to them."""
    table = TableRow("shop", "orders", AMBIENT.new_id(), State.ACTIVE, define("id BIGINT"), 0)
    repository.add_table(table)
    repository.remove_database("shop")
    found = repository.database("shop")
    assert found is not None
    assert found.state is State.ACTIVE
    repository.mark_database_dropping("shop", cascade=True)
    repository.remove_database("shop")
    assert repository.table_names("shop") == ["orders"]
    found = repository.database("shop")
    assert found is not None
    assert found.state is State.DROPPING
    repository.remove_table(table, debt_due_ms=None)
    repository.remove_database("shop")
    assert repository.database("shop") is None


def test_an_empty_database_that_was_not_dropped_stays(repository: Repository) -> None:
    """Another process may have finished the drop, and created the database again."""
    repository.remove_database("shop")
    assert repository.database("shop") is not None
