"""Rows that a format can hold, and how they are compared: what a format is opened with in these tests."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from filestore.errors import NotFound
from log.connector.formats.format import Format, Role
from log.connector.formats.opening import open_format
from tests.log.schemas import cells, scalars, types

__all__ = ["Memory", "holdable", "opened", "plain"]

NAMES = ["id", "k2", "Name", "after", "_x"]


class Memory:
    """A registry in memory."""

    def __init__(self) -> None:
        self.schemas: list[str] = []
        self.subjects: list[str] = []

    def register(self, subject: str, schema: str) -> int:
        self.subjects.append(subject)
        if schema not in self.schemas:
            self.schemas.append(schema)
        return 70_000 + self.schemas.index(schema)

    def schema(self, number: int) -> tuple[str, ...]:
        if not 0 <= number - 70_000 < len(self.schemas):
            raise NotFound(f"no schema {number}")
        return (self.schemas[number - 70_000],)


def opened(name: str, schema: pa.Schema, role: Role = Role.VALUE, **options: str) -> Format:
    """A format; underscores in options' names stand for hyphens and a double one for a point."""
    given = {key.replace("__", ".").replace("_", "-"): text for key, text in options.items()}
    return open_format(name, schema, given, role, topic="t", registry=Memory())


@st.composite
def holdable(
    draw: st.DrawFn, check: Callable[[pa.DataType], str | None], nullable: bool = True, nested: bool = True
) -> pa.Table:
    """A small table of random columns of the types that the check lets pass."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    kinds = (types() if nested else scalars()).filter(lambda kind: check(kind) is None)
    fields = [pa.field(name, draw(kinds), nullable or draw(st.booleans())) for name in names]
    count = draw(st.integers(0, 5))
    rows = [draw(st.lists(cells(f.type, f.nullable), min_size=count, max_size=count)) for f in fields]
    arrays = [pa.array(values, f.type) for values, f in zip(rows, fields, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    return table.slice(draw(st.integers(0, count)))


def plain(rows: pa.Table) -> Any:
    """Rows as Python values that are equal if they mean the same: NaN is NaN, and -0.0 is not 0.0."""
    return [_plain(row) for row in rows.to_pylist()]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, tuple):
        return tuple(_plain(v) for v in value)
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value)
    return value
