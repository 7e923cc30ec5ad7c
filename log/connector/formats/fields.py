"""Splits a row's columns into a message's key and value, and joins them (FLIP-107)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.errors import InvalidRequest
from filestore.model.text import name_list
from log.connector.formats.format import Decoded, Index, Malformed

__all__ = ["FieldsInclude", "Projection", "disagreeing", "project_fields"]


class FieldsInclude(StrEnum):
    """``value.fields-include``."""

    ALL = "ALL"
    EXCEPT_KEY = "EXCEPT_KEY"


@dataclass(frozen=True, slots=True)
class Projection:
    """The division of a table's columns into those of keys and those of values.

    Args:
        schema: All columns, by the table's names and order.
        key: Positions of the key's columns among them, in the order of the key.
        value: Positions of the value's columns.
        prefix: Stands before the key's columns in the table, and not in the message.
    """

    schema: pa.Schema
    key: tuple[int, ...]
    value: tuple[int, ...]
    prefix: str = ""

    @property
    def key_schema(self) -> pa.Schema:
        """The schema of keys, with the names that columns have in messages."""
        fields = [self.schema.field(i) for i in self.key]
        return pa.schema([f.with_name(f.name.removeprefix(self.prefix)) for f in fields])

    @property
    def value_schema(self) -> pa.Schema:
        """The schema of values."""
        return pa.schema([self.schema.field(i) for i in self.value])

    def split(self, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Splits rows of the table's columns into those of keys and values."""
        key = pa.Table.from_arrays([rows[self.schema.names[i]] for i in self.key], schema=self.key_schema)
        return key, rows.select([self.schema.names[i] for i in self.value])

    def join(self, keys: pa.Table, values: pa.Table) -> pa.Table:
        """Joins rows of keys and values to rows of the table's columns; a column in both has the value's."""
        columns: dict[int, pa.ChunkedArray] = dict(zip(self.key, keys.columns, strict=False))
        columns |= {i: values[self.schema.names[i]] for i in self.value}
        fields = [pa.field(f.name, f.type) for f in self.schema]
        return pa.Table.from_arrays([columns[i] for i in range(len(fields))], schema=pa.schema(fields))


def project_fields(
    schema: pa.Schema, key_fields: Sequence[str], include: FieldsInclude = FieldsInclude.ALL, prefix: str = ""
) -> Projection:
    """Checks which columns keys and values hold, and makes the projection.

    Args:
        schema: The table's physical columns.
        key_fields: ``key.fields``: those of the key, by the table's names; for upsert-kafka the primary key.
        include: ``value.fields-include``.
        prefix: ``key.fields-prefix``.

    Raises:
        InvalidRequest: ``key-fields``: one is no column, or is named twice, or lacks the prefix; or there is a prefix
            and the value has the key's columns.
    """
    places = {name: at for at, name in enumerate(schema.names)}
    for name in key_fields:
        if name not in places:
            raise InvalidRequest(
                f"key.fields names {name!r}, which is no column; the columns are {name_list(schema.names)}",
                code="key-fields",
            )
        if not name.startswith(prefix) or name == prefix:
            raise InvalidRequest(
                f"column {name!r} of key.fields has to begin with key.fields-prefix = {prefix!r} and go on",
                code="key-fields",
            )
    if len(set(key_fields)) < len(key_fields):
        raise InvalidRequest(f"key.fields names a column twice: {', '.join(key_fields)}", code="key-fields")
    if prefix and include is FieldsInclude.ALL:
        raise InvalidRequest(
            "key.fields-prefix is for keys whose names the value has, too: set value.fields-include = EXCEPT_KEY",
            code="key-fields",
        )
    key = tuple(places[name] for name in key_fields)
    left_out = set() if include is FieldsInclude.ALL else set(key)
    value = tuple(i for i in range(len(schema)) if i not in left_out)
    return Projection(schema, key, value, prefix)


def disagreeing(projection: Projection, keys: Decoded, values: Decoded) -> tuple[Malformed, ...]:
    """Returns messages whose value contradicts their key in the key's columns (``fields.verify-integrity``).

    Args:
        projection: With the key's columns in the value.
        keys: One row for each key that could be read.
        values: Any number of rows for each value that could be read.
    """
    at = np.searchsorted(keys.index, values.index)
    found = at < len(keys.index)
    found[found] = keys.index[at[found]] == values.index[found]
    rows = np.flatnonzero(found)
    wrong: dict[int, str] = {}
    for place, name in zip(projection.key, projection.key_schema.names, strict=True):
        column = projection.schema.names[place]
        left = keys.rows[name].take(pa.array(at[rows]))
        right = values.rows[column].take(pa.array(rows))
        for message in _different(left, right, values.index[rows]).tolist():
            wrong.setdefault(message, f"column {column!r} differs between key and value")
    return tuple(Malformed(i, wrong[i]) for i in sorted(wrong))


def _different(left: pa.ChunkedArray, right: pa.ChunkedArray, index: Index) -> Index:
    one_null = pc.xor(pc.is_null(left), pc.is_null(right))
    differ = pc.or_(one_null, pc.fill_null(pc.not_equal(left, right), False))
    return np.unique(index[differ.to_numpy()])
