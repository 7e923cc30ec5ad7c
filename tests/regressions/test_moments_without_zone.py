"""A time without a zone is never taken for one in UTC: `datetime.now()` of a machine elsewhere was stored hours away.

JSON and CSV were read by this rule before; Python's values, Arrow, polars and pandas were not.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from filestore.errors import InvalidRequest
from tablestore import Store, Table

BARE = datetime(2026, 1, 31, 12)
AWARE = datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=9)))

KINDS = {
    "{}": lambda moment: moment,
    "ARRAY<{}>": lambda moment: [None, moment],
    "STRUCT<m: {}, n: STRING>": lambda moment: {"m": moment, "n": "a"},
    "MAP<STRING, {}>": lambda moment: {"a": moment},
    "ARRAY<STRUCT<m: {}, d: DECIMAL(9, 2)>>": lambda moment: [{"m": moment, "d": 1}, None],
    "MAP<{}, INT>": lambda moment: {moment: 1},
}
FRAMES: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "dicts": lambda rows: rows,
    "arrow": pa.Table.from_pylist,
    "polars": pl.DataFrame,
    "pandas": pd.DataFrame,
}


@pytest.fixture
def made(store: Store) -> Callable[[str], Table]:
    def make(kind: str) -> Table:
        return store.create_table("shop.t", f"id BIGINT, at {kind}", primary_key=["id"])

    return make


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ"])
@pytest.mark.parametrize(
    ("shape", "frame"),
    # Arrow and polars make a struct of a dict, and no map
    [(s, f) for s in KINDS for f in FRAMES if not (f in ("arrow", "polars") and s.startswith("MAP"))],
)
def test_a_row_with_the_wrong_one_is_refused_at_any_depth(
    made: Callable[[str], Table], shape: str, kind: str, frame: str
) -> None:
    table = made(shape.format(kind))
    right, wrong = (AWARE, BARE) if kind == "TIMESTAMP" else (BARE, AWARE)
    make, row = FRAMES[frame], KINDS[shape]
    with pytest.raises(InvalidRequest, match="zone") as caught:
        table.write(make([{"id": 1, "at": row(wrong)}]))
    assert caught.value.code == "bad-value"
    if frame == "dicts":  # Arrow makes one type of both, and takes the type of the first
        for rows in ([right, wrong], [None, right, right, wrong]):
            with pytest.raises(InvalidRequest, match="zone"):
                table.write([{"id": at, "at": row(moment)} for at, moment in enumerate(rows)])
    assert table.version == 0
    table.write(make([{"id": 1, "at": row(right)}]))
    [stored] = table.scan(["at"]).to_pylist()
    assert stored == {"at": list(row(right).items()) if shape.startswith("MAP") else row(right)}


def test_a_key_and_a_new_value_need_their_zone(made: Callable[[str], Table], store: Store) -> None:
    table = store.create_table("shop.k", "at TIMESTAMP, n TIMESTAMP", primary_key=["at"])
    table.write([{"at": AWARE, "n": AWARE}])
    assert table.get([AWARE]).to_arrow().num_rows == 1
    for call in (lambda: table.get([BARE]), lambda: table.update({"n": BARE}, "true")):
        with pytest.raises(InvalidRequest, match="zone"):
            call()


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.scan(timestamp=BARE),
        lambda table: table.follow(timestamp=BARE),
        lambda table: table.version_at(BARE),
        lambda table: table.rollback(timestamp=BARE),
    ],
)
def test_a_time_to_travel_to_needs_its_zone(made: Callable[[str], Table], call: Callable[[Table], object]) -> None:
    with pytest.raises(InvalidRequest, match=r"has no time zone: give one, as datetime.now\(UTC\)") as caught:
        call(made("STRING"))
    assert caught.value.code == "bad-time"
