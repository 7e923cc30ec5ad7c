"""The queries by which DuckDB compares the result of a view's query with stored rows, or with keys of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from filestore.model.rowkind import KIND_COLUMN, RowKind
from tablestore.local_sql.refusal import NotLocalError
from tablestore.local_sql.typed import identifier

__all__ = ["counted", "counted_by_key", "differing"]

_ALIKE = "_tablestore_alike"
_CLOSE = 1e-9
"""Sums of floating-point numbers are compared with this tolerance."""


def differing(result: str, stored: str, schema: pa.Schema, key: Sequence[str], *, listed: bool) -> str:
    """Returns a query of the rows by which stored rows become the result, with their kinds: inserts, and deletes.

    Rows that are stored as they are may be among them: a writer that skips these decides it.

    Args:
        result: The relation with the result, or with a part of it.
        stored: That with the stored rows, or with the keys of some of them, which may be null.
        schema: The columns of the result.
        key: Its key.
        listed: Whether `stored` has all columns, by which rows are left out that are equal.
    """
    names = [identifier(column.name) for column in schema]
    values = [f"s.{name}" if column.name in key else "NULL" for name, column in zip(names, schema, strict=True)]
    known = " AND ".join(f"s.{identifier(name)} IS NOT NULL" for name in key)
    equal = " AND ".join(f"r.{identifier(name)} = s.{identifier(name)}" for name in key)
    same = " AND ".join(_certainly_equal(column) for column in schema)
    kept = f" WHERE NOT EXISTS (SELECT 1 FROM {identifier(stored)} AS s WHERE {equal} AND {same})" if listed else ""
    return (
        f"SELECT {', '.join(names)}, '{RowKind.INSERT}' AS {identifier(KIND_COLUMN)} FROM {identifier(result)} AS r"
        f"{kept} UNION ALL SELECT {', '.join(values)}, '{RowKind.DELETE}' FROM {identifier(stored)} AS s "
        f"WHERE {known} AND NOT EXISTS (SELECT 1 FROM {identifier(result)} AS r WHERE {equal})"
    )


def counted_by_key(result: str, stored: str, schema: pa.Schema, key: Sequence[str], *, exact: bool) -> str:
    """Returns a query of three numbers: the rows that differ, those of the result, and the stored ones.

    Args:
        result: The relation with the result.
        stored: That with the stored rows.
        schema: The columns of both.
        key: The columns by which a row of one is that of the other.
        exact: Whether the last digits of floating-point numbers have to be equal, too.
    """
    one, *_ = map(identifier, key)
    equal = [_equal(column, exact=exact) for column in schema]
    differs = f"r.{one} IS NULL OR s.{one} IS NULL OR r.{_ALIKE} > 1 OR NOT ({' AND '.join(equal)})"
    on = " AND ".join(f"r.{identifier(name)} = s.{identifier(name)}" for name in key)
    alike = f"count(*) OVER (PARTITION BY {', '.join(map(identifier, key))}) AS {_ALIKE}"
    counts = ", ".join(f"(SELECT count(*) FROM {identifier(side)})" for side in (result, stored))
    return (
        f"SELECT count(CASE WHEN {differs} THEN 1 END), {counts} FROM (SELECT *, {alike} FROM {identifier(result)}) "
        f"AS r FULL JOIN {identifier(stored)} AS s ON {on}"
    )


def counted(result: str, stored: str, schema: pa.Schema) -> str:
    """Returns the same query for rows that have no key, and may be there several times."""
    if any(pa.types.is_floating(column.type) for column in schema):
        raise NotLocalError("it has no key, and numbers whose last digits may differ")
    names = ", ".join(identifier(column.name) for column in schema)
    one, other = (f"SELECT {names} FROM {identifier(side)}" for side in (result, stored))
    different = f"SELECT * FROM ({one} EXCEPT ALL {other}) UNION ALL SELECT * FROM ({other} EXCEPT ALL {one})"
    counts = ", ".join(f"(SELECT count(*) FROM {identifier(side)})" for side in (result, stored))
    return f"SELECT (SELECT count(*) FROM ({different})), {counts}"


def _certainly_equal(column: pa.Field) -> str:
    """Returns a condition that two values are the same, bit by bit; it may be false for 0.0, which equals -0.0."""
    one, other = (f"{side}.{identifier(column.name)}" for side in "rs")
    same = f"{one} IS NOT DISTINCT FROM {other}"
    return f"({same} AND {one} IS DISTINCT FROM 0)" if pa.types.is_floating(column.type) else same


def _equal(column: pa.Field, *, exact: bool) -> str:
    one, other = (f"{side}.{identifier(column.name)}" for side in "rs")
    same = f"{one} IS NOT DISTINCT FROM {other}"
    if exact or not pa.types.is_floating(column.type):
        return same
    close = f"isfinite({one} - {other}) AND abs({one} - {other}) <= {_CLOSE} * greatest(abs({one}), abs({other}))"
    return f"({same} OR coalesce({close}, FALSE))"
