"""NEXMark's queries as views: after each batch of events they have the rows that Spark computes."""

from __future__ import annotations

import pytest

from tablestore import Store
from tablestore.spark import SparkStore
from tests.bench.nexmark import check, created
from tests.bench.nexmark_tables import QUERIES, Nexmark
from tests.depth import Depth
from tests.tables import assert_healthy

BY_SPARK = ("q5", "q7", "q8", "q11", "q12")
"""Those with windows."""


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("number", QUERIES)
def test_a_query_is_right_at_each_step(lake: SparkStore, store: Store, number: str, depth: Depth) -> None:
    events = Nexmark(store)
    view, whole = created(lake, number)
    assert ("by Spark" in view.explain()[0]) == (number in BY_SPARK)
    assert ("incrementally" in view.explain()[0]) == (number != "q11")
    for _ in range(depth.times(2, deep=4)):
        events.write(500, per_second=20)
        view.refresh()
        whole.rebuild()
        check(lake, view, whole)
    assert view.table.scan().to_arrow().num_rows
    assert_healthy(view.table.filestore)
