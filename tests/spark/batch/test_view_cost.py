"""Views that Spark computes as a whole in one step, whose rows this process compares with the stored ones."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from filestore.errors import InvalidRequest
from tablestore import Store, Table
from tablestore.local_sql.refusal import NotLocalError
from tablestore.spark import SparkStore
from tablestore.spark.batch.view_engine import SparkViews
from tablestore.views.engines.query_work import QueryWork
from tests.depth import Depth
from tests.tables import assert_healthy
from tests.tablestore.views.own_tasks import forged
from tests.warehouses import Row, rows

EXACT = "SELECT id, upper(name) AS name, g FROM shop.a"
GROUPS = (
    "SELECT g, avg(CAST(v AS DECIMAL(30, 2))) AS mean, sum(v) AS total, min(upper(name)) AS name FROM shop.a "
    "WHERE g IS NOT NULL GROUP BY g"
)
JOINED = (
    "SELECT coalesce(b.kind, -1) AS kind, count(*) AS n, sum(a.v) AS total, max(lower(b.label)) AS label "
    "FROM shop.a AS a LEFT JOIN shop.b AS b ON a.g = b.id GROUP BY coalesce(b.kind, -1)"
)


@pytest.fixture
def tables(store: Store) -> tuple[Table, Table]:
    columns = "id BIGINT, g INT, v DOUBLE, name STRING"
    one = store.create_table("shop.a", columns, primary_key=["id"], options={"bucket": "2"})
    return one, store.create_table("shop.b", "id INT, kind INT, label STRING", primary_key=["id"])


def change(tables: tuple[Table, Table], dice: random.Random) -> None:
    one, other = tables
    if dice.random() < 0.8:
        some: list[Row] = [
            {
                "id": key,
                "g": dice.choice([0, 1, 2, 3, None]),
                "v": dice.choice([0.1, 0.2, 1000.5, -7.25, -0.0, None]),
                "name": dice.choice(["ä", "b", "", None]),
            }
            for key in dice.sample(range(12), dice.randrange(1, 5))
        ]
        one.write([row | {"_kind": "-D" if dice.random() < 0.3 else "+I"} for row in some])
    if dice.random() < 0.5:
        row = {"id": dice.randrange(5), "kind": dice.choice([0, 1, None]), "label": dice.choice(["X", None])}
        other.write([row | ({"_kind": "-D"} if dice.random() < 0.3 else {})])


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(8))
def test_rows_that_are_compared_here_are_those_of_spark(
    lake: SparkStore, tables: tuple[Table, Table], seed: int, depth: Depth, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of sums that are not exact only those are written of groups that changes reach."""
    computed: list[str] = []
    of_spark = SparkViews.rows

    def noted(engine: SparkViews, work: QueryWork, definition: object) -> pa.Table:
        computed.append(work.output)
        return of_spark(engine, work, definition)  # type: ignore[arg-type]

    monkeypatch.setattr(SparkViews, "rows", noted)
    dice = random.Random(f"cost {seed}")
    change(tables, dice)
    views = {}
    for number, query in enumerate((EXACT, GROUPS, JOINED)):
        views[query] = lake.create_materialized_view(f"shop.v{number}", query)
        assert "and this process compares them" in views[query].explain()[-1]
        views[query].refresh()
    assert not computed, "the first refresh replaces all rows, which Spark writes"
    for _ in range(depth.times(2, deep=40)):
        change(tables, dice)
        for view in views.values():
            done = view.refresh()
            assert done is None or done.whole
            assert view.compare() == []
    assert set(computed) == {view.table.identifier for view in views.values()}
    for view in views.values():
        assert_healthy(view.table.filestore)


@pytest.mark.slow
def test_a_change_of_a_column_that_is_only_summed_is_one(lake: SparkStore, tables: tuple[Table, Table]) -> None:
    """What finds the keys reads the groups alone, and a row in which only the sum's column differs was left out."""
    one, _ = tables
    one.write([{"id": n, "g": n % 3, "v": 0.5, "name": "a"} for n in range(9)])
    view = lake.create_materialized_view("shop.v", GROUPS)
    view.refresh()
    one.write([{"id": 1, "g": 1, "v": 7.0, "name": "a"}])
    one.write([{"id": 2, "g": 2, "v": 0.5, "name": ""}])
    done = view.refresh()
    assert done is not None
    assert done.whole
    found = {row["g"]: (row["total"], row["name"]) for row in rows(view.table)}
    assert found == {0: (1.5, "A"), 1: (8.0, "A"), 2: (1.5, "")}


@pytest.mark.slow
def test_groups_that_no_change_reaches_are_not_written(lake: SparkStore, tables: tuple[Table, Table]) -> None:
    """Sums of DOUBLE have other last digits each time that their rows come in another order."""
    one, _ = tables
    one.write([{"id": n, "g": n % 3, "v": 0.1, "name": str(n)} for n in range(30)])
    view = lake.create_materialized_view("shop.v", GROUPS)
    view.refresh()
    wrong: Row = {"g": 2, "mean": None, "total": 99.0, "name": "as if its last digits were others"}
    forged(view, wrong)
    one.write([{"id": 0, "g": 1, "v": 5.0, "name": "x"}])  # which was in group 0
    done = view.refresh()
    assert done is not None
    assert done.whole
    found = {row["g"]: row for row in rows(view.table)}
    assert found.pop(2) == wrong
    assert [round(row["total"], 6) for _, row in sorted(found.items())] == [0.9, 6.0]


@pytest.mark.slow
def test_a_result_that_is_too_large_for_a_driver_is_compared_in_spark(
    lake: SparkStore, tables: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> pa.Table:
        raise NotLocalError("its rows are more than spark.driver.maxResultSize")

    one, _ = tables
    one.write([{"id": n, "g": n % 3, "v": 1.0, "name": str(n)} for n in range(30)])
    view = lake.create_materialized_view("shop.v", EXACT)
    view.refresh()
    monkeypatch.setattr(SparkViews, "rows", refused)
    one.write([{"id": 1, "g": 1, "v": 1.0, "name": "new"}])
    done = view.refresh()
    assert done is not None
    assert not done.whole
    assert next(row["name"] for row in rows(view.table) if row["id"] == 1) == "NEW"


@pytest.mark.slow
def test_types_and_special_values_pass_through_arrow(lake: SparkStore, store: Store) -> None:
    columns = (
        "id BIGINT, b BOOLEAN, t TINYINT, s SMALLINT, i INT, f FLOAT, d DOUBLE, c DECIMAL(38, 10), x STRING, y BINARY, "
        "e DATE, ts TIMESTAMP, n TIMESTAMP_NTZ"
    )
    one = store.create_table("shop.t", columns, primary_key=["id"])
    view = lake.create_materialized_view("shop.v", "SELECT *, upper(x) AS u FROM shop.t")
    assert "and this process compares them" in view.explain()[-1]
    view.refresh()
    lake.spark.sql("SET spark.sql.session.timeZone = America/New_York")
    try:
        values = (
            "(1, true, -128, -32768, -2147483648, float('NaN'), -0.0d, -9999999999999999999999999999.9999999999bd, '', "
            "X'00ff', DATE'0001-01-01', TIMESTAMP'1582-10-15 00:00:00Z', TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'),"
            "(2, null, null, null, null, null, null, null, null, null, null, null, null),"
            "(3, false, 127, 32767, 2147483647, float('-Infinity'), 5e-324d, 0bd, 'ä\\u0000b', X'', DATE'9999-12-31', "
            "TIMESTAMP'2026-03-29 01:30:00Z', TIMESTAMP_NTZ'1900-01-01 00:00:00')"
        )
        lake.write("shop.t", lake.spark.sql(f"SELECT * FROM VALUES {values} AS t({', '.join(one.schema.names)})"))
        done = view.refresh()
        assert done is not None
        assert done.whole
        found = lake.read("shop.v").drop("u")
        assert found.exceptAll(lake.read("shop.t")).count() == 0
        assert repr(sorted(map(tuple, found.collect()))) == repr(sorted(map(tuple, lake.read("shop.t").collect())))
        assert view.compare() == []
    finally:
        lake.spark.sql("SET spark.sql.session.timeZone = UTC")


@pytest.mark.slow
def test_a_failure_of_spark_changes_nothing(lake: SparkStore, tables: tuple[Table, Table]) -> None:
    one, _ = tables
    one.write([{"id": 1, "g": 1, "v": 1.0, "name": "1"}])
    view = lake.create_materialized_view("shop.v", "SELECT id, CAST(reverse(name) AS INT) AS n FROM shop.a")
    view.refresh()
    one.write([{"id": 2, "g": 1, "v": 1.0, "name": "none"}])
    with pytest.raises(InvalidRequest) as caught:
        view.refresh()
    assert caught.value.code == "view-query"
    assert rows(view.table) == [{"id": 1, "n": 1}]
