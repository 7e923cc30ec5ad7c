"""`SparkStore` shares the store's opened tables: a warm read or write reads of the Delta log only what is new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from filestore.errors import NotFound
from filestore.storage.local import LocalStorage
from tablestore import Store, Table
from tablestore.spark import SparkStore

COUNTED = ("read", "list_names", "walk", "exists", "open_read")


@contextmanager
def counted(table: Table, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[tuple[str, str]]]:
    """Calls of this process by operation and by what is read, as long as they are for the table's Delta log."""
    calls: Counter[tuple[str, str]] = Counter()

    def counting(operation: str) -> Any:
        plain = getattr(LocalStorage, operation)

        def call(self: LocalStorage, path: str, *rest: Any) -> Any:
            if path.startswith(table.location) and "_delta_log" in path:
                calls[operation, path.rpartition("/")[2]] += 1
            return plain(self, path, *rest)

        return call

    with monkeypatch.context() as patch:
        for operation in COUNTED:
            patch.setattr(LocalStorage, operation, counting(operation))
        yield calls


def entry(version: int) -> tuple[str, str]:
    return "read", f"{version:020d}.json"


def test_a_warm_read_and_write_read_only_what_is_new(
    lake: SparkStore, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = store.create_table("shop.t", "id BIGINT, v INT", primary_key=["id"], options={"bucket": "2"})
    for v in range(5):
        table.write(pa.table({"id": pa.array([v]), "v": pa.array([v], pa.int32())}))
    assert lake.read("shop.t").count() == 5
    with counted(table, monkeypatch) as warm:
        lake.read("shop.t")
    assert {*warm} <= {entry(5), entry(6)}, "whether its version is still there, and whether there is a next one"
    table.write(pa.table({"id": pa.array([9]), "v": pa.array([9], pa.int32())}))
    with counted(table, monkeypatch) as newer:
        assert lake.read("shop.t").count() == 6
    assert entry(6) in newer
    assert {*newer} <= {entry(version) for version in (5, 6, 7)}
    with counted(table, monkeypatch) as writing:
        assert lake.write("shop.t", lake.spark.range(3).selectExpr("id", "7 AS v")).version == 7
    assert {name for _, name in writing if name.endswith(".json")} <= {entry(version)[1] for version in (6, 7, 8)}
    with counted(table, monkeypatch) as after:
        assert lake.read("shop.t").where("v = 7").count() == 3
    assert {*after} <= {entry(7), entry(8)}, "readers know the writer's own version"


def test_a_table_of_the_same_name_is_opened_anew(lake: SparkStore, store: Store) -> None:
    schema = "id BIGINT"
    store.create_table("shop.t", schema, primary_key=["id"]).write(lake.spark.range(3).toArrow())
    assert lake.read("shop.t").count() == 3
    store.drop_table("shop.t")
    with pytest.raises(NotFound):
        lake.read("shop.t")
    store.create_table("shop.t", schema, primary_key=["id"]).write(lake.spark.range(5).toArrow())
    assert lake.read("shop.t").count() == 5


def test_what_a_task_is_sent_is_small(store: Store) -> None:
    table = store.create_table("shop.t", "id BIGINT, v INT", primary_key=["id"], options={"bucket": "2"})
    before = len(cloudpickle.dumps(table.opened))
    for v in range(5):
        table.write(pa.table({"id": pa.array([v]), "v": pa.array([v], pa.int32())}))
    assert len(cloudpickle.dumps(table.opened)) == before < 10_000
