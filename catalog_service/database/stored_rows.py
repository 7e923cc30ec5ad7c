"""Decodes rows of the catalog's database. A damaged one is `Corrupt`, whatever its values lead Python's parsers to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Row, Table

from catalog_service.database.definitions import comment_in, decode_definition
from catalog_service.database.schema import (
    DATABASES,
    LEASES,
    TABLES,
    DatabaseRow,
    LeaseRow,
    State,
    TableEntry,
    TableRow,
)
from filestore.decoding import well_formed
from filestore.errors import InvalidRequest, Unsupported

__all__ = ["database_of", "entry_of", "lease_of", "table_of"]

_ADVICE = "restore the database from a backup, or register the tables in a new one (`tablestore register`)"


def database_of(row: Row[Any]) -> DatabaseRow:
    """Decodes a row of the databases."""
    with _stored(f"database {row.name}"):
        _check(row, DATABASES)
        return DatabaseRow(row.name, State(row.state), row.comment, row.created_at_ms)


def table_of(row: Row[Any]) -> TableRow:
    """Decodes a row of the tables."""
    with _stored(f"table {row.database}.{row.name}"):
        _check(row, TABLES)
        return TableRow(
            row.database,
            row.name,
            row.table_id,
            State(row.state),
            decode_definition(row.definition),
            row.created_at_ms,
            row.keeps_topic,
            row.folder,
        )


def entry_of(database: str, row: Row[*tuple[Any, ...]]) -> TableEntry:
    """Decodes what a list of tables shows of one."""
    with _stored(f"table {database}.{row.name}"):
        _check(row, TABLES)
        comment = comment_in(row.definition)
        return TableEntry(database, row.name, row.table_id, row.connector, comment, row.created_at_ms, row.folder)


def lease_of(row: Row[Any] | None) -> LeaseRow | None:
    """Decodes a row of the leases."""
    if row is None:
        return None
    with _stored(f"the lease of table {row.table_id}"):
        _check(row, LEASES)
        return LeaseRow(row.table_id, row.owner, row.expires_at_ms)


@contextmanager
def _stored(what: str) -> Iterator[None]:
    described = f"the row of {what} in the catalog's database"
    try:
        with well_formed(described, code="catalog-corrupt", advice=_ADVICE):
            try:
                yield
            except InvalidRequest as error:  # a definition that nobody could have stored
                raise ValueError(error.message) from error
    except Unsupported as error:
        raise error.about(described) from error


def _check(row: Row[*tuple[Any, ...]], table: Table) -> None:
    """Raises `TypeError` for a value of another type than its column's: SQLite stores any type in any column."""
    for name, value in row._mapping.items():
        if name not in table.c or (value is None and table.c[name].nullable):
            continue
        if not isinstance(value, table.c[name].type.python_type):
            raise TypeError(f"column {name} has {value!r}")
