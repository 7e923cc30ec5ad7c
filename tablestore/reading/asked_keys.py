"""Converts the keys of a look-up to an Arrow table of the primary key's columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from filestore.errors import InvalidRequest
from filestore.model.definition import TableDefinition
from filestore.model.types import to_sql
from tablestore.incoming.fitting import fit
from tablestore.incoming.given import Rows, array_of, arrow_rows, is_table

__all__ = ["Keys", "asked_keys", "fitted_key"]

Keys: TypeAlias = "Rows | Sequence[Any]"
"""Rows with the key's columns; a list of dicts; of tuples in the key's order; or of the values of a single column."""


def asked_keys(keys: Keys, definition: TableDefinition) -> pa.Table:
    """Returns the keys as columns of the table's types, in the primary key's order.

    Raises:
        InvalidRequest: a table without a key (``no-primary-key``), keys of another shape (``bad-keys``), a null
            (``null-key``), or a value that does not fit its column (``bad-value``).
    """
    names = definition.primary_key
    if not names:
        raise InvalidRequest(
            "the table has no primary key, so no key names a row: filter a scan instead", code="no-primary-key"
        )
    schema = definition.schema.select(names).to_arrow()
    given = arrow_rows(keys, schema) if is_table(keys) else _columns(keys, schema, definition)
    if sorted(given.column_names) != sorted(names):
        raise _bad(f"they have the columns {', '.join(given.column_names) or '(none)'}", definition)
    for name in names:
        if given.column(name).null_count:
            raise InvalidRequest(
                f"key column {name!r} holds {given.column(name).null_count} nulls, and no key has one: leave them out",
                code="null-key",
            )
    return pa.table([fitted_key(given.column(field.name), field) for field in schema], schema=schema)


def fitted_key(values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Returns the values of a key's column in the type of the table's column; `InvalidRequest` (``bad-value``)."""
    if pa.types.is_boolean(values.type) and not pa.types.is_boolean(field.type):
        raise InvalidRequest(
            f"the keys' values of {field.name!r} are True and False, and the column is {to_sql(field.type)}: Arrow "
            "would take them for 1 and 0",
            code="bad-value",
        )
    return fit(values, field)


def _columns(keys: object, schema: pa.Schema, definition: TableDefinition) -> pa.Table:
    if isinstance(keys, str | bytes) or not isinstance(keys, Sequence):
        raise _bad(f"a {type(keys).__name__} is no list of keys", definition)
    if not keys:
        return schema.empty_table()
    names = schema.names
    kinds = set(map(type, keys))
    if all(issubclass(kind, Mapping) for kind in kinds):
        if set(map(frozenset, keys)) != {frozenset(names)}:
            raise _bad("not every dict has these names and no others", definition)
        values = [[key[name] for key in keys] for name in names]
    elif all(issubclass(kind, tuple | list) for kind in kinds):
        if set(map(len, keys)) != {len(names)}:
            raise _bad(f"not every one of them has {len(names)} values", definition)
        values = [list(column) for column in zip(*keys, strict=True)]
    elif len(names) == 1:
        values = [list(keys)]
    else:
        raise _bad("single values are no whole keys", definition)
    columns = [array_of(column, field.name, field) for column, field in zip(values, schema, strict=True)]
    return pa.table(columns, names=names)


def _bad(problem: str, definition: TableDefinition) -> InvalidRequest:
    names = definition.primary_key
    single = f", or of values of {names[0]}" if len(names) == 1 else ""
    return InvalidRequest(
        f"these are no keys of the table, {problem}: give Arrow, polars or pandas with the columns {', '.join(names)}, "
        f"or a list of dicts with these names, or of tuples in this order{single}",
        code="bad-keys",
    )
