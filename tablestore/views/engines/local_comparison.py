"""The queries by which DuckDB compares the result of a view's query with the stored rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tablestore.local_sql.refusal import NotLocalError
from tablestore.local_sql.typed import identifier

__all__ = ["counted", "counted_by_key"]

_CLOSE = 1e-9
"""Sums of floating-point numbers are compared with this tolerance."""


def counted_by_key(result: str, stored: str, schema: pa.Schema, key: Sequence[str], *, exact: bool) -> str:
    """Returns a query of three numbers: the rows that differ, those of the result, and the stored ones.

    Args:
        result: The relation with the result.
        stored: That with the stored rows.
        schema: The columns of both.
        key: The columns by which a row of one is that of the other.
        exact: Whether the last digits of floating-point numbers have to be equal, too.
    """
    one, *_ = key
    equal = [_equal(column, exact=exact) for column in schema]
    differs = f"r.{identifier(one)} IS NULL OR s.{identifier(one)} IS NULL OR NOT ({' AND '.join(equal)})"
    on = " AND ".join(f"r.{identifier(name)} = s.{identifier(name)}" for name in key)
    counts = ", ".join(f"count({side}.{identifier(one)})" for side in "rs")
    return (
        f"SELECT count(CASE WHEN {differs} THEN 1 END), {counts} FROM {identifier(result)} AS r "
        f"FULL JOIN {identifier(stored)} AS s ON {on}"
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


def _equal(column: pa.Field, *, exact: bool) -> str:
    one, other = (f"{side}.{identifier(column.name)}" for side in "rs")
    same = f"{one} IS NOT DISTINCT FROM {other}"
    if exact or not pa.types.is_floating(column.type):
        return same
    close = f"isfinite({one} - {other}) AND abs({one} - {other}) <= {_CLOSE} * greatest(abs({one}), abs({other}))"
    return f"({same} OR coalesce({close}, FALSE))"
