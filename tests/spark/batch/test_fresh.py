"""``fresh=True`` in Spark is what it is locally, and what the next commit makes of the table."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any

import pytest

from filestore.errors import InvalidRequest
from filestore.storage.local import LocalStorage
from tablestore import Store, Table
from tablestore.spark import SparkStore
from tests.depth import sampled
from tests.faults import Call, FaultyStorage
from tests.integration.test_eventual_log import between, on
from tests.tables import in_order
from tests.warehouses import assert_whole, rows, to_arrow

pytestmark = pytest.mark.slow

Row = dict[str, Any]
COLUMNS = "id BIGINT, day STRING, n BIGINT, t STRING NOT NULL"
EVENTUAL = {"bucket": "3", "log.consistency": "eventual"}
SHAPES: Mapping[str, Mapping[str, str]] = {
    "last": EVENTUAL,
    "newest": EVENTUAL | {"sequence.field": "n", "sequence.tombstone-retention": "0 s"},
    "summed": EVENTUAL | {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"},
    "kafka": EVENTUAL | {"log.system": "kafka"},
    "tombstones": EVENTUAL | {"log.system": "kafka", "log.delete-format": "tombstone"},
}


def make(store: Store, options: Mapping[str, str], request: pytest.FixtureRequest) -> Table:
    if options.get("log.system") == "kafka":
        broker = request.getfixturevalue("kafka_broker")
        options = dict(options) | {"log.kafka.bootstrap.servers": broker.bootstrap}
    partitioned = "merge-engine" not in options
    return store.create_table(
        "shop.t",
        COLUMNS,
        primary_key=["id", "day"] if partitioned else ["id"],
        partition_by=["day"] if partitioned else [],
        options=options,
    )


def some(first: int, end: int, n: int) -> list[Row]:
    return [{"id": i, "day": f"d{i % 2}", "n": n + i % 5, "t": f"t{n}"} for i in range(first, end)]


def by_spark(lake: SparkStore, **how: Any) -> list[Row]:
    return in_order(row.asDict() for row in lake.read("shop.t", **how).collect())


@pytest.mark.deep
@pytest.mark.kafka
@pytest.mark.parametrize("shape", sampled(SHAPES, len(SHAPES), test=len(SHAPES)))
def test_it_is_the_local_one_and_what_is_committed_next(
    lake: SparkStore, store: Store, request: pytest.FixtureRequest, shape: str
) -> None:
    table = make(store, SHAPES[shape], request)
    table.write(to_arrow(table, some(0, 200, 10)))
    taken = [] if shape == "summed" else [row | {"_kind": "-D"} for row in some(100, 140, 20)]
    rising = [row | {"_kind": "+U"} for row in [*some(150, 260, 20), *some(0, 30, 5)]]
    seen: dict[str, list[Row]] = {}

    def look() -> None:
        seen["before"] = rows(table)
        seen["spark"] = by_spark(lake, fresh=True)
        seen["local"] = in_order(table.scan(fresh=True).to_arrow().to_pylist())
        found = lake.read("shop.t", fresh=True).where("n >= 22 AND day = 'd1'").select("t", "id")
        seen["some"] = in_order(row.asDict() for row in found.collect())
        seen["old"] = by_spark(lake)

    between(table, look).write(to_arrow(table, [*rising, *taken]))
    after = rows(table)
    assert seen["spark"] == seen["local"] == after != seen["before"]
    assert seen["old"] == seen["before"]
    assert seen["some"] == in_order(
        {"t": row["t"], "id": row["id"]} for row in after if row["n"] >= 22 and row["day"] == "d1"
    )
    assert seen["some"]
    assert by_spark(lake, fresh=True) == after == assert_whole(table)


@pytest.mark.deep
def test_columns_are_pruned_and_filters_pushed_and_columns_that_changed_are_known(
    lake: SparkStore, store: Store, request: pytest.FixtureRequest
) -> None:
    table = make(store, EVENTUAL | {"schema.evolution-mode": "metadata"}, request)
    table.write(to_arrow(table, some(0, 100, 10)))
    table.alter("RENAME COLUMN n TO number", "ADD COLUMN extra BIGINT")
    reported = [{"id": i, "day": "d0", "number": 90, "t": "x", "extra": i} for i in range(50, 150)]
    plans: list[str] = []

    def look() -> None:
        with redirect_stdout(io.StringIO()) as printed:
            lake.read("shop.t", fresh=True).where("number > 80").select("id").explain()
        plans.append(printed.getvalue())
        plans.append(repr(by_spark(lake, fresh=True)))

    between(table, look).write(to_arrow(table, reported))
    assert "IsNotNull(number), GreaterThan(number,80)]" in plans[0]
    assert "t:string" not in plans[0]
    assert plans[1] == repr(rows(table))


def test_records_of_a_dead_writer_are_there_until_they_are_repaired(
    lake: SparkStore, store: Store, request: pytest.FixtureRequest
) -> None:
    table = make(store, EVENTUAL, request)
    table.write(to_arrow(table, some(0, 10, 1)))

    def dying(call: Call) -> None:
        if call.operation == "write_new" and call.path.endswith(".json"):
            raise SystemExit

    with pytest.raises(SystemExit):
        on(table, FaultyStorage(LocalStorage(), dying)).write(to_arrow(table, some(5, 15, 50)))
    local = in_order(table.scan(fresh=True).to_arrow().to_pylist())
    assert by_spark(lake, fresh=True) == local != rows(table)
    table.recover()
    assert by_spark(lake, fresh=True) == by_spark(lake) == rows(table)


@pytest.mark.parametrize("mode", sampled(["merge-on-read", "merge-on-write"], 2, test=2))
def test_a_transactional_log_shows_nothing_more_and_pending_runs_are_merged(
    lake: SparkStore, store: Store, mode: str
) -> None:
    options = {"bucket": "3", "write-mode": mode}
    table = store.create_table("shop.t", COLUMNS, primary_key=["id"], options=options)
    table.write(to_arrow(table, some(0, 20, 1)))
    seen: list[list[Row]] = []
    between(table, lambda: seen.append(by_spark(lake, fresh=True))).write(to_arrow(table, some(10, 30, 2)))
    assert seen == [rows(table, 1)]
    assert by_spark(lake, fresh=True) == in_order(table.scan(fresh=True).to_arrow().to_pylist()) == rows(table)


def test_fresh_and_an_older_state_exclude_each_other(lake: SparkStore, store: Store) -> None:
    store.create_table("shop.t", COLUMNS, primary_key=["id"])
    with pytest.raises(InvalidRequest) as caught:
        lake.read("shop.t", version=0, fresh=True)
    assert caught.value.code == "bad-time-travel"
