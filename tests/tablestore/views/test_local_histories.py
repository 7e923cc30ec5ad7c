"""Views that this process computes: after any history of their tables they equal their queries, as SQLite runs them."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from contextlib import closing

import pytest

from filestore.errors import InvalidRequest
from tablestore import Store
from tablestore.views.sql.view_query import parse_view
from tablestore.views.view import View
from tests.depth import Depth
from tests.tables import assert_healthy
from tests.tablestore.views.by_sqlite import result
from tests.tablestore.views.script_shapes import shape
from tests.tablestore.views.script_tables import change, created_tables, rows_of

_OPTIONS = [{}, {}, {"write-mode": "merge-on-read"}, {"row-group.rows": "1024"}]


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(24))
def test_a_view_equals_its_query(store: Store, seed: int, depth: Depth) -> None:
    _lived(store, random.Random(f"local histories {seed}"), 3, depth.times(4, deep=20))


@pytest.mark.deep(rarely=4)
@pytest.mark.parametrize("seed", range(16))
def test_a_stream_of_many_steps(store: Store, seed: int) -> None:
    """10,000 steps in all, so that versions expire, and are compacted and checkpointed."""
    _lived(store, random.Random(f"stream {seed}"), 1, 625)


def _lived(store: Store, dice: random.Random, count: int, steps: int) -> None:
    """Refreshes views of random shapes after each of many random changes of their tables."""
    tables = created_tables(store, dice.choice(_OPTIONS))
    change(tables, dice, 8)
    views: list[View] = []
    while len(views) < count:
        one, name = shape(dice), f"s.v{len(views)}"
        options = {"view.check": dice.choice(["none", "sample"])}
        try:
            view = store.create_materialized_view(name, one.query, primary_key=one.primary_key, options=options)
        except InvalidRequest as error:
            assert error.code == "view-key", error  # the shape gave one that another key follows from
            view = store.create_materialized_view(name, one.query, options=options)
        assert "without Spark" in view.explain()[0]
        views.append(view)
    with closing(sqlite3.connect(":memory:")) as database:
        for step in range(steps):
            change(tables, dice, 3)
            for view in views:
                try:
                    refreshed = view.refresh()
                except InvalidRequest as error:  # two rows have the key that the shape gave, or one has a null in it
                    assert error.code in ("repeated-key", "null-key"), error
                    continue
                assert refreshed is None or refreshed.wrong == 0
                query = parse_view(view.query)
                expected = result(database, query, rows_of(tables))
                stored = view.table.scan(columns=list(query.tree.named_selects)).to_arrow().to_pylist()
                assert Counter(tuple(row.values()) for row in stored) == expected, (query.text, refreshed)
                if step < 20 or not step % 100:
                    assert view.compare() == []
    for view in views:
        assert_healthy(view.table.filestore)
