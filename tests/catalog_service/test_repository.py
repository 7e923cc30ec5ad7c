"""What each statement of the catalog's database leaves alone, whoever calls it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog_service.database.engine import default_database_url, migrate, open_engine
from catalog_service.database.locks import FileLocks
from catalog_service.database.repository import Repository
from catalog_service.database.schema import DatabaseRow, State, TableRow
from filestore.errors import AlreadyExists, NotFound
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


# ---------------------------------------------------------------------------------------------- after a lost lock


def row_of(table_id: str, state: State = State.CREATING) -> TableRow:
    return TableRow("shop", "orders", table_id, state, define("id BIGINT"), 1)


def test_a_table_that_another_process_drops_never_becomes_active(repository: Repository) -> None:
    row = row_of("a")
    repository.add_table(row)
    assert repository.set_state(row, State.DROPPING)
    assert not repository.set_state(row, State.ACTIVE)
    assert repository.leftover("shop", "orders").state is State.DROPPING
    repository.remove_table(row, debt_due_ms=None)
    assert not repository.set_state(row, State.ACTIVE)
    assert not repository.set_state(row, State.DROPPING)
    repository.remove_table(
        row, debt_due_ms=5
    )  # another process has completed the drop, and knows whether a log is left
    assert repository.log_debts() == []


def test_a_creation_that_may_have_been_committed_becomes_active_again(repository: Repository) -> None:
    row = row_of("a")
    repository.add_table(row)
    assert repository.set_state(row, State.ACTIVE)
    assert repository.set_state(row, State.ACTIVE)


def test_a_table_of_a_database_that_was_made_again_is_not_dropped_with_the_old_one(repository: Repository) -> None:
    row = row_of("a", State.ACTIVE)
    repository.add_table(row)
    assert not repository.drop_with_database(row)
    repository.mark_database_dropping("shop", cascade=True)
    assert repository.drop_with_database(row)
    assert repository.leftover("shop", "orders").state is State.DROPPING


def test_names_that_are_taken(repository: Repository) -> None:
    repository.add_table(row_of("a"))
    with pytest.raises(AlreadyExists) as caught:
        repository.add_table(row_of("b"))
    assert caught.value.code == "table-exists"
    with pytest.raises(AlreadyExists) as caught:
        repository.add_database(DatabaseRow("shop", State.ACTIVE, None, 1))
    assert caught.value.code == "database-exists"


def test_a_lease_of_a_table_that_was_just_dropped(repository: Repository) -> None:
    with pytest.raises(NotFound) as caught:
        repository.acquire_lease("gone", "me", 60)
    assert caught.value.code == "table-not-found"
