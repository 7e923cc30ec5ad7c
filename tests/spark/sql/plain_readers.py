"""Readers of Delta that know nothing of Tablestore, on the folder of the table ``lake.shop.t``."""

from __future__ import annotations

from tablestore import Table
from tests.spark.sql.conftest import Row, Sql
from tests.tables import read_deltalake, read_polars

__all__ = ["assert_all_readers_see", "seen_by_polars"]


def seen_by_polars(table: Table) -> list[Row]:
    """Returns the rows as `Sql` does."""
    return sorted((tuple(row.values()) for row in read_polars(table.location)), key=repr)


def assert_all_readers_see(sql: Sql, table: Table, expected: list[Row]) -> None:
    """Folds pending runs, which other readers do not see, and reads the table by all readers."""
    table.compact(full=True)
    assert sql("SELECT * FROM lake.shop.t") == expected
    assert sql(f"SELECT * FROM delta.`{table.location}`") == expected
    assert seen_by_polars(table) == expected
    assert sorted((tuple(row.values()) for row in read_deltalake(table.location)), key=repr) == expected
