"""``python -m tests.docs.view_shapes``: writes the table of docs/view-queries.md from what the product says of queries.

Each shape has a query. For each query the rules of the product say whether a refresh is incremental, computes all rows,
or is refused, and whether it needs Spark.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import tablestore
from filestore.errors import TableStoreError
from tablestore import Store
from tablestore.views.engines.either import Engines
from tablestore.views.engines.query_work import QueryWork
from tablestore.views.plan.view_plan import Incremental, plan_view
from tablestore.views.sql.place import Place
from tablestore.views.sql.view_query import view_of_statement
from tests.cli.programs import ROOT

__all__ = ["PAGE", "SHAPES", "Cell", "Shape", "cell", "cells_of_page", "create_tables", "table_of"]

PAGE = ROOT / "docs" / "view-queries.md"
_MARKED = re.compile(r"(?<=<!-- shapes -->\n).*?(?=<!-- end of shapes -->)", re.S)


@dataclass(frozen=True, slots=True)
class Shape:
    """A form of query.

    Attributes:
        title: What it is, in the words of SQL.
        query: A query of that form.
        primary_key: The key that the statement gives.
    """

    title: str
    query: str
    primary_key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """What the product says of a shape.

    Attributes:
        how: ``incremental``, ``whole``, or ``refused``.
        where: Whether ``Spark`` is needed; ``-`` if it is refused.
        why: The reason, if it is not incremental without Spark.
    """

    how: str
    where: str
    why: str


_O, _I, _V = "shop.orders AS o", "shop.items AS i", "shop.visits AS v"
SHAPES: tuple[Shape, ...] = (
    Shape("columns, expressions, WHERE", f"SELECT id, amount * 2 AS twice FROM {_O} WHERE kind = 'a'"),
    Shape("JOIN on equal columns", f"SELECT o.id, i.name FROM {_O} JOIN {_I} ON o.item = i.id"),
    Shape("JOIN by any other condition", f"SELECT o.id, i.id AS item FROM {_O} JOIN {_I} ON o.amount > i.price"),
    Shape("LEFT JOIN on equal columns", f"SELECT o.id, i.name FROM {_O} LEFT JOIN {_I} ON o.item = i.id"),
    Shape(
        "… whose WHERE asks for a missing row",
        f"SELECT o.id FROM {_O} LEFT JOIN {_I} ON o.item = i.id WHERE i.id IS NULL",
    ),
    Shape(
        "LEFT JOIN on an expression that equals a column",
        f"SELECT o.id, i.name FROM {_O} LEFT JOIN {_I} ON o.item % 100 = i.id",
    ),
    Shape(
        "LEFT JOIN by another condition",
        f"SELECT o.id, i.id AS item FROM {_O} LEFT JOIN {_I} ON o.amount > i.price",
        ("id",),
    ),
    Shape("FULL JOIN", f"SELECT coalesce(o.id, i.id) AS id FROM {_O} FULL JOIN {_I} ON o.item = i.id", ("id",)),
    Shape("LEFT SEMI, LEFT ANTI JOIN", f"SELECT o.id FROM {_O} LEFT ANTI JOIN {_I} ON o.item = i.id"),
    Shape(
        "a table joined with itself",
        "SELECT a.id, b.kind FROM shop.orders AS a LEFT JOIN shop.orders AS b ON a.item = b.id",
    ),
    Shape(
        "four tables and more",
        f"SELECT o.id, i.name, p.kind, q.kind AS other FROM {_O} JOIN {_I} ON o.item = i.id "
        "LEFT JOIN shop.orders AS p ON p.id = i.id LEFT JOIN shop.orders AS q ON q.id = p.item",
    ),
    Shape(
        "EXISTS, NOT EXISTS",
        f"SELECT id FROM {_O} WHERE NOT EXISTS (SELECT 1 FROM {_I} WHERE i.id = o.item AND price > 1)",
    ),
    Shape("IN with a subquery", f"SELECT id FROM {_O} WHERE item IN (SELECT id FROM {_I})"),
    Shape("NOT IN with a subquery", f"SELECT id FROM {_O} WHERE id NOT IN (SELECT id FROM {_I})"),
    Shape("… whose values may be null", f"SELECT id FROM {_O} WHERE item NOT IN (SELECT id FROM {_I})", ("id",)),
    Shape(
        "a subquery that joins tables",
        f"SELECT id FROM {_O} WHERE EXISTS (SELECT 1 FROM {_I} JOIN shop.orders AS p ON p.item = i.id "
        "WHERE i.id = o.item AND p.id < o.id)",
    ),
    Shape(
        "a subquery that is a value, with an equal column",
        f"SELECT id, (SELECT max(price) FROM {_I} WHERE i.id = o.item) AS price FROM {_O}",
    ),
    Shape("… without one", f"SELECT id, (SELECT max(price) FROM {_I}) AS price FROM {_O}", ("id",)),
    Shape(
        "subqueries in FROM, WITH",
        f"WITH named AS (SELECT id, name FROM {_I} WHERE price > 1) SELECT o.id, n.name FROM {_O} "
        "JOIN named AS n ON o.item = n.id",
    ),
    Shape("GROUP BY, without nulls", f"SELECT kind, count(*) AS n FROM {_O} WHERE kind IS NOT NULL GROUP BY kind"),
    Shape("GROUP BY with a key that is given", f"SELECT kind, sum(amount) AS s FROM {_O} GROUP BY kind", ("kind",)),
    Shape("GROUP BY of a column that may be null", f"SELECT kind, count(*) AS n FROM {_O} GROUP BY kind"),
    Shape(
        "GROUP BY over a join, HAVING",
        f"SELECT coalesce(i.name, '-') AS name, max(o.amount) AS most FROM {_O} LEFT JOIN {_I} ON o.item = i.id "
        "GROUP BY coalesce(i.name, '-') HAVING count(*) > 1",
    ),
    Shape(
        "groups of groups",
        f"SELECT n, count(*) AS kinds FROM (SELECT kind, count(*) AS n FROM {_O} GROUP BY kind) GROUP BY n",
    ),
    Shape("aggregates of all rows", f"SELECT count(*) AS n, 1 AS one FROM {_O}", ("one",)),
    Shape(
        "ROLLUP, CUBE", f"SELECT coalesce(kind, '-') AS kind, count(*) AS n FROM {_O} GROUP BY ROLLUP (kind)", ("kind",)
    ),
    Shape("an aggregate that depends on the order", f"SELECT id, first(kind) AS k FROM {_O} GROUP BY id"),
    Shape("DISTINCT", f"SELECT DISTINCT kind FROM {_O} WHERE kind IS NOT NULL"),
    Shape(
        "OVER (PARTITION BY columns)",
        f"SELECT id, sum(amount) OVER (PARTITION BY kind) AS total FROM {_O}",
    ),
    Shape(
        "the first rows of each partition",
        f"SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY kind ORDER BY amount, id) AS n FROM {_O}) "
        "WHERE n <= 3",
    ),
    Shape(
        "… the first one alone, which is known by these columns",
        f"SELECT kind, at FROM (SELECT kind, at, row_number() OVER (PARTITION BY kind ORDER BY at, id) AS n FROM {_O}) "
        "WHERE n = 1 AND kind IS NOT NULL",
    ),
    Shape("OVER without PARTITION BY", f"SELECT id, rank() OVER (ORDER BY amount) AS place FROM {_O}"),
    Shape(
        "UNION ALL with a key that is given",
        f"SELECT id, kind AS name FROM {_O} WHERE id < 1000 UNION ALL SELECT id + 1000 AS id, name FROM {_I}",
        ("id",),
    ),
    Shape("UNION ALL without a key", f"SELECT id, kind AS name FROM {_O} UNION ALL SELECT id, name FROM {_I}"),
    Shape("UNION, INTERSECT, EXCEPT", f"SELECT id FROM {_O} UNION SELECT id FROM {_I}", ("id",)),
    Shape(
        "groups of a table without a key", f"SELECT page, count(*) AS n FROM {_V} WHERE page IS NOT NULL GROUP BY page"
    ),
    Shape("rows of a table without a key", f"SELECT page, item FROM {_V}"),
    Shape("ORDER BY, LIMIT", f"SELECT id FROM {_O} ORDER BY amount, id LIMIT 3", ("id",)),
    Shape("LATERAL VIEW, explode", f"SELECT id, word FROM {_O} LATERAL VIEW explode(split(kind, ' ')) w AS word"),
    Shape("a pipe", f"FROM {_O} |> SELECT id, kind"),
    Shape(
        "groups by day",
        f"SELECT to_date(at) AS day, count(*) AS n FROM {_O} WHERE at IS NOT NULL GROUP BY to_date(at)",
        ("day",),
    ),
    Shape("functions that this process does not know", f"SELECT id, upper(kind) AS kind FROM {_O}"),
    Shape("chance, the clock, the user", f"SELECT id, rand() AS r FROM {_O}"),
)
"""The shapes, in the order of the page."""


def create_tables(store: Store) -> None:
    """Creates the tables of the queries."""
    store.create_database("shop", if_not_exists=True)
    columns = "id BIGINT, kind STRING, item BIGINT, amount BIGINT, at TIMESTAMP"
    store.create_table("shop.orders", columns, primary_key=["id"])
    store.create_table("shop.items", "id BIGINT, name STRING, price BIGINT", primary_key=["id"])
    store.create_table("shop.visits", "page STRING, item BIGINT")


def cell(store: Store, shape: Shape) -> Cell:
    """Asks the product about a shape."""
    try:
        query = view_of_statement(shape.query, Place("", "shop"), lambda name: store.table(name).definition)
    except TableStoreError as error:
        return Cell("refused", "-", error.message.partition(": ")[2])
    tables = {name: store.table(name) for name in query.tables}
    states = {name: table.filestore.state() for name, table in tables.items()}
    plan = plan_view(query, {name: state.definition for name, state in states.items()}, {}, shape.primary_key)
    settings = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}
    work = QueryWork(query, plan, settings, {name: state.version for name, state in states.items()}, tables=tables)
    why_spark = Engines().why_spark(work, 1)
    how = "incremental" if isinstance(plan, Incremental) else "whole"
    reasons = [*([] if isinstance(plan, Incremental) else [plan.reason]), *([why_spark] if why_spark else [])]
    return Cell(how, "no" if why_spark is None else "yes", "; ".join(dict.fromkeys(reasons)))


def cells_of_page() -> dict[str, Cell]:
    """Returns what the page says of each shape."""
    found = _MARKED.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    rows = [re.split(r" (?<!\\)\| ", f" {line} ")[1:] for line in found[0].splitlines()[2:]]
    return {title: Cell(how, where, why) for title, _, how, where, why, *_ in rows}


def table_of(store: Store) -> str:
    """Returns the table of the page."""
    return "\n".join(_lines(store)) + "\n"


def _lines(store: Store) -> Iterator[str]:
    yield "| form | query | refresh | needs Spark | why |"
    yield "|---|---|---|---|---|"
    for shape in SHAPES:
        found = cell(store, shape)
        text = shape.query.replace("shop.", "").replace("|", "\\|")
        key = f", `PRIMARY KEY ({', '.join(shape.primary_key)})`" if shape.primary_key else ""
        why = found.why.replace("|", "\\|").replace("shop.", "")
        yield f"| {shape.title} | `{text}`{key} | {found.how} | {found.where} | {why} |"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, tablestore.connect(folder) as store:
        create_tables(store)
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(_MARKED.sub(lambda _: table_of(store), text), encoding="utf-8")


if __name__ == "__main__":
    main()
