"""Random statements on tables with the columns `COLUMNS`."""

from __future__ import annotations

import random
from collections.abc import Sequence

__all__ = ["COLUMNS", "Row", "rows", "statement", "values"]

Row = tuple[int, str, int | None, str | None]
COLUMNS = "id BIGINT, p STRING, n INT, v STRING"
CONDITIONS = (
    "id = {i}",
    "n > {n}",
    "p = '{p}'",
    "v IS NULL",
    "id IN ({i}, {j})",
    "n + id > {n}",
    "id % 3 = 1",
)
SETS = ("n = n + {n}", "v = concat(v, '{p}')", "v = NULL, n = {n}", "n = {n}")
MATCHED = (
    "WHEN MATCHED THEN UPDATE SET *",
    "WHEN MATCHED AND s.n > {n} THEN UPDATE SET n = s.n + t.n",
    "WHEN MATCHED AND t.n > {n} THEN DELETE",
    "WHEN MATCHED THEN DELETE",
    "",
)
NOT_MATCHED = ("WHEN NOT MATCHED THEN INSERT *", "WHEN NOT MATCHED AND s.n > {n} THEN INSERT *", "")
LEFT = (
    "WHEN NOT MATCHED BY SOURCE AND t.n > {n} THEN UPDATE SET v = 'left'",
    "WHEN NOT MATCHED BY SOURCE AND t.id = {i} THEN DELETE",
    "",
    "",
)
BY_KEY = "t.id = s.id AND t.p = s.p"


def rows(chance: random.Random, ids: Sequence[int]) -> list[Row]:
    """Returns a row for each id. A row's partition follows from its id, so keys are the same with and without it."""
    return [(i, f"p{i % 2}", chance.choice([None, *range(9)]), chance.choice(["a", "b", None])) for i in ids]


def values(given: Sequence[Row]) -> str:
    """Writes rows as the list behind VALUES."""

    def literal(value: object) -> str:
        return "NULL" if value is None else repr(value)

    return ", ".join(f"({i}L, '{p}', CAST({literal(n)} AS INT), {literal(v)})" for i, p, n, v in given)


def statement(chance: random.Random, kinds: Sequence[str]) -> str:
    """Returns a statement on ``{t}``.

    Args:
        chance: Chooses it.
        kinds: The kinds among which it chooses: ``update``, ``delete``, ``merge``, or a merge that only ``inserts``
            rows, whose keys the table lacks, or with ``inserts any`` perhaps not.
    """
    filled = {
        "i": chance.randrange(12),
        "j": chance.randrange(12),
        "n": chance.randrange(9),
        "p": f"p{chance.randrange(2)}",
    }

    def some(choices: Sequence[str]) -> str:
        return chance.choice(choices).format(**filled)

    kind = chance.choice(kinds)
    if kind == "update":
        return f"UPDATE {{t}} SET {some(SETS)} WHERE {some(CONDITIONS)}"
    if kind == "delete":
        return f"DELETE FROM {{t}} WHERE {some(CONDITIONS)} AND {some(CONDITIONS)}"
    source = rows(chance, sorted(chance.sample(range(14), chance.randrange(1, 6))))
    merge = f"MERGE INTO {{t}} t USING (SELECT * FROM VALUES {values(source)} AS s(id, p, n, v)) s"
    if kind.startswith("inserts"):
        return f"{merge} ON {BY_KEY if kind == 'inserts' else 't.n = s.n'} {some(NOT_MATCHED[:2])}"
    actions = [some(MATCHED), some(NOT_MATCHED), some(LEFT)]
    if not any(actions[::2]):
        actions[0] = MATCHED[0]
    return f"{merge} ON {BY_KEY} {' '.join(actions)}"
