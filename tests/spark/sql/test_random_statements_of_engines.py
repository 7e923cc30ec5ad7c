"""Random statements on tables whose engine merges values, or which have a sequence: docs/sql.md has the rules.

A dict by key is the model. The rows that Delta's statement writes into a plain copy are given to it as changes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tablestore import Store
from tests.depth import Depth, sampled
from tests.spark.sql.conftest import Sql
from tests.spark.sql.plain_readers import assert_all_readers_see, seen_by_polars
from tests.spark.sql.random_statements import COLUMNS, Row, rows, statement, values
from tests.tables import assert_healthy

N, V = 2, 3
Merge = Callable[[Sequence[Row]], Row]


def first(found: Sequence[Any]) -> Any:
    return found[0]


def last(found: Sequence[Any]) -> Any:
    return found[-1]


@dataclass(frozen=True)
class Engine:
    """The rules of a table.

    Attributes:
        options: Its options.
        merged: Makes one row of the rows of a key, which are in their order.
        replaces: Whether a written row replaces the stored one, so that UPDATE and MERGE are possible.
        deletes: Whether DELETE is possible.
        sequence: Whether the column ``n`` orders the rows of a key.
    """

    options: str
    merged: Merge
    replaces: bool = False
    deletes: bool = True
    sequence: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of statements, among them few that are always refused."""
        kept = ("update", "merge", "merge") if self.replaces else ("insert", "inserts any")
        return ("insert", "inserts", "inserts any", "update", "delete", "merge", *kept)

    def refuses(self, text: str) -> bool:
        """Returns whether the statement is refused for any rows."""
        if text.startswith("DELETE"):
            return not self.deletes
        return not self.replaces and (text.startswith("UPDATE") or "WHEN MATCHED" in text or "BY SOURCE" in text)

    def late(self, row: Row, stored: int | None) -> bool:
        """Returns whether a row has a lower sequence than the stored one: null is lower than all others."""
        return self.sequence and stored is not None and (row[N] is None or row[N] < stored)


def by_column(n: Callable[[list[Any]], Any], v: Callable[[list[Any]], Any]) -> Merge:
    """Merges column by column, without nulls."""

    def merged(found: Sequence[Row]) -> Row:
        ns, vs = ([row[column] for row in found if row[column] is not None] for column in (N, V))
        return found[0][0], found[0][1], n(ns) if ns else None, v(vs) if vs else None

    return merged


REMOVES = "remove-record-on-delete' = 'true'"
SUM = "'merge-engine' = 'aggregation', 'fields.n.aggregate-function' = 'sum', 'fields.v.aggregate-function' = 'max'"
LISTAGG = "'merge-engine' = 'aggregation', 'sequence.field' = 'n', 'fields.v.aggregate-function' = 'listagg'"
ENGINES = {
    "aggregation by a sequence": Engine(f"{LISTAGG}, 'aggregation.{REMOVES}", by_column(last, ",".join), sequence=True),
    "aggregation": Engine(SUM, by_column(sum, max), deletes=False),
    "partial-update": Engine(f"'merge-engine' = 'partial-update', 'partial-update.{REMOVES}", by_column(last, last)),
    "partial-update by a sequence": Engine(
        "'merge-engine' = 'partial-update', 'sequence.field' = 'n'", by_column(last, last), deletes=False, sequence=True
    ),
    "first-row": Engine("'merge-engine' = 'first-row'", first, deletes=False),
    "deduplicate by a sequence": Engine("'sequence.field' = 'n'", last, replaces=True, sequence=True),
}
MODES = {
    "merge-on-write": "'write-mode' = 'merge-on-write'",
    "merge-on-read": "'write-mode' = 'merge-on-read', 'log.system' = 'none'",
}
CASES = [(engine, mode) for engine in ENGINES for mode in MODES]


@dataclass
class Model:
    """The rows that a table has to have.

    Attributes:
        engine: Its rules.
        rows: Its rows by key.
        deleted: The sequences of deleted rows by key, of an engine that replaces rows.
    """

    engine: Engine
    rows: dict[int, Row] = field(default_factory=dict)
    deleted: dict[int, int | None] = field(default_factory=dict)

    def late(self, row: Row) -> bool:
        """Returns whether the row is later than what is stored or was deleted, which an engine that merges accepts."""
        stored = self.rows[row[0]][N] if row[0] in self.rows else None
        return self.engine.replaces and any(self.engine.late(row, n) for n in (stored, self.deleted.get(row[0])))

    def write(self, given: Iterable[Row]) -> None:
        """Merges the rows of one commit."""
        by_key: dict[int, list[Row]] = {}
        for row in given:
            if not self.late(row):
                by_key.setdefault(row[0], []).append(row)
        for key, found in by_key.items():
            history = [self.rows[key], *found] if key in self.rows else found
            if self.engine.sequence:
                history.sort(key=lambda row: (row[N] is not None, row[N] or 0))
            self.rows[key] = self.engine.merged(history)

    def take(self, before: list[Row], after: list[Row]) -> bool:
        """Gives the engine what a statement changed in a plain table; returns whether it accepts that."""
        written = list((Counter(after) - Counter(before)).elements())
        if any(map(self.late, written)):
            return False
        for key in {row[0] for row in before} - {row[0] for row in after}:
            self.deleted[key] = self.rows.pop(key)[N]
        self.write(written)
        return True

    def listed(self) -> list[Row]:
        return sorted(self.rows.values(), key=repr)


@pytest.mark.parametrize(("engine", "mode"), sampled(CASES, len(CASES), test=len(CASES), names=2))
def test_statements_do_what_the_engine_says(
    sql: Sql, store: Store, folder: Path, engine: str, mode: str, depth: Depth
) -> None:
    chance = random.Random(random.randrange(1 << 30))
    rules = ENGINES[engine]
    sql(f"CREATE TABLE lake.shop.t ({COLUMNS}, PRIMARY KEY (id)) WITH ({rules.options}, {MODES[mode]})")
    model = Model(rules)
    given = rows(chance, range(10))
    sql(f"INSERT INTO lake.shop.t VALUES {values(given)}")
    model.write(given)
    theirs = f"delta.`{folder}/theirs`"
    sql(f"CREATE TABLE {theirs} USING delta AS SELECT * FROM lake.shop.t")
    table = store.table("shop.t")
    for number in range(depth.times(2, deep=10)):
        text = run_one(sql, model, theirs, chance)
        assert sql("SELECT * FROM lake.shop.t") == model.listed(), f"after statement {number}: {text}"
        if mode == "merge-on-write":
            assert seen_by_polars(table) == model.listed(), f"seen by polars after statement {number}: {text}"
        elif chance.random() < 1 / 3:
            table.compact(full=True)
    assert_healthy(table.filestore)
    assert_all_readers_see(sql, table, model.listed())


def run_one(sql: Sql, model: Model, theirs: str, chance: random.Random) -> str:
    """Runs a random statement on the table, the plain copy and the model, and returns it."""
    kind = chance.choice(model.engine.kinds)
    if kind == "insert":
        given = rows(chance, chance.choices(range(14), k=chance.randrange(1, 6)))
        text = f"INSERT INTO {{t}} VALUES {values(given)}"
        sql(text.replace("{t}", "lake.shop.t"))
        model.write(given)
    else:
        text = statement(chance, [kind])
        if model.engine.refuses(text):
            refused(sql, text, "merge-engine")
            return text
        before = model.listed()
        sql(text.replace("{t}", theirs))
        after = sql(f"SELECT * FROM {theirs}")
        if model.engine.replaces and len({row[0] for row in after}) < len(after):
            refused(sql, text, "repeated-key")
        elif model.take(before, after):
            sql(text.replace("{t}", "lake.shop.t"))
            if after == model.listed():
                return text
        else:
            refused(sql, text, "late-rows")
    sql(f"INSERT OVERWRITE {theirs} SELECT * FROM lake.shop.t")
    return text


def refused(sql: Sql, text: str, code: str) -> None:
    with pytest.raises(PySparkException, match=code):
        sql(text.replace("{t}", "lake.shop.t"))
