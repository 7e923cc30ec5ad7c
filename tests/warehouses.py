"""Helpers of tests that use tables through `tablestore.connect`, and the checks that every table has to pass."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

import tablestore
from catalog_service.database.engine import CATALOG_FILE
from tablestore import Table
from tests.folders import memory_folder
from tests.tables import assert_healthy, in_order, read_deltalake, read_polars

__all__ = [
    "assert_same_rows",
    "assert_whole",
    "changes",
    "keyed",
    "open_in_log",
    "orphans",
    "replay",
    "rows",
    "warehouse",
]

Row = dict[str, Any]


@contextmanager
def warehouse(database: str = "shop") -> Iterator[tablestore.Store]:
    """Opens a store in a folder of its own, with one database."""
    with memory_folder() as folder:
        (folder / CATALOG_FILE).write_bytes(_new_catalog(database))
        with tablestore.connect(str(folder)) as store:
            yield store


@cache
def _new_catalog(database: str) -> bytes:
    """Returns the file of a catalog with one database; it is made once, since that takes longer than many tests."""
    with memory_folder() as folder:
        with tablestore.connect(str(folder)) as store:
            store.create_database(database)
        assert not (folder / f"{CATALOG_FILE}-wal").exists()
        return (folder / CATALOG_FILE).read_bytes()


def rows(table: Table, version: int | None = None) -> list[Row]:
    """Returns all rows of a version by our own reader, in an order that depends only on their values."""
    return in_order(table.scan(version=version).to_arrow().to_pylist())


def keyed(table: Table, found: Iterable[Row]) -> dict[tuple[Any, ...], Row]:
    """Returns rows by primary key; fails if a key has two."""
    listed = list(found)
    by_key = {tuple(row[name] for name in table.definition.primary_key): row for row in listed}
    assert len(by_key) == len(listed), "a key appears twice"
    return by_key


def changes(table: Table, *start: str, **how: Any) -> list[Row]:
    """Returns what `Table.follow` yields up to the newest version."""
    how.setdefault("stop", table.filestore.state().version)
    return [row for batch in table.follow(*start, **how) for row in batch.to_pylist()]


def replay(found: Iterable[Row], key: Sequence[str]) -> list[Row]:
    """Applies changes in their order, as a consumer of the log does, and returns the resulting rows."""
    state: dict[tuple[Any, ...], Row] = {}
    for change in found:
        row = dict(change)
        kind = row.pop("_kind")
        name = tuple(row[column] for column in key)
        if kind in ("+I", "+U"):
            state[name] = row
        else:
            state.pop(name, None)
    return in_order(state.values())


def orphans(table: Table) -> list[str]:
    """Lists the files in the table's folder that no version names."""
    return [f.message for f in table.examine().findings if f.code == "orphan"]


def open_in_log(table: Table) -> list[str]:
    """Lists the open transactions of the embedded log."""
    found: set[str] = set()
    for path in Path(table.location, "_log").glob("bucket-*.sqlite"):
        with closing(sqlite3.connect(path)) as connection:
            found |= {row[0] for row in connection.execute("SELECT id FROM open_transactions")}
    return sorted(found)


def assert_whole(table: Table, *, leftovers: bool = True) -> list[Row]:
    """Checks that the doctor finds nothing, that all readers see the same rows, and the log's changes lead to them.

    Returns:
        The rows.
    """
    assert_healthy(table.filestore)
    if not leftovers:
        assert orphans(table) == []
        assert open_in_log(table) == []
    return assert_same_rows(table)


def assert_same_rows(table: Table, *, log: bool = True, others: bool = True) -> list[Row]:
    """Every reader sees the same rows, and the log leads to them.

    Args:
        table: The table.
        log: Whether the log is read.
        others: Whether polars and delta-rs read the table, too, and not only we.

    Returns:
        The rows.
    """
    found = rows(table)
    state = table.filestore.state()
    if others and not state.pending:
        assert in_order(read_polars(table.location)) == found
        assert in_order(read_deltalake(table.location)) == found
    key = state.definition.primary_key
    if key:
        keyed(table, found)
    if not log or state.definition.options["log.system"] == "none":
        return found
    if key:
        assert replay(changes(table, version=0), key) == found
        assert replay(changes(table), key) == found
    else:
        assert in_order(_without_kind(changes(table))) == found
    return found


def _without_kind(found: Iterable[Row]) -> Iterator[Row]:
    for row in found:
        assert row["_kind"] == "+I"
        yield {name: value for name, value in row.items() if name != "_kind"}


def to_arrow(table: Table, found: Iterable[Row]) -> pa.Table:
    """Converts rows to the table's types; columns that a row lacks are null."""
    fields = [f.with_nullable(True) for f in table.schema]
    listed = list(found)
    if any("_kind" in row for row in listed):
        fields.append(pa.field("_kind", pa.string()))
        listed = [{"_kind": "+I", **row} for row in listed]
    return pa.Table.from_pylist(listed, schema=pa.schema(fields))
