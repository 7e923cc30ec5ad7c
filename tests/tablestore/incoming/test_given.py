"""pandas frames, dicts and Arrow streams are converted without changing their meaning, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from filestore.errors import InvalidRequest
from tablestore import Table
from tablestore.incoming.conform import conform
from tablestore.incoming.given import array_of, arrow_parts
from tests.tables import define

ORDERS = define("id BIGINT, name STRING, amount DECIMAL(9,2), rate DOUBLE", ["id"])
STAMPED = define("id BIGINT, at TIMESTAMP, local TIMESTAMP_NTZ, day DATE", ["id"])
MAPPED = define("id BIGINT, kv MAP<STRING, BIGINT>, place STRUCT<x: INT, at: DATE>, tags ARRAY<STRING>", ["id"])


class Stream:
    """What a DuckDB relation and the like have: nothing but the method."""

    def __init__(self, batches: pa.RecordBatchReader) -> None:
        self._batches = batches

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._batches.__arrow_c_stream__(requested_schema)


class Batch:
    """One record batch by the C data interface."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> object:
        return pa.record_batch({"id": [1, 2]}).__arrow_c_array__(requested_schema)


def rows_of(given: Any, definition: Any = ORDERS) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = conform(given, definition).to_pylist()
    return rows


def refused(given: Any, definition: Any = ORDERS, match: str | None = None) -> str:
    with pytest.raises(InvalidRequest, match=match) as caught:
        conform(given, definition)
    return caught.value.code


@pytest.mark.parametrize(
    "given",
    [
        pd.DataFrame({"id": [1, 2]}),
        [{"id": 1}, {"id": 2}],
        ({"id": 1}, {"id": 2}),
        Stream(pa.table({"id": [1, 2]}).to_reader()),
        Batch(),
        pa.array([{"id": 1}, {"id": 2}]),
        pa.chunked_array([[{"id": 1}], [{"id": 2}]]),
    ],
    ids=lambda given: type(given).__name__,
)
def test_frames_dicts_and_streams_are_taken(given: Any) -> None:
    assert [row["id"] for row in rows_of(given)] == [1, 2]


@pytest.mark.parametrize(
    "given", ["id", b"id", 7, None, {"id": [1]}, [1, 2], [(1, "a")], [{}], [{1: 2}], pa.array([1])], ids=str
)
def test_anything_else_is_refused(given: Any) -> None:
    assert refused(given) == "bad-rows"


@pytest.mark.parametrize(
    "given", [[], pd.DataFrame({"id": []}), pd.DataFrame({"id": pd.Series([], dtype="int64")})], ids=len
)
def test_no_rows_are_rows(given: Any) -> None:
    assert conform(given, ORDERS).num_rows == 0


def test_a_key_that_some_dicts_lack_is_null_there_and_one_that_the_table_lacks_is_named() -> None:
    assert [row["name"] for row in rows_of([{"id": 1}, {"id": 2, "name": "b"}, {"name": None, "id": 3}])] == [
        None,
        "b",
        None,
    ]
    assert refused([{"id": 1}, {"id": 2, "nmae": "b"}], match="'nmae'") == "unknown-column"
    assert refused([{"name": "a"}]) == "missing-column"


def test_what_is_read_as_dicts_can_be_written_as_dicts() -> None:
    row = {"id": 1, "kv": [("a", 1), ("b", None)], "place": {"x": 1, "at": date(2026, 1, 2)}, "tags": ["x", None]}
    assert rows_of([row, {"id": 2}], MAPPED)[0] == row
    assert rows_of([{"id": 1, "kv": {"a": 1, "b": None}}], MAPPED)[0]["kv"] == row["kv"]
    assert refused([row | {"place": {"x": 1, "y": 2}}], MAPPED) == "unknown-column"


def test_dicts_of_mixed_numbers_keep_them() -> None:
    rows = rows_of([{"id": 1, "amount": 2}, {"id": 2, "amount": Decimal("1234567.89")}, {"id": 3, "amount": None}])
    assert [str(row["amount"]) for row in rows] == ["2.00", "1234567.89", "None"]
    assert rows_of([{"id": 1, "amount": 1.5}])[0]["amount"] == Decimal("1.50")
    assert refused([{"id": 1, "amount": 1.5}, {"id": 2, "amount": Decimal("0.10")}], match="'amount'") == "bad-value"
    assert refused([{"id": 1, "amount": Decimal("1.234")}], match="'amount'") == "bad-value"
    assert refused([{"id": 1}, {"id": "two"}], match="'id'") == "bad-value"
    assert refused([{"id": 2**70}], match="'id'") == "bad-value"
    assert refused([{"id": 1, "name": object()}], match="'name'") == "bad-value"


def test_dicts_of_times_are_moments() -> None:
    moment = datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=2)))
    row = rows_of([{"id": 1, "at": moment, "local": "2026-01-02 03:00:00", "day": date(2026, 1, 2)}], STAMPED)[0]
    assert row["at"] == moment
    assert row["local"] == datetime(2026, 1, 2, 3)
    assert rows_of([{"id": 1, "day": "2026-01-02"}], STAMPED)[0]["day"] == date(2026, 1, 2)


def test_what_pandas_takes_for_missing_is_null() -> None:
    frame = pd.DataFrame(
        {
            "id": [1.0, 2.0],
            "name": pd.Series(["a", np.nan], dtype=object),
            "amount": pd.Series([Decimal("1.5"), None], dtype=object),
            "rate": [0.5, np.nan],
        }
    )
    first, second = rows_of(frame)
    assert first == {"id": 1, "name": "a", "amount": Decimal("1.50"), "rate": 0.5}
    assert second == {"id": 2, "name": None, "amount": None, "rate": None}
    assert refused(frame.assign(id=[1.0, np.nan]).assign(id=[1.5, 2.0])) == "bad-value"


def test_a_named_index_of_pandas_is_a_column() -> None:
    """It was dropped without a word, and the column got nulls."""
    frame = pd.DataFrame({"id": [1, 2], "name": ["a", "b"], "rate": [0.5, 1.5]})
    expected = rows_of(frame)
    for given in (
        frame.set_index("id"),
        frame.set_index(["name", "id"]),
        frame.set_index("id", drop=False),
        frame.groupby(["id", "name"]).sum(),
        frame.drop(columns="id").set_index(pd.RangeIndex(1, 3, name="id")),
    ):
        assert rows_of(given) == expected, given.index
    empty = frame.assign(rate=[0.5, None])
    assert rows_of(empty.set_index("rate", drop=False)) == rows_of(empty)
    moments = frame.set_index(pd.DatetimeIndex(["2026-07-01", "2026-07-02"], tz="UTC", name="at"))[["id"]]
    assert [row["at"] for row in rows_of(moments, STAMPED)] == [datetime(2026, 7, day, tzinfo=UTC) for day in (1, 2)]
    assert refused(frame.set_index(pd.Index([7, 8], name="rate"))) == "duplicate-column"
    assert refused(frame.set_index(pd.Index([7, 8], name="number"))) == "unknown-column"
    assert refused(frame.set_index(pd.Index([7, 8], name=0)), match="labelled 0") == "bad-rows"


def test_numbers_of_rows_are_no_column_and_other_labels_without_a_name_are_refused() -> None:
    frame = pd.DataFrame({"id": [1, 2, 3]})
    for given in (frame, frame[frame.id > 1], frame.sort_values("id", ascending=False), frame.iloc[:0]):
        assert [row["id"] for row in rows_of(given)] == given["id"].tolist()
    assert refused(frame.set_index(pd.Index(["x", "y", "z"])), match="such as 'x': name it") == "bad-rows"
    assert refused(frame.set_index([pd.Index([1, 2, 3]), pd.Index([1, 2, 3], name="rate")])) == "bad-rows"
    assert rows_of(pd.DataFrame({"id": []}, index=pd.Index([], dtype=object))) == []


def test_a_column_of_pandas_without_a_value_is_null_in_any_type() -> None:
    """Found by a stranger: pandas makes such a column one of floats, and floats are no dates."""
    for missing in ([np.nan, None], [None, None], [pd.NaT, pd.NaT], []):
        frame = pd.DataFrame({"id": pd.Series(range(len(missing)), dtype="int64"), "day": missing, "at": missing})
        assert [(row["day"], row["at"]) for row in rows_of(frame, STAMPED)] == [(None, None)] * len(missing)
    listed = pa.field("tags", pa.list_(pa.string()))
    assert array_of(pd.Series([np.nan]), "tags", listed).type == listed.type


def test_nullable_dtypes_of_pandas_keep_nan_apart_from_missing() -> None:
    rate = pd.Series(pd.array(pa.array([0.5, float("nan"), None]), dtype=pd.ArrowDtype(pa.float64())))
    frame = pd.DataFrame(
        {"id": pd.array([1, 2, 3], dtype="Int64"), "name": pd.array(["a", None, "c"], dtype="string"), "rate": rate}
    )
    rows = rows_of(frame)
    assert [row["name"] for row in rows] == ["a", None, "c"]
    assert [str(row["rate"]) for row in rows] == ["0.5", "nan", "None"]


def test_times_and_categories_of_pandas() -> None:
    moments = pd.to_datetime(["2026-07-01 12:00", None]).tz_localize("Europe/Berlin")
    frame = pd.DataFrame({"id": [1, 2], "at": moments, "local": pd.to_datetime(["2026-07-01", "2026-07-02"])})
    assert [row["at"] for row in rows_of(frame, STAMPED)] == [datetime(2026, 7, 1, 10, tzinfo=UTC), None]
    named = pd.DataFrame({"id": [1, 2, 3], "name": pd.Categorical(["a", None, "a"])})
    assert [row["name"] for row in rows_of(named)] == ["a", None, "a"]


def test_columns_of_pandas_need_names() -> None:
    assert refused(pd.DataFrame([[1, 2]]), match="labelled 0") == "bad-rows"
    assert refused(pd.DataFrame([[1, 2]], columns=["id", "id"])) == "duplicate-column"
    assert refused(pd.DataFrame({"id": [1], "name": [object()]}), match="'name'") == "bad-value"
    assert refused(pd.DataFrame({"id": [1], "amount": [1j]}), match="'amount'") == "bad-value"


def test_types_of_polars_that_arrow_does_not_know_are_refused() -> None:
    assert refused(pl.DataFrame({"id": [1], "name": [object()]}), match="'name'") == "bad-value"
    assert refused(pl.DataFrame({"id": pl.Series([1], dtype=pl.Int128)}), match="Int128") == "bad-value"


def test_a_stream_is_read_batch_by_batch_and_its_own_error_is_raised() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [1]})
        raise ValueError("the disk is gone")

    schema = pa.schema({"id": pa.int64()})
    parts = arrow_parts(Stream(pa.RecordBatchReader.from_batches(schema, batches())), schema)
    assert [next(parts).num_rows, next(parts).num_rows] == [0, 1]
    with pytest.raises(InvalidRequest, match="the disk is gone") as caught:
        next(parts)
    assert caught.value.code == "bad-rows"


def test_a_table_takes_all_of_them(orders: Table) -> None:
    orders.write(pd.DataFrame({"id": [1], "name": ["a"]}))
    orders.write([{"id": 2, "name": "b", "_kind": "+I"}, {"id": 1, "_kind": "-D"}])
    orders.write(Stream(pa.table({"id": [3], "name": ["c"]}).to_reader()))
    orders.write([])
    assert orders.scan().to_arrow().sort_by("id").to_pylist() == [{"id": 2, "name": "b"}, {"id": 3, "name": "c"}]
    assert orders.get(pd.DataFrame({"id": [3, 9]})).to_pylist() == [{"id": 3, "name": "c"}]
    assert orders.get(Stream(pa.table({"id": [2]}).to_reader())).count_rows() == 1
