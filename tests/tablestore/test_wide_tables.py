"""The work for a table is proportional to its columns: what is done for each column asks for no list of all of them."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from filestore.model.files import Slot
from filestore.model.rowkind import RowKind
from filestore.rows.fitting import checked, compensation
from filestore.rows.partitions import with_partition
from log.table.rows import conform, project, row_schema
from tablestore import Store
from tablestore.kafka_table import _fitted
from tests.tables import define
from tests.warehouses import warehouse

FEW, MANY = 40, 160
Calls = dict[tuple[str, str], int]


def columns_of(count: int) -> str:
    return ", ".join(["id BIGINT", *(f"c{number} BIGINT" for number in range(count))])


def rows_of(count: int, value: int = 0) -> pa.Table:
    return pa.table({"id": [1, 2, 3], **{f"c{number}": [value, value, None] for number in range(count)}})


def calls_of(work: Callable[[], Any]) -> Calls:
    """How often each function was called in this thread."""
    profile = cProfile.Profile()
    profile.runcall(work)
    found: Calls = {}
    for (file, _, name), (_, count, *_) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]  # a dict
        found[file, name] = found.get((file, name), 0) + count
    return found


def steps(store: Store, count: int) -> dict[str, Calls]:
    """The life of a table with that many columns, and the calls of each step."""
    found: dict[str, Calls] = {}
    summed = {f"fields.c{number}.aggregate-function": "sum" for number in range(count)}
    options = {"merge-engine": "aggregation", **summed}
    found["create with options"] = calls_of(
        lambda: store.create_table("shop.summed", columns_of(count), primary_key=["id"], options=options)
    )
    found["sum"] = calls_of(lambda: store.table("shop.summed").write(rows_of(count)))
    groups = {f"fields.c{number}.sequence-group": f"c{number + 1}" for number in range(0, count, 2)}
    grouped = store.create_table(
        "shop.grouped", columns_of(count), primary_key=["id"], options={"merge-engine": "partial-update", **groups}
    )
    found["sequence groups"] = calls_of(lambda: grouped.write(rows_of(count)))
    kept = {"changelog-producer": "lookup", "log.system": "embedded"}
    found["create"] = calls_of(
        lambda: store.create_table("shop.wide", columns_of(count), primary_key=["id"], options=kept)
    )
    table = store.table("shop.wide")
    table.write(rows_of(count))
    work: dict[str, Callable[[], Any]] = {
        "write": lambda: table.write(rows_of(count, 1)),
        "write dicts": lambda: table.write(rows_of(count, 2).to_pylist()),
        "scan": lambda: table.scan(where="c1 = 2").to_pylist(),
        "get": lambda: table.get([1]),
        "follow": lambda: list(table.follow(stop=3)),
        "changes": lambda: list(table.follow(mode="changelog", version=1, stop=3)),
        "system tables": lambda: [table.system(name).to_arrow() for name in ("files", "schemas", "audit_log")],
        "compact": lambda: table.compact(full=True),
        "drop and rename": lambda: table.alter("DROP COLUMN c3", "RENAME COLUMN c4 TO d4"),
        "older changes": lambda: list(table.follow(mode="changelog", version=1, stop=3)),
        "doctor": table.examine,
    }
    return found | {name: calls_of(step) for name, step in work.items()}


@pytest.mark.slow
def test_no_function_is_called_for_each_pair_of_columns() -> None:
    with warehouse() as first, warehouse() as second:
        few, many = steps(first, FEW), steps(second, MANY)
    for step, calls in many.items():
        for name, count in calls.items():
            before = max(few[step].get(name, 0), FEW)
            assert count < 8 * before, (
                f"{step}: {name} is called {before} times, and {count} times at four times as many"
            )


class Counted:
    """Rows that count how often they are asked for all their names."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows, self.asked = rows, 0

    def __getattr__(self, name: str) -> Any:
        self.asked += name in ("column_names", "schema")
        return getattr(self.rows, name)

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        return self.rows[name]


def _checked(rows: Any, count: int) -> None:
    checked(rows, define(columns_of(count), ["id"]))


def _compensated(rows: Any, count: int) -> None:
    compensation(rows, Slot((), 0), define(columns_of(count), ["id"]), RowKind.DELETE)


def _conformed(rows: Any, count: int) -> None:
    conform(rows, row_schema(define(columns_of(count), ["id"]).schema, ["id"]))


def _projected(rows: Any, count: int) -> None:
    project(rows, rows_of(count).schema)


def _partitioned(rows: Any, count: int) -> None:
    with_partition(rows, (), rows_of(count).schema)


def _for_kafka(rows: Any, count: int) -> None:
    _fitted(rows, rows_of(count).schema)


@pytest.mark.parametrize("work", [_checked, _compensated, _conformed, _projected, _partitioned, _for_kafka])
def test_all_names_are_asked_for_once_and_not_for_each_column(work: Callable[[Any, int], None]) -> None:
    def asked(count: int) -> int:
        rows = Counted(rows_of(count).append_column("_kind", pa.array(["+I"] * 3)))
        work(rows, count)
        return rows.asked

    assert asked(4) == asked(20)
