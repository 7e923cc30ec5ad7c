"""Users' rows are converted to the table's columns and types, or refused with the name of the column."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from filestore.errors import InvalidRequest
from tablestore.incoming.conform import conform
from tests.tables import define

ORDERS = define("id BIGINT, name STRING, amount DECIMAL(9,2)", ["id"])
STAMPED = define("id BIGINT, at TIMESTAMP, local TIMESTAMP_NTZ, day DATE", ["id"])


def refused(rows: Any, definition: Any = ORDERS) -> str:
    with pytest.raises(InvalidRequest) as caught:
        conform(rows, definition)
    return caught.value.code


def test_columns_are_matched_by_name_and_put_in_the_tables_order() -> None:
    rows = conform(pa.table({"amount": [Decimal("1.50")], "name": ["a"], "id": [1]}), ORDERS)
    assert rows.column_names == ["id", "name", "amount"]
    assert rows.to_pylist() == [{"id": 1, "name": "a", "amount": Decimal("1.50")}]


def test_a_nullable_column_may_be_missing() -> None:
    assert conform(pa.table({"id": [1]}), ORDERS).to_pylist() == [{"id": 1, "name": None, "amount": None}]


def test_a_column_that_is_not_null_may_not() -> None:
    assert refused(pa.table({"name": ["a"]})) == "missing-column"


def test_a_delete_may_lack_a_column_that_is_not_null() -> None:
    """`write([{"id": 1, "_kind": "-D"}])` was refused, though a delete needs only its key."""
    columns = "id BIGINT, p STRING, n BIGINT NOT NULL, v STRING NOT NULL"
    plain = define(columns, ["id", "p"], ["p"])
    [gone] = conform([{"id": 1, "p": "x", "_kind": "-D"}], plain).to_pylist()
    assert gone == {"id": 1, "p": "x", "n": None, "v": None, "_kind": "-D"}
    assert refused([{"id": 1, "_kind": "-D"}], plain) == "missing-column", "the partition says where the row is"
    for kinds in (("+I",), ("-D", "+U")):
        rows = [{"id": number, "p": "x", "_kind": kind} for number, kind in enumerate(kinds)]
        assert refused(rows, plain) == "missing-column"
    ordered = define(columns, ["id", "p"], **{"sequence.field": "n"})
    assert refused([{"id": 1, "p": "x", "_kind": "-D"}], ordered) == "missing-column", "it would be late"
    assert conform([{"id": 1, "p": "x", "n": 2, "_kind": "-D"}], ordered).num_rows == 1
    merged = define(columns, ["id", "p"], merge__engine="aggregation")
    assert refused([{"id": 1, "p": "x", "_kind": "-D"}], merged) == "missing-column", "its values are retracted"


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(InvalidRequest, match=r"'nmae'.*id, name, amount"):
        conform(pa.table({"id": [1], "nmae": ["a"]}), ORDERS)
    assert refused(pa.table({"ID": [1]})) == "unknown-column"


def test_the_row_kind_comes_last_and_is_text() -> None:
    kinds = pa.array(["+I", "-D"]).dictionary_encode()
    rows = conform(pa.table({"_kind": kinds, "id": [1, 2]}), ORDERS)
    assert rows.column_names[-1] == "_kind"
    assert rows.column("_kind").type == pa.string()


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"id": [1, 2]}),
        pa.table({"id": [1, 2]}).to_batches()[0],
        pa.table({"id": [1, 2]}).to_reader(),
        pl.DataFrame({"id": [1, 2]}),
        pl.LazyFrame({"id": [1, 2]}),
    ],
    ids=lambda rows: type(rows).__name__,
)
def test_arrow_and_polars_are_taken(rows: Any) -> None:
    assert conform(rows, ORDERS)["id"].to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("name", pa.array(["x"], pa.large_string())),
        ("name", pa.array(["x"], pa.string_view())),
        ("name", pa.array(["x"]).dictionary_encode()),
        ("amount", pa.array([2], pa.int8())),
        ("amount", pa.array([Decimal("2.0")], pa.decimal128(20, 1))),
        ("amount", pa.array([Decimal("2.0")], pa.decimal32(5, 1))),
        ("id", pa.array([1], pa.uint32())),
        ("id", pa.array([1.0])),
        ("name", pa.nulls(1)),
    ],
    ids=str,
)
def test_what_fits_without_loss_is_cast(column: str, values: pa.Array) -> None:
    rows = {"id": pa.array([1]), column: values}
    cast = conform(pa.table(rows), ORDERS).column(column)
    assert cast.type == ORDERS.schema.column(column).type
    assert [str(v) if isinstance(v, str) else v for v in cast.to_pylist()] == values.to_pylist()


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("id", pa.array([1.5])),
        ("id", pa.array([2**63], pa.uint64())),
        ("id", pa.array(["one"])),
        ("amount", pa.array([Decimal("1.234")])),
        ("amount", pa.array([Decimal("12345678.00")])),
        ("name", pa.array([[1]])),
        ("name", pa.array([{"a": 1}])),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_not_rounded(column: str, values: pa.Array) -> None:
    assert refused(pa.table({"id": pa.array([1]), column: values})) == "bad-value"


def test_moments_of_any_zone_and_unit_are_cast_and_nothing_below_a_microsecond_is_dropped() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901)
    rows = conform(
        pa.table(
            {
                "id": [1],
                "at": pa.array([moment.replace(tzinfo=UTC)], pa.timestamp("ns", "Asia/Tokyo")),
                "local": pa.array([moment], pa.timestamp("ns")),
                "day": pa.array([date(2026, 1, 2)], pa.date64()),
            }
        ),
        STAMPED,
    )
    assert rows.to_pylist() == [{"id": 1, "at": moment.replace(tzinfo=UTC), "local": moment, "day": date(2026, 1, 2)}]
    assert refused(pa.table({"id": [1], "local": pa.array([1], pa.timestamp("ns"))}), STAMPED) == "bad-value"


def test_nested_values_take_the_tables_types() -> None:
    nested = define("id BIGINT, tags ARRAY<STRING>, place STRUCT<x: INT, y: INT>, kv MAP<STRING, BIGINT>", ["id"])
    given = pl.DataFrame({"id": [1], "tags": [["a", "b"]], "place": [{"x": 1, "y": 2}]})
    assert conform(given, nested).to_pylist() == [{"id": 1, "tags": ["a", "b"], "place": {"x": 1, "y": 2}, "kv": None}]
    assert refused(pa.table({"id": [1], "place": [{"x": 1, "z": 2}]}), nested) == "unknown-column"


def test_no_rows_are_rows() -> None:
    assert conform(pa.table({"id": pa.array([], pa.int64())}), ORDERS).num_rows == 0
