"""Storage fails while a batch of a topic is committed: who begins again from the table's offsets takes it once."""

from __future__ import annotations

import pyarrow as pa
import pytest

from filestore.errors import Conflict, InvalidRequest, Unavailable
from filestore.storage.local import LocalStorage
from tablestore import Store, Table
from tablestore.ingesting.targets import ManagedTarget
from tests.depth import Depth
from tests.faults import FailAt, FaultyStorage, Killed
from tests.opened import again
from tests.warehouses import assert_whole, changes

FAULTS = [(Unavailable("injected"), False), (Unavailable("injected"), True), (Killed(), False), (Killed(), True)]
NAMES = ["error before", "error after", "kill before", "kill after"]


def rows(number: int) -> pa.Table:
    return pa.table({"id": [number, 1000], "v": [number, number], "_kind": ["+I", "+I"]})


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize(("error", "after"), FAULTS, ids=NAMES)
def test_a_batch_at_every_storage_call(store: Store, error: BaseException, after: bool, depth: Depth) -> None:
    taken = set()
    for number in depth.counting(5):
        table = store.create_table(f"shop.t{number}", "id BIGINT, v BIGINT", primary_key=["id"])
        assert isinstance(table, Table)
        ManagedTarget(table, "topic").take(rows(1), {0: 1})
        storage = FaultyStorage(LocalStorage())
        target = ManagedTarget(again(table, storage=storage), "topic")
        assert target.offsets() == {0: 1}
        storage.hook = fault = FailAt(number, error, after)
        try:
            target.take(rows(2), {0: 2})
        except (Killed, Unavailable):
            assert fault.fired
        retried = ManagedTarget(again(table), "topic")
        taken.add(retried.offsets()[0])
        if retried.offsets() == {0: 1}:
            retried.take(rows(2), {0: 2})
        assert retried.offsets() == {0: 2}
        found = sorted((row["id"], row["v"], row["_kind"]) for row in changes(table, version=0))
        assert found == [(1, 1, "+I"), (2, 2, "+I"), (1000, 1, "+I"), (1000, 2, "+I")], "each batch once"
        assert_whole(table)
        store.drop_table(f"shop.t{number}")
        if not fault.fired:
            break
    assert number > 10, "there are more calls than that"
    assert taken == {1, 2}


def test_who_was_overtaken_changes_nothing(store: Store) -> None:
    table = store.create_table("shop.t", "id BIGINT, v BIGINT", primary_key=["id"], options={"log.system": "none"})
    assert isinstance(table, Table)
    slow, fast = ManagedTarget(table, "topic"), ManagedTarget(table, "topic")
    assert slow.offsets() == fast.offsets() == {}
    fast.take(rows(2), {0: 2})
    with pytest.raises(Conflict) as caught:
        slow.take(rows(1), {0: 1})
    assert caught.value.code == "other-batch"
    assert slow.offsets() == {0: 2}
    other = ManagedTarget(table, "another topic")
    assert other.offsets() == {}
    other.take(rows(5), {0: 1})
    fast.take(rows(3), {0: 3})
    assert sorted(row["id"] for row in table.scan().to_arrow().to_pylist()) == [2, 3, 5, 1000]


def test_a_delete_without_a_sequence_is_not_late_without_a_word(store: Store) -> None:
    """It lost to the stored row, which stayed: Debezium sends deletes with their key alone by default."""
    options = {"sequence.field": "v"}
    table = store.create_table("shop.t", "id BIGINT, v BIGINT", primary_key=["id"], options=options)
    assert isinstance(table, Table)
    target = ManagedTarget(table, "topic")
    target.take(pa.table({"id": [1, 2], "v": [1, None], "_kind": ["+I", "+I"]}), {0: 1})
    gone = pa.table({"id": [2, 1], "v": pa.array([5, None], pa.int64()), "_kind": ["+U", "-D"]})
    with pytest.raises(InvalidRequest, match=r"the delete of \{'id': 1\} has no value of column v") as caught:
        target.take(gone, {0: 2})
    assert caught.value.code == "delete-without-sequence"
    moved = pa.table({"id": [2, 2, 1, 7], "v": [None, 5, None, 9], "_kind": ["-U", "+U", "-U", "+U"]})
    with pytest.raises(InvalidRequest, match=r"the delete of \{'id': 1\} has no value of column v"):
        target.take(moved, {0: 2})
    assert target.offsets() == {0: 1}
    target.take(pa.table({"id": [1], "v": [1], "_kind": ["-D"]}), {0: 2})
    assert table.scan().to_arrow().to_pylist() == [{"id": 2, "v": None}]
    # that row has no sequence, so it is no reason to stop, and neither are deletes of rows that are not there
    target.take(pa.table({"id": [1, 2, 3], "v": pa.nulls(3, pa.int64()), "_kind": ["-D"] * 3}), {0: 3})
    assert table.scan().count_rows() == 0
    kept = store.create_table(
        "shop.kept", "id BIGINT, v BIGINT", primary_key=["id"], options={**options, "ignore-delete": "true"}
    )
    assert isinstance(kept, Table)
    ManagedTarget(kept, "topic").take(pa.table({"id": [1, 1], "v": [1, None], "_kind": ["+I", "-D"]}), {0: 2})
    assert kept.scan().to_arrow().to_pylist() == [{"id": 1, "v": 1}]
