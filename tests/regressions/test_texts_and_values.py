"""Found while reviewing what is written: texts that no reader accepts, and values that were silently changed."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from filestore.errors import InvalidRequest
from filestore.model.schema import Column, Schema
from tablestore import Store
from tablestore.incoming.fitting import fit

NOON = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)
MIDNIGHT = NOON.replace(hour=0)


def no_text(kind: pa.DataType) -> pa.Array:
    """Bytes that are no UTF-8, under a type that says they are: Spark makes such."""
    text = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), text)
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([text], names=["x"])
    return text


@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.string()), pa.struct([("x", pa.string())])], ids=str)
def test_a_text_that_is_not_utf8_is_refused(store: Store, kind: pa.DataType) -> None:
    schema = Schema((Column("id", pa.int64(), nullable=False), Column("v", kind)))
    table = store.create_table("shop.texts", schema.to_arrow(), primary_key=["id"])
    rows = pa.table([pa.array([1]), no_text(kind)], names=["id", "v"])
    with pytest.raises(InvalidRequest, match="not UTF-8"):
        table.write(rows)
    assert table.snapshots(1)[0].version == 0


def test_a_key_that_is_not_utf8_is_refused(store: Store) -> None:
    table = store.create_table("shop.texts", "id STRING, v INT", primary_key=["id"])
    with pytest.raises(InvalidRequest, match="not UTF-8"):
        table.write(pa.table([no_text(pa.string()), pa.array([1], pa.int32())], names=["id", "v"]))


@pytest.mark.parametrize(
    ("value", "given", "wanted", "fits"),
    [
        (MIDNIGHT, pa.timestamp("us", "UTC"), pa.date32(), True),
        (NOON, pa.timestamp("us", "UTC"), pa.date32(), False),
        (0.12, pa.float64(), pa.decimal128(10, 2), True),
        (0.126, pa.float64(), pa.decimal128(10, 2), False),
        (1, pa.int64(), pa.bool_(), True),
        (2, pa.int64(), pa.bool_(), False),
        (0.1, pa.float64(), pa.float32(), True),
        (float("inf"), pa.float64(), pa.float32(), True),
        (1e300, pa.float64(), pa.float32(), False),
        (None, pa.float64(), pa.decimal128(10, 2), True),
    ],
)
def test_a_value_that_does_not_fit_is_refused_not_changed(
    value: Any, given: pa.DataType, wanted: pa.DataType, fits: bool
) -> None:
    column = pa.chunked_array([pa.array([None, value], given)])
    if fits:
        assert fit(column, pa.field("x", wanted)).type == wanted
    else:
        with pytest.raises(InvalidRequest, match="does not fit"):
            fit(column, pa.field("x", wanted))
