"""Queries of Spark, run by SQLite."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import sqlglot
from sqlglot import exp

from tablestore.views.plan.script import Changed, Matching, Query, Rows, Sampled, Script
from tablestore.views.sql.view_query import ViewQuery
from tests.tablestore.views.script_shapes import COLUMNS

__all__ = ["Read", "Row", "State", "make_relations", "result"]

Row = tuple[object, ...]
State = Mapping[str, Sequence[Row]]
"""The rows of each table."""
Read = Callable[[Rows | Changed], tuple[Sequence[str], Sequence[Row]]]
"""Returns the columns and the rows of what a script reads."""


def make_relations(database: sqlite3.Connection, script: Script, read: Read) -> None:
    """Makes each relation of a script a table."""
    for name, made in script.relations.items():
        match made:
            case Rows() | Changed():
                _put(database, name, *read(made))
            case Sampled():
                _put(database, name, *read(made.rows))
            case Matching():
                _put(database, f"{name}_rows", *read(made.rows))
                _make(database, name, made.text(f"{name}_rows"))
            case Query():
                _make(database, name, made.text)


def _make(database: sqlite3.Connection, name: str, text: str) -> None:
    """Makes the result of a query a table."""
    database.execute(f"DROP TABLE IF EXISTS {name}")
    database.execute(f"CREATE TABLE {name} AS {_for_sqlite(text)}")


def result(database: sqlite3.Connection, query: ViewQuery, state: State) -> Counter[Row]:
    """Returns the rows of a view's query."""
    names = [f"whole_{number}" for number in range(len(query.uses))]
    for name, use in zip(names, query.uses, strict=True):
        _put(database, name, COLUMNS[use.name], state[use.name])
    return Counter(database.execute(_for_sqlite(query.with_tables(names))).fetchall())


def _put(database: sqlite3.Connection, name: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Gives rows a name."""
    database.execute(f"DROP TABLE IF EXISTS {name}")
    database.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
    database.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", rows)


def _for_sqlite(text: str) -> str:
    """Returns a query of Spark for SQLite, which has no semi-joins."""
    tree = sqlglot.parse_one(text, read="spark")
    for select in list(tree.find_all(exp.Select)):
        kept = []
        for join in select.args.get("joins") or []:
            if join.kind not in ("SEMI", "ANTI"):
                kept.append(join)
                continue
            there = exp.Exists(this=exp.select("1").from_(join.this).where(join.args["on"]))
            select.where(exp.not_(there) if join.kind == "ANTI" else there, copy=False)
        select.set("joins", kept)
    return tree.sql("sqlite")
