"""`Store` and `Table`: the public functions without Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pyarrow as pa
import pytest

import tablestore
from filestore.errors import AlreadyExists, InvalidRequest, NotFound
from filestore.model.snapshot import Operation
from tablestore import Store, Table
from tests.warehouses import assert_whole, rows


def put(table: Table, *ids: int, name: str = "a") -> int:
    return table.write(pa.table({"id": ids, "name": [name] * len(ids)})).version


def test_tables_come_and_go(store: Store, orders: Table) -> None:
    assert store.list_databases() == ["shop"]
    assert store.list_tables("shop") == ["orders"]
    with pytest.raises(AlreadyExists):
        store.create_table("shop.orders", "id BIGINT")
    same = store.create_table("shop.orders", "id BIGINT", if_not_exists=True)
    assert same.detail()["table_id"] == orders.detail()["table_id"]
    store.drop_table("shop.orders")
    store.drop_table("shop.orders", if_exists=True)
    with pytest.raises(NotFound):
        store.table("shop.orders")


@pytest.mark.parametrize("name", ["orders", "a.b.c", ".orders", "shop.", ""])
def test_a_name_has_two_parts(store: Store, name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        store.table(name)
    assert caught.value.code == "bad-name"


def test_an_arrow_schema_makes_the_same_table_as_sql(store: Store, orders: Table) -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.large_string())])
    made = store.create_table("shop.other", schema, primary_key=["id"], options={"bucket": "2"})
    assert made.definition == orders.definition
    assert made.schema == orders.schema
    assert not made.schema.field("id").nullable, "keys are NOT NULL by being keys"


def test_two_handles_see_each_other(store: Store, orders: Table) -> None:
    put(orders, 1)
    other = store.table("shop.orders")
    put(other, 2)
    put(orders, 3)
    assert [row["id"] for row in rows(other)] == [1, 2, 3]


def test_a_snapshot_says_what_it_did(orders: Table) -> None:
    put(orders, 1, 2, 3)
    snapshot = orders.write(pa.table({"id": [1, 2, 9], "_kind": ["-D", "+U", "+I"], "name": [None, "b", "c"]}))
    assert snapshot.version == 2
    assert snapshot.operation == Operation.WRITE
    assert sum(snapshot.log_offsets.values()) == 6
    assert snapshot.metrics["rows_written"] == 2
    assert snapshot.metrics["rows_deleted"] == 1
    assert orders.snapshots()[0] == snapshot
    assert [s.version for s in orders.snapshots()] == [2, 1, 0]
    assert [s.version for s in orders.snapshots(limit=1)] == [2]


def test_detail_is_plain_values(orders: Table) -> None:
    put(orders, 1, 2, 3)
    detail = orders.detail()
    assert detail["name"] == "shop.orders"
    assert detail["location"] == orders.location
    assert (detail["version"], detail["rows"], detail["primary_key"]) == (1, 3, ["id"])
    assert detail["files"] == len(orders.files())


def test_passwords_are_not_shown(store: Store) -> None:
    options = {"log.kafka.properties.sasl.password": "geheim", "log.kafka.properties.sasl.username": "ann"}
    options["allow-literal-secrets"] = "true"
    table = store.create_table("shop.t", "id BIGINT", options=options)
    reported = [table.detail(), *(table.system(name).to_arrow().to_pylist() for name in ("options", "schemas"))]
    assert "geheim" not in str(reported)
    assert str(reported).count("****") == str(reported).count("ann") == 3
    assert store.table("shop.t").definition.options.as_dict() == options  # whoever opens the log needs them


@pytest.mark.slow
def test_time_travel_by_version_and_by_time(orders: Table) -> None:
    times: list[datetime] = []
    for i in range(1, 13):  # over a checkpoint
        put(orders, i)
        times.append(orders.snapshots(1)[0].timestamp)
    for i, moment in enumerate(times, 1):
        assert orders.scan(version=i).to_arrow().num_rows == i
        assert orders.scan(timestamp=moment).to_arrow().num_rows == i
        assert orders.scan(timestamp=moment - timedelta(microseconds=1)).to_arrow().num_rows == i - 1
    assert orders.scan(version=0).to_arrow().num_rows == 0
    to_come = times[-1] + timedelta(days=1)
    for bad in (
        {"version": 13},
        {"version": -1},
        {"timestamp": datetime(1999, 1, 1, tzinfo=UTC)},
        {"timestamp": to_come},
    ):
        with pytest.raises(NotFound) as caught:
            orders.scan(**bad)
        assert caught.value.code == "no-such-version"
    for both in ({"version": 1, "timestamp": times[0]}, {"version": 1, "fresh": True}):
        with pytest.raises(InvalidRequest) as wrong:
            orders.scan(**both)
        assert wrong.value.code == "bad-time-travel"


def test_a_scan_is_planned_on_one_version_and_stays_there(orders: Table) -> None:
    put(orders, 1, 2)
    planned = orders.scan()
    orders.write(pa.table({"id": [1, 2], "_kind": ["-D", "-D"]}))
    assert planned.to_arrow().num_rows == 2
    assert orders.scan().to_arrow().num_rows == 0


def test_columns_and_conditions(orders: Table) -> None:
    orders.write(pa.table({"id": range(10), "name": [f"n{i}" for i in range(10)]}))
    names = orders.scan(columns=["name"], where="id >= 8").to_polars()
    assert names.columns == ["name"]
    assert sorted(names["name"]) == ["n8", "n9"]
    assert orders.scan(where=pl.col("name") == "n3").to_arrow().to_pylist() == [{"id": 3, "name": "n3"}]
    turned = orders.scan(columns=["name", "id"], where="id = 1").to_arrow()
    assert turned.column_names == ["name", "id"]
    assert orders.scan(fresh=True).to_arrow().num_rows == 10, "transactional: the snapshot is the newest"
    with pytest.raises(NotFound):
        orders.scan(columns=["nmae"]).to_arrow()


def test_a_write_of_nothing_makes_no_version(orders: Table) -> None:
    put(orders, 1)
    nothing = pa.table({"id": pa.array([], pa.int64())})
    for given in (nothing, nothing.to_reader(), nothing.to_pylist()):
        assert orders.write(given).version == 1
    assert orders.write(nothing, app=("job", 1)).version == 2, "the number is to be remembered"
    assert orders.write(nothing, overwrite=True).version == 3
    assert_whole(orders, leftovers=False)


def test_deletes_need_their_key_only(orders: Table) -> None:
    put(orders, 1, 2)
    orders.write(pa.table({"id": [1, 77], "_kind": ["-D", "-D"]}))
    assert [row["id"] for row in assert_whole(orders, leftovers=False)] == [2]


def test_of_rows_with_one_key_the_last_wins(orders: Table) -> None:
    orders.write(pa.table({"id": [1, 2, 1, 2], "name": list("abcd"), "_kind": ["+I", "+I", "+U", "-D"]}))
    assert assert_whole(orders, leftovers=False) == [{"id": 1, "name": "c"}]


def test_a_service_is_a_store_like_a_warehouse(tmp_path) -> None:
    from catalog_service.server import serving

    with serving(str(tmp_path / "warehouse")) as url, tablestore.connect(url) as store:
        store.create_database("shop")
        table = store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=["id"])
        put(table, 1, 2)
        assert store.target == url
        assert len(assert_whole(store.table("shop.orders"))) == 2
        store.drop_table("shop.orders")
        assert store.list_tables("shop") == []
