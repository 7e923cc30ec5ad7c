"""`Table.get`: keys in every form, and the errors of wrong ones."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from filestore.errors import InvalidRequest, NotFound
from tablestore import Store, Table


@pytest.fixture
def filled(orders: Table) -> Table:
    orders.write(pl.DataFrame({"id": [1, 2, 3], "name": ["a", "b", "c"]}))
    return orders


@pytest.fixture
def sales(store: Store) -> Table:
    table = store.create_table(
        "shop.sales",
        "region STRING, price DECIMAL(9,2), at TIMESTAMP, v INT",
        primary_key=["region", "price", "at"],
        partition_by=["region"],
    )
    moments = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2)]
    table.write(
        pl.DataFrame({"region": ["eu", "us"], "price": [Decimal("1.50"), Decimal("2.00")], "at": moments, "v": [1, 2]})
    )
    return table


@pytest.mark.parametrize(
    "keys",
    [
        [3, 9, 1, 3],
        (3, 1),
        range(3, 0, -2),
        [(3,), (1,)],
        [[3], [1]],
        [{"id": 3}, {"id": 1}],
        ["3", "1"],
        pa.table({"id": [3, 1]}),
        pa.table({"id": pa.array([3, 1], pa.int16())}),
        pa.record_batch({"id": [3, 1]}),
        pl.DataFrame({"id": [3, 9, 1]}),
        pl.LazyFrame({"id": ["3", "1"]}),
    ],
    ids=lambda keys: type(keys).__name__,
)
def test_keys_in_every_form(filled: Table, keys: Any) -> None:
    assert filled.get(keys).to_pylist() == [{"id": 3, "name": "c"}, {"id": 1, "name": "a"}]


@pytest.mark.parametrize("price", [Decimal("1.5"), Decimal("1.50"), "1.50"])
@pytest.mark.parametrize("at", [datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00Z"])
def test_keys_of_several_columns(sales: Table, price: Any, at: Any) -> None:
    key = {"at": at, "region": "eu", "price": price}
    assert sales.get([key], ["v"]).to_pylist() == [{"v": 1}]
    assert sales.get([("eu", price, at)], ["v", "region"]).to_pylist() == [{"v": 1, "region": "eu"}]
    assert sales.get([("us", price, at)]).count_rows() == 0


def test_a_whole_number_is_a_decimal(sales: Table) -> None:
    assert sales.get([("us", 2, datetime(2026, 1, 2, tzinfo=UTC))], ["v"]).to_pylist() == [{"v": 2}]


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ("123", "bad-keys"),
        (7, "bad-keys"),
        ({1, 2}, "bad-keys"),
        ([(1, 2)], "bad-keys"),
        ([(1,), ()], "bad-keys"),
        ([{"id": 1}, {"name": "a"}], "bad-keys"),
        ([{"id": 1, "name": "a"}], "bad-keys"),
        (pa.table({"id": [1], "name": ["a"]}), "bad-keys"),
        (pa.table({"name": ["a"]}), "bad-keys"),
        ([1, None], "null-key"),
        (pa.table({"id": pa.array([None], pa.int64())}), "null-key"),
        (["a"], "bad-value"),
        ([1.5], "bad-value"),
        ([1, "a"], "bad-value"),
        ([2**63], "bad-value"),
        ([2**70], "bad-value"),
        ([(1,), 2], "bad-value"),
    ],
    ids=repr,
)
def test_wrong_keys(filled: Table, keys: Any, code: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        filled.get(keys)
    assert caught.value.code == code


def test_single_values_are_no_keys_of_several_columns(sales: Table) -> None:
    with pytest.raises(InvalidRequest, match="region, price, at") as caught:
        sales.get(["eu"])
    assert caught.value.code == "bad-keys"


def test_a_table_without_a_key(store: Store) -> None:
    table = store.create_table("shop.plain", "id BIGINT")
    with pytest.raises(InvalidRequest) as caught:
        table.get([1])
    assert caught.value.code == "no-primary-key"


def test_columns_and_versions(filled: Table) -> None:
    filled.write(pl.DataFrame({"id": [1], "name": ["new"]}))
    assert filled.get([1]).to_pylist() == [{"id": 1, "name": "new"}]
    assert filled.get([1], ["name"], version=1).to_pylist() == [{"name": "a"}]
    assert filled.get([1], version=0).count_rows() == 0
    with pytest.raises(NotFound):
        filled.get([1], ["nope"])
    with pytest.raises(NotFound):
        filled.get([1], version=99)
    assert filled.get([1, 99], []).to_arrow().shape == (1, 0)
    assert filled.get([]).schema.equals(filled.schema)
