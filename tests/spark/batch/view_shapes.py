"""Random queries of all forms that are refreshed from what has changed, and small changes of their tables."""

from __future__ import annotations

import random

from tablestore import Table
from tests.spark.batch.view_cases import VALUES, Case
from tests.tables import to_arrow

__all__ = ["moved", "shape"]

_JOINS = ["JOIN", "LEFT JOIN", "LEFT JOIN"]
_PLANETS = ["", "", " AND p.star <> 's3'", " AND o.amount > 0", " AND (p.name IS NULL OR o.kind <> 'a')"]
_STARS = ["", "", " AND s.mass > 0", " AND p.name <> 'Giedi'"]
_PARTNERS = ["", "", " AND q.amount > 0"]
_OF_ORDERS = ["o.amount > 0", "o.kind IS NULL OR o.kind <> 'b'"]
_OF_PLANETS = [
    "p.id IS NULL",
    "p.name IS NULL OR p.name > 'B'",
    "coalesce(p.star, 's2') > 's1'",
    "p.star IS DISTINCT FROM 's1'",
    "NOT (p.name <=> 'Giedi' OR o.amount = 3)",
    "CASE WHEN p.id IS NULL THEN o.amount > 1 ELSE p.star = 's2' END",
]
_OF_STARS = ["s.star IS NULL", "coalesce(s.mass, 1) = 1", "s.mass IS NULL OR p.name IS NULL"]
_OF_PARTNERS = ["q.id IS NULL", "q.amount IS NULL OR q.amount < o.amount", "coalesce(q.kind, 'b') > 'a'"]


def shape(dice: random.Random) -> Case:
    """Returns a query: rows or groups of one to three tables, joined in any allowed way, with any conditions."""
    tables, conditions = "shop.orders o", [*_OF_ORDERS]
    columns, groups = ["o.amount"], [("coalesce(o.kind, '-')", ""), ("o.kind", "o.kind IS NOT NULL")]
    number = dice.choice([1, 2, 2, 2, 3, 3])
    if number > 1 and dice.randrange(4) == 0:  # the table itself
        tables += f" {dice.choice(_JOINS)} shop.orders q ON q.id = o.planet{dice.choice(_PARTNERS)}"
        conditions, columns = conditions + 2 * _OF_PARTNERS, [*columns, "q.amount AS other"]
        groups = [("coalesce(q.kind, '?')", ""), ("q.kind", "q.kind IS NOT NULL")]
        number = 1
    if number > 1:
        tables += f" {dice.choice(_JOINS)} shop.planets p ON o.planet = p.id{dice.choice(_PLANETS)}"
        conditions, columns = conditions + 2 * _OF_PLANETS, [*columns, "p.name", "p.star"]
        groups += [("coalesce(p.name, '?')", ""), ("p.star", "p.star IS NOT NULL")]
    if number > 2:
        with_using = dice.randrange(3) == 0
        on = "USING (star)" if with_using else f"ON s.star = p.star{dice.choice(_STARS)}"
        tables += f" {dice.choice(_JOINS)} shop.stars s {on}"
        conditions, columns = conditions + 3 * _OF_STARS, [*columns, "s.mass"]
        groups += [("coalesce(s.mass, -1)", ""), ("s.mass", "s.mass > 0")]
    wanted = [f"({dice.choice(conditions)})" for _ in range(dice.choice([0, 1, 1, 1, 2]))]
    if dice.randrange(2):
        return Case(_selected(f"o.id, {', '.join(columns)}", tables, wanted))
    group, not_null = dice.choice(groups)
    having = dice.choice(["", "", " HAVING count(*) > 1", " HAVING min(o.amount) < 2"])
    items = f"{group} AS g, count(*) AS n, sum(o.amount) AS total, max(o.price) AS high"
    wanted += [not_null] if not_null else []
    return Case(f"{_selected(items, tables, wanted)} GROUP BY {group}{having}", primary_key=["g"])


def _selected(items: str, tables: str, conditions: list[str]) -> str:
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {items} FROM {tables}{where}"


def moved(table: Table, dice: random.Random, most: int) -> None:
    """Inserts, replaces and deletes a few rows, so that most rows stay as they are while their partners come and go."""
    values = VALUES[table.identifier]
    key = table.definition.primary_key[0]
    given = [{n: v(dice) for n, v in values.items()} for _ in range(dice.randint(1, most))]
    found = {row[key]: row | {"_kind": dice.choice(["+I", "+I", "-D"])} for row in given}
    table.write(to_arrow(table.definition, found.values()))
