"""The tables of `tests.tablestore.views.script_shapes` in a store, and random changes of them."""

from __future__ import annotations

import random
from collections.abc import Mapping

from tablestore import Store, Table
from tests.tablestore.views.by_sqlite import State
from tests.tablestore.views.script_shapes import COLUMNS, TABLES, row_of

__all__ = ["change", "created_tables", "rows_of"]

_KEYLESS = "s.e"


def created_tables(store: Store, options: Mapping[str, str] | None = None) -> dict[str, Table]:
    """Creates the tables; those with a key have two buckets, and the given options."""
    store.create_database("s")
    found = {}
    for name, definition in TABLES.items():
        own = {"bucket": "2", **(options or {})} if definition.primary_key else {}
        schema = definition.schema.to_arrow()
        found[name] = store.create_table(name, schema, primary_key=definition.primary_key, options=own)
    return found


def change(tables: Mapping[str, Table], dice: random.Random, most: int) -> None:
    """Writes and deletes a few rows of some tables, and compacts one."""
    for name in dice.sample(list(TABLES), dice.choice([1, 1, 2, 4])):
        key = len(TABLES[name].primary_key)
        given = {
            row[:key] if key else number: row for number, row in enumerate(row_of(name, dice) for _ in range(most))
        }
        rows = [dict(zip(COLUMNS[name], row, strict=True)) for row in given.values()]
        if name == _KEYLESS:
            tables[name].write(rows, overwrite=dice.randrange(4) == 0)
            continue
        tables[name].write([row | {"_kind": dice.choice(["+I", "+I", "-D"])} for row in rows])
    if dice.randrange(3) == 0:
        tables[dice.choice(list(TABLES))].compact(full=True)


def rows_of(tables: Mapping[str, Table]) -> State:
    """Returns the newest rows of the tables."""
    return {
        name: [tuple(row.values()) for row in table.scan(columns=COLUMNS[name]).to_arrow().to_pylist()]
        for name, table in tables.items()
    }
