"""Values are stored unchanged, or refused."""

from __future__ import annotations

from typing import Any

import pytest

from filestore.errors import InvalidRequest
from tablestore import Store, Table
from tablestore.spark import SparkStore
from tests.depth import sampled
from tests.warehouses import rows

COLUMNS = (
    "id BIGINT, i TINYINT, l BIGINT, d DOUBLE, m DECIMAL(6,2), s STRING, day DATE, at TIMESTAMP, "
    "p STRUCT<x: INT, y: STRING>, a ARRAY<STRUCT<x: INT, y: STRING>>, kv MAP<STRING, INT>"
)


@pytest.fixture
def table(store: Store) -> Table:
    return store.create_table("shop.t", COLUMNS, primary_key=["id"])


FITS: dict[str, Any] = {
    "1L id, 127 i": {"i": 127},
    "1 id, 1.0D l": {"l": 1},
    "1 id, '12' l": {"l": 12},
    "1 id, '1.50' m": {"m": "1.50"},
    "1 id, 1234.5 m": {"m": "1234.50"},
    "1 id, 3 m": {"m": "3.00"},
    "1 id, 7 d": {"d": 7.0},
    "1 id, 5 s": {"s": "5"},
    "1 id, NULL s": {"s": None},
    "1 id, TIMESTAMP'2026-01-02 00:00:00' day": {"day": "2026-01-02"},
    "1 id, '2026-01-02' day": {"day": "2026-01-02"},
    "1 id, NAMED_STRUCT('y', 'why', 'x', 1L) p": {"p": {"x": 1, "y": "why"}},
    "1 id, NAMED_STRUCT('x', 1) p": {"p": {"x": 1, "y": None}},
    "1 id, array(NAMED_STRUCT('y', 'why', 'x', 1L), NULL) a": {"a": [{"x": 1, "y": "why"}, None]},
    "1 id, map('k', 5L) kv": {"kv": [("k", 5)]},
}
REFUSED = {
    "1L id, 128 i": "bad-value",
    "1 id, 1.5D l": "bad-value",
    "1 id, '1.239' m": "bad-value",
    "1 id, CAST(X'62FFFE' AS STRING) s": "bad-value",
    "1 id, X'62FFFE' s": "bad-value",
    "1 id, '2024-01-02 23:59:59' day": "bad-value",
    "1 id, CAST('NaN' AS DOUBLE) l": "bad-value",
    "1 id, 'one' l": "bad-value",
    "1 id, 1.234 m": "bad-value",
    "1 id, 12345.0 m": "bad-value",
    "1 id, 9007199254740993 d": "bad-value",
    "1 id, TIMESTAMP'2026-01-02 03:00:00' day": "bad-value",
    "1 id, 'soon' at": "bad-value",
    "1 id, array(1) l": "bad-type",
    "1 id, 1 p": "bad-type",
    "1 id, DATE'2026-01-01' l": "bad-type",
    "1 id, NAMED_STRUCT('x', 1, 'z', 2) p": "unknown-column",
    "1 id, array(NAMED_STRUCT('x', 2147483648L)) a": "bad-value",
    "1 id, map('k', 2147483648L) kv": "bad-value",
}


def plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | list | dict | type(None)) else str(value)


@pytest.mark.parametrize("ansi", sampled(["false", "true"], 2, test=2))
def test_what_fits(lake: SparkStore, table: Table, ansi: str) -> None:
    """All at once: each is a row of its own."""
    lake.spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        for number, (select, expected) in enumerate(FITS.items()):
            lake.write("shop.t", lake.spark.sql(f"SELECT {select.replace('1', str(number), 1)}").coalesce(1))
            [row] = [r for r in rows(table) if r["id"] == number]
            assert {name: plain(row[name]) for name in expected} == expected, select
    finally:
        lake.spark.conf.unset("spark.sql.ansi.enabled")


@pytest.mark.deep
@pytest.mark.parametrize("ansi", sampled(["true", "false"], 2, test=2))
def test_what_does_not_fit_is_refused_not_changed(lake: SparkStore, table: Table, ansi: str) -> None:
    lake.spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        for select, code in REFUSED.items():
            with pytest.raises(InvalidRequest) as caught:
                lake.write("shop.t", lake.spark.sql(f"SELECT {select}").coalesce(1))
            assert caught.value.code == code, f"{select}: {caught.value}"
            assert table.filestore.state().version == 0
    finally:
        lake.spark.conf.unset("spark.sql.ansi.enabled")


def test_the_message_is_ours_alone(lake: SparkStore, table: Table) -> None:
    """Spark put its own state behind it."""
    with pytest.raises(InvalidRequest) as caught:
        lake.write("shop.t", lake.spark.sql("SELECT 1 id, 'one SQLSTATE: P0001' l"))
    assert str(caught.value) == "column 'l' is string and holds one SQLSTATE: P0001, which does not fit bigint"
