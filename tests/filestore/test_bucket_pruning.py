"""A scan for whole bucket keys reads their buckets only; what does not name them in full, or not exactly, reads all."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.reading.bucket_pruning import wanted_buckets
from filestore.reading.predicate import Condition, Predicate
from filestore.reading.scan import plan_scan, scan_table
from filestore.rows.bucketing import bucket_of
from tests.filestore.arrays import KEY_TYPES, key_values
from tests.filestore.test_lookup import definition_of
from tests.tables import create, define, to_arrow, write

TABLE = define("p INT, id BIGINT, s STRING, d DECIMAL(9,2), at TIMESTAMP, v INT", ["p", "id", "s"], ["p"], bucket=64)
BY_ID = define("id BIGINT, at TIMESTAMP, v INT", ["id", "at"], bucket=64, bucket__key="id")
BY_TIME = define("at TIMESTAMP, d DECIMAL(9,2)", ["at", "d"], bucket=64, bucket__key="at")
BY_DECIMAL = define("at TIMESTAMP, d DECIMAL(9,2)", ["at", "d"], bucket=64, bucket__key="d")


def buckets(where: Predicate, definition: Any) -> frozenset[int] | None:
    return wanted_buckets(Condition.of(where, definition.schema).expression, definition)


def of(definition: Any, *keys: dict[str, Any]) -> frozenset[int]:
    rows = to_arrow(definition, keys)
    return frozenset(bucket_of(rows, definition.bucket_key, definition.buckets).tolist())


@pytest.mark.parametrize(
    ("where", "definition", "keys"),
    [
        ("id = 7", BY_ID, [{"id": 7}]),
        ("7 = id AND v > 3", BY_ID, [{"id": 7}]),
        ("(id = 7 OR id = 8) AND v > 3", BY_ID, [{"id": n} for n in (7, 8)]),
        ("id IN (7, 8, 9)", BY_ID, [{"id": n} for n in (7, 8, 9)]),
        ("id IN (7, 8) AND id = 8", BY_ID, [{"id": 8}]),
        (pl.col("id").is_in([7, 8]), BY_ID, [{"id": 7}, {"id": 8}]),
        (pl.lit(7) == pl.col("id"), BY_ID, [{"id": 7}]),
        ("id = 7 AND s = 'a'", TABLE, [{"id": 7, "s": "a"}]),
        ("p = 1 AND s IN ('a', 'b') AND id IN (1, 2)", TABLE, [{"id": n, "s": s} for n in (1, 2) for s in "ab"]),
        ("at = '2024-01-02'", BY_TIME, [{"at": dt.datetime(2024, 1, 2, tzinfo=dt.UTC)}]),
        ("d = 1.5", BY_DECIMAL, [{"d": Decimal("1.50")}]),
        ("d = 2", BY_DECIMAL, [{"d": Decimal("2.00")}]),
        (pl.col("id") == pl.lit(None, pl.Int64), BY_ID, []),
    ],
    ids=str,
)
def test_whole_keys_name_their_buckets(where: Predicate, definition: Any, keys: list[dict[str, Any]]) -> None:
    assert buckets(where, definition) == of(definition, *keys)


@pytest.mark.parametrize(
    ("where", "definition"),
    [
        ("id > 7", BY_ID),
        ("id = 7 OR v = 8", BY_ID),
        ("NOT (id = 7)", BY_ID),
        ("v = 7", BY_ID),
        ("id = v", BY_ID),
        ("id + 1 = 8", BY_ID),
        ("id = 7", TABLE),
        ("p = 7", TABLE),
        (pl.col("id") == 7.0, BY_ID),  # polars compares as doubles, in which neighbours of 2**53 are equal
        (pl.col("at") == pl.lit(dt.datetime(2024, 1, 2)).dt.cast_time_unit("ms").dt.replace_time_zone("UTC"), BY_TIME),
        ("d = 1.555", BY_DECIMAL),
        (pl.col("id") == 2**64, BY_ID),
        (pl.col("id").is_in(range(5000)), BY_ID),
        ("id = 7", define("id BIGINT, v INT", ["id"])),
    ],
    ids=str,
)
def test_what_does_not_name_them_wants_all(where: Predicate, definition: Any) -> None:
    assert buckets(where, definition) is None


@pytest.mark.parametrize("kind", KEY_TYPES, ids=str)
def test_the_bucket_of_a_literal_is_that_of_the_value(kind: Any) -> None:
    definition = definition_of([kind], 1024)
    definition = type(definition).of(
        definition.schema, definition.primary_key, options={**definition.options.as_dict(), "bucket": "64"}
    )

    @given(st.lists(key_values(kind), min_size=1, max_size=5))
    def same(values: list[Any]) -> None:
        rows = to_arrow(definition, [{"k0": value} for value in values])
        column = pl.Series("k0", rows.column("k0"))
        found = buckets(pl.col("k0").is_in(column), definition)
        assert found == of(definition, *({"k0": value} for value in values))

    same()


def test_a_scan_reads_the_files_of_those_buckets(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT, v INT", ["id"], bucket=16))
    write(store, [{"id": n, "v": n} for n in range(500)])
    state = store.state()
    plan = plan_scan(state, None, "id = 77")
    assert len(plan.files) == 1 < len(state.files)
    assert scan_table(store.table_files(state), plan).to_pylist() == [{"id": 77, "v": 77}]
