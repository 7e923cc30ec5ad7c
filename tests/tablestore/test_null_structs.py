"""Null STRUCTs with NOT NULL fields in managed tables: every merge engine, changelog producer and write mode.

Writes that look rows up failed with ``bad-value``, and readers of changes with ``schema-changed``: Arrow cannot cast
such a column, not even to its own type.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from tablestore import Store, Table
from tests.depth import sampled
from tests.tables import assert_healthy, in_order, read_deltalake
from tests.warehouses import assert_same_rows, changes, replay, rows

Row = dict[str, Any]

COLUMNS = (
    "id BIGINT, v INT, s STRUCT<a: INT NOT NULL>, d STRUCT<i: STRUCT<a: DATE NOT NULL>, b: STRING>, "
    "r STRUCT<i: STRUCT<a: DECIMAL(38,10) NOT NULL, t: STRING NOT NULL> NOT NULL, e: ARRAY<INT> NOT NULL>, "
    "l ARRAY<STRUCT<a: STRING NOT NULL>>, m MAP<STRING, STRUCT<a: INT NOT NULL>>"
)
ENGINES = {
    "deduplicate": {},
    "deduplicate by sequence": {"sequence.field": "v"},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "sequence group": {"merge-engine": "partial-update", "fields.v.sequence-group": "s,d,r,l,m"},
    "aggregation": {"merge-engine": "aggregation", "aggregation.remove-record-on-delete": "true"},
    "last value": {
        "merge-engine": "aggregation",
        "aggregation.remove-record-on-delete": "true",
        "fields.default-aggregate-function": "last_value",
    },
    "collect": {
        "merge-engine": "aggregation",
        "aggregation.remove-record-on-delete": "true",
        "fields.l.aggregate-function": "collect",
        "fields.m.aggregate-function": "merge_map",
    },
    "first-row": {"merge-engine": "first-row", "ignore-delete": "true"},
}
NO_DELETES = {"sequence group", "first-row"}
CASES = [
    case
    for case in product(ENGINES, ("none", "input", "lookup", "full-compaction"), ("merge-on-write", "merge-on-read"))
    if case[1:] != ("full-compaction", "merge-on-write")
]


def full(key: int, value: int, kind: str = "+I") -> Row:
    return {
        "id": key,
        "v": value,
        "s": {"a": value},
        "d": {"i": None, "b": "x"},
        "r": {"i": {"a": 1, "t": "t"}, "e": [1, None]},
        "l": [{"a": "x"}, None],
        "m": [("k", {"a": 1}), ("l", None)],
        "_kind": kind,
    }


def empty(key: int, value: int, kind: str = "+I") -> Row:
    within = {"d": {"i": None, "b": None}, "l": [None], "m": [("k", None)]}
    return {"id": key, "v": value, **(within if key % 2 else {}), "_kind": kind}


def put(table: Table, given: list[Row]) -> None:
    fields = [field.with_nullable(True) for field in table.schema]
    table.write(pa.Table.from_pylist(given, schema=pa.schema([*fields, ("_kind", pa.string())])))


@pytest.mark.few(3)
@pytest.mark.parametrize(("engine", "producer", "mode"), sampled(CASES, fast=12, test=8, names=3))
def test_a_null_struct_is_written_and_read(store: Store, engine: str, producer: str, mode: str) -> None:
    log = "embedded" if mode == "merge-on-write" or engine == "deduplicate" else "none"
    options = {"changelog-producer": producer, "write-mode": mode, "log.system": log, "bucket": "2"}
    table = store.create_table("shop.t", COLUMNS, primary_key=["id"], options=options | ENGINES[engine])
    put(table, [full(n, 0) if n < 3 else empty(n, 0) for n in range(6)])
    put(table, [empty(n, 1) if n < 3 else full(n, 1) for n in range(6)])
    put(table, [empty(0, 2), full(1, 2, "+I" if engine in NO_DELETES else "-D"), empty(7, 2)])
    check(table, exact=producer in ("none", "lookup"))
    table.compact(full=True)
    put(table, [full(n, 3) if n % 2 else empty(n, 3) for n in range(9)])
    table.compact(full=True)
    assert len(check(table, exact=producer != "input")) == 9
    assert_healthy(table.filestore)
    assert in_order(read_deltalake(table.location)) == rows(table)


def check(table: Table, *, exact: bool) -> list[Row]:
    """Reads the table in every way; `exact`: its changes are complete."""
    found = assert_same_rows(table, others=False)
    assert in_order(table.get([{"id": n} for n in range(9)]).to_pylist()) == found
    empties = [row for row in found if row["s"] is None]
    assert in_order(table.scan(where="s IS NULL").to_arrow().to_pylist()) == empties
    assert in_order(table.scan(where="s.a IS NULL").to_arrow().to_pylist()) == empties
    assert in_order(table.scan(where="r.i.a = 1").to_arrow().to_pylist()) == [r for r in found if r["r"] is not None]
    if exact:
        assert replay(changes(table, version=0, mode="changelog"), ["id"]) == found
    last = table.filestore.state().version
    differences = table.system("changes", from_version=1, to_version=last).to_arrow().to_pylist()
    first = [row | {"_kind": "+I"} for row in rows(table, 1)]
    for row in differences:
        row["_kind"] = row.pop("rowkind")
    assert replay([*first, *differences], ["id"]) == found
    return found
