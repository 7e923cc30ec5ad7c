"""A table's files in S3: what `filestore` does with a table works there as on the local disk, and others read it."""

from __future__ import annotations

import pickle

import deltalake
import polars as pl
import pytest

from compaction.compact import compact_table
from filestore.life.expiry import expire
from filestore.life.orphans import find_orphans, remove_orphans
from filestore.table import FileStore
from tests.filestore.storage.places import s3_place
from tests.servers.s3 import S3Endpoint
from tests.servers.s3_proxy import Fault, Kind, S3Proxy
from tests.tables import assert_healthy, create, define, in_order, read, reopen, write

ROWS = 200


@pytest.fixture(params=["obstore", "s3fs"])
def store(request: pytest.FixtureRequest, moto: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> FileStore:
    place = s3_place(moto, request.param, monkeypatch)
    return create(place.folder, TABLE, place.storage)


def anew(store: FileStore) -> FileStore:
    """The same table, as a process opens it that knows nothing yet."""
    return reopen(store, pickle.loads(pickle.dumps(store.storage)))


TABLE = define("id BIGINT, v STRING", ["id"], bucket=2, checkpoint_interval=4)


def three_versions(store: FileStore) -> list[dict[str, object]]:
    """Writes three versions; returns the rows of the last one."""
    write(store, [{"id": n, "v": "old"} for n in range(ROWS)])
    write(store, [{"id": n, "v": "new"} for n in range(0, ROWS, 2)])
    write(store, [{"id": 0, "v": None, "_kind": "-D"}])
    return in_order({"id": n, "v": "old" if n % 2 else "new"} for n in range(1, ROWS))


@pytest.mark.few(1)
def test_rows_are_the_same_for_every_reader(store: FileStore) -> None:
    expected = three_versions(store)
    write(store, [{"id": 1, "v": "old"}])  # version 4, with a checkpoint
    other = anew(store)
    options = store.storage.delta_options(store.location)
    assert read(store) == read(other) == expected
    assert in_order(pl.scan_delta(store.location, storage_options=options).collect().to_dicts()) == expected
    assert deltalake.DeltaTable(store.location, storage_options=options).version() == 4
    assert other.delta_log.checkpoints() == [4]
    assert_healthy(other)


@pytest.mark.few(1)
def test_a_table_that_another_process_has_made_again(store: FileStore) -> None:
    """Its checkpoint has the name of one that this process has read before."""
    three_versions(store)
    write(store, [{"id": 1, "v": "old"}])
    reader = pickle.loads(pickle.dumps(store.storage))
    assert reopen(store, reader).delta_log.checkpoints() == [4]
    other = pickle.loads(pickle.dumps(store.storage))
    other.delete_tree(store.location)
    again = create(store.location, TABLE, other)
    for v in ("a", "b", "c", "much longer than any value before"):
        write(again, [{"id": n, "v": v} for n in range(3)])
    assert read(reopen(again, reader)) == [{"id": n, "v": v} for n in range(3)]
    assert_healthy(reopen(again, reader))


@pytest.mark.few(1)
def test_maintenance(store: FileStore) -> None:
    expected = three_versions(store)
    compact_table(store, full=True)
    orphan = f"bucket-00000/{store.ambient.new_id()}.parquet"
    store.storage.write_new(f"{store.location}/{orphan}", b"")
    later = store.ambient.now_ms() + 10**9
    orphans = find_orphans(anew(store), later, lambda: None)
    assert orphan in {left.path for left in orphans}
    remove_orphans(store, orphans)
    assert find_orphans(anew(store), later, lambda: None) == []
    expire(store)
    assert read(anew(store)) == expected
    assert_healthy(anew(store))


def test_a_gateway_that_sends_requests_twice_doubles_nothing(moto: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each writer is answered that its version exists already, and finds that it is its own."""
    with S3Proxy(moto, lambda call: Fault.TWICE if call.kind is Kind.PUT_IF else None) as proxy:
        place = s3_place(proxy, "obstore", monkeypatch)
        store = create(place.folder, TABLE, place.storage)
        expected = three_versions(store)
        assert store.state().version == 3
        assert read(anew(store)) == expected
        assert_healthy(store)
        with store.leases.hold("mine"):
            assert anew(store).leases.at_work_since_ms() is not None
