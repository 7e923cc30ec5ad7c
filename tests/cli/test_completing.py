"""What a shell completes behind Tab, by the same protocol by which bash asks."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from tablestore import Store, Table
from tablestore.cli import app


def completed(store: Store, line: str, **environment: str) -> list[str]:
    """The words that bash would offer for the last one of a line."""
    asked = {
        "_TABLESTORE_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
        "TABLESTORE_CATALOG": store.target,
    }
    done = CliRunner(env=asked | environment).invoke(app, [], prog_name="tablestore")
    assert done.exit_code == 0, done.output
    return done.stdout.split()


@pytest.fixture(autouse=True)
def names(store: Store, orders: Table) -> None:
    store.create_database("stock")
    store.create_table("stock.items", "id BIGINT")
    store.create_view("shop.open", "SELECT id FROM orders", columns='{"type":"struct","fields":[]}')


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("tablestore scan s", ["shop.orders", "stock.items"]),
        ("tablestore scan shop.", ["shop.orders"]),
        ("tablestore scan nothere.", []),
        ("tablestore doctor sh", ["shop", "shop.orders", "shop.open"]),
        ("tablestore drop sto", ["stock", "stock.items"]),
        ("tablestore tables s", ["shop", "stock"]),
        ("tablestore sql --database st", ["stock"]),
        ("tablestore ingest --into stock.", ["stock.items"]),
        ("tablestore show shop.o", ["shop.orders"]),
        ("tablestore partitions list shop.o", ["shop.orders"]),
        ("tablestore scan shop.orders --columns i", ["id"]),
        ("tablestore scan shop.orders --columns id,", ["id,status"]),
        ("tablestore scan shop.none --columns i", []),
        ("tablestore scan --catalog /nothere s", []),
    ],
)
def test_names_of_the_catalog_are_completed(store: Store, line: str, found: list[str]) -> None:
    assert sorted(completed(store, line)) == sorted(found)


def test_a_catalog_that_does_not_answer_completes_nothing(store: Store) -> None:
    assert completed(store, "tablestore scan s", TABLESTORE_CATALOG="http://127.0.0.1:1") == []
