"""A value that equals the stored one but has other bits is stored and logged, whatever the changelog producer.

A 0.0 over -0.0 was dropped with ``changelog-producer = lookup`` and kept without.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from filestore.rows.equality import by_bits, same_rows
from filestore.rows.frames import frame_of
from tablestore import Normalizer, Store, Table
from tablestore.following.repeats import Repeats

NAN, OTHER_NAN = np.array([0x7FF8000000000000, 0xFFF8000000000001], dtype=np.uint64).view(np.float64).tolist()
COLUMNS = "id BIGINT, d DOUBLE, f FLOAT, l ARRAY<DOUBLE>, s STRUCT<x: DOUBLE, y: ARRAY<FLOAT>>, m MAP<STRING, DOUBLE>"
ENGINES = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.d.aggregate-function": "last_value"},
}


def row(value: float) -> dict[str, Any]:
    small = float(np.float32(value))
    return {"d": value, "f": small, "l": [value], "s": {"x": value, "y": [small]}, "m": [("k", value)]}


def rows(table: Table, *values: float) -> pa.Table:
    return pa.Table.from_pylist([{"id": n, **row(value)} for n, value in enumerate(values)], schema=table.schema)


def stored(table: Table) -> pl.DataFrame:
    return frame_of(table.scan().to_arrow()).sort("id")


def make(store: Store, name: str, **options: str) -> Table:
    return store.create_table(f"shop.{name}", COLUMNS, primary_key=["id"], options=options)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("producer", ["none", "lookup"])
def test_the_last_value_is_stored_and_logged(store: Store, engine: str, producer: str) -> None:
    table = make(store, "t", **ENGINES[engine], **{"changelog-producer": producer})
    table.write(rows(table, -0.0, NAN, 0.0))
    last = rows(table, 0.0, OTHER_NAN, 0.0)
    table.write(last)
    assert same_rows(stored(table), frame_of(last)).all()
    reported = table.system("changes", from_version=1).to_polars()
    assert sorted(reported["rowkind"]) == ["+U", "+U", "-U", "-U"], "the third row is the same"
    files = table.files()
    table.write(last)
    assert producer == "none" or table.files() == files


def test_a_normalizer_emits_the_update(folder: Any) -> None:
    with Normalizer.open(str(folder / "state"), "id BIGINT, d DOUBLE", ["id"]) as normalizer:
        batches = [pl.DataFrame({"id": [1], "d": [value]}) for value in (-0.0, 0.0, 0.0)]
        counts = [
            sum(changes.num_rows for changes in normalizer.apply(batch, {"0": n}))
            for n, batch in enumerate(batches, start=1)
        ]
    assert counts == [1, 2, 0]


def test_a_record_with_other_bits_is_no_repeat() -> None:
    repeats = Repeats(["id"], 1)
    left = [
        repeats.without_repeats(0, f"t/c/{attempt}.0", pa.table({"id": [1], "d": [value], "_kind": ["+I"]})).num_rows
        for attempt, value in enumerate([-0.0, 0.0, 0.0])
    ]
    assert left == [1, 1, 0]


def test_nulls_are_the_same_at_any_depth_and_nothing_else_is_null() -> None:
    kind = pa.list_(pa.struct([("x", pa.float64())]))
    values = pa.table({"l": pa.array([None, [], [None], [{"x": None}], [{"x": 0.0}], [{"x": -0.0}]], kind)})
    frame = frame_of(values)
    same = [same_rows(frame, frame[[n] * frame.height]).tolist() for n in range(frame.height)]
    assert same == np.eye(frame.height, dtype=bool).tolist()
    assert by_bits(frame.clear()).height == 0
    assert same_rows(frame.clear(), frame.clear()).tolist() == []
