"""A store and its tables are arguments of other processes: they are pickled as their address."""

from __future__ import annotations

import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

import tablestore
from filestore.ambient import system_ambient
from filestore.errors import Unsupported
from tablestore import Store, Table
from tablestore.kafka_table import KafkaTable
from tests.log.connector.tables import declared
from tests.opened import again
from tests.warehouses import rows
from tests.writers import put


def write_there(table: Table, store: Store) -> int:
    """Writes by what another process has sent."""
    put(table, 2)
    put(store.table("shop.other"), 3)
    return table.version


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=pytest.mark.deep)])
@pytest.mark.slow
def test_another_process_writes_by_the_table_and_the_store_that_it_gets(store: Store, method: str) -> None:
    table, other = (
        store.create_table(f"shop.{n}", "id BIGINT, name STRING", primary_key=["id"]) for n in ("t", "other")
    )
    assert isinstance(table, Table) and isinstance(other, Table)
    put(table, 1)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
        assert pool.submit(write_there, table, store).result() == 2
    assert [row["id"] for row in rows(table)] == [1, 2]
    assert [row["id"] for row in rows(other)] == [3]


def test_a_pickle_opens_the_newest_version_and_keeps_the_defaults(tmp_path: Path) -> None:
    with tablestore.connect(tmp_path / "w", options={"table-storage.bucket": "3"}) as store:
        store.create_database("shop")
        made = store.create_table("shop.t", "id BIGINT, name STRING", primary_key=["id"])
        assert isinstance(made, Table)
        sent = pickle.dumps((store, made))
        put(made, 1)
        with pickle.loads(sent)[0] as opened:
            assert (opened.target, opened.token) == (store.target, None)
            defaults = opened.create_table("shop.later", "id BIGINT", primary_key=["id"]).definition.buckets
            assert (defaults, rows(pickle.loads(sent)[1])) == (3, rows(again(made)))


def test_where_the_catalog_holds_the_commits_the_store_is_sent(tmp_path: Path) -> None:
    with tablestore.connect(tmp_path / "w", commits="catalog") as store:
        store.create_database("shop")
        made = store.create_table("shop.t", "id BIGINT, name STRING", primary_key=["id"])
        assert isinstance(made, Table)
        put(made, 1)
        sent = pickle.loads(pickle.dumps(made))
        assert rows(sent) == rows(made)
        with pytest.raises(Unsupported) as caught:
            put(sent, 2)
        assert caught.value.code == "catalog-commits"
        with pickle.loads(pickle.dumps(store)) as opened:
            put(opened.table("shop.t"), 2)
        assert [row["id"] for row in rows(made)] == [1, 2]


def test_a_topic_is_pickled_too() -> None:
    base = {"connector": "kafka", "topic": "t", "properties.bootstrap.servers": "h:1", "format": "json"}
    topic = KafkaTable("shop", "topic", "an id", declared("id BIGINT", base), system_ambient())
    opened = pickle.loads(pickle.dumps(topic))
    assert (repr(opened), opened.declaration) == (repr(topic), topic.declaration)


def test_a_secret_is_in_the_pickle_and_in_no_text(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'very-secret.db'}"
    password = {"table-storage.log.kafka.properties.sasl.password": "very-secret"}
    with tablestore.connect(tmp_path / "w", database=database, options=password) as store:
        assert b"very-secret" in pickle.dumps(store)
        assert "very-secret" not in repr(store) + repr(store.__reduce__())
