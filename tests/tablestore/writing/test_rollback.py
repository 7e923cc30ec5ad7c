"""Rollbacks: the rows are those of the older version, for every reader of the files and of the log."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.errors import InvalidRequest, NotFound, Unavailable
from filestore.life.expiry import expire
from filestore.life.tags import create_tag, delete_tag
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tablestore import Store, Table
from tablestore.writing.writer import TableWriter
from tests.depth import Depth, sampled
from tests.faults import Call, FailAt, FaultyStorage, Killed
from tests.folders import memory_folder
from tests.interleaving import interleave
from tests.opened import again
from tests.tables import Clock, assert_healthy, create, define, read, seeded, write
from tests.warehouses import assert_whole, changes, replay, rows, to_arrow, warehouse

Rows = list[dict[str, Any]]

COLUMNS = "id BIGINT, p STRING, v DOUBLE, l ARRAY<STRUCT<a: INT, b: STRING>>"


def make(store: Store, *, key: tuple[str, ...] = ("id",), partition: tuple[str, ...] = (), **options: str) -> Table:
    given = {"bucket": "2", "row-group.rows": "1024"} | {k.replace("_", "."): v for k, v in options.items()}
    return store.create_table("shop.t", COLUMNS, primary_key=key, partition_by=partition, options=given)


def row(key: int, value: float | None = 1.0, **more: Any) -> dict[str, Any]:
    return {"id": key, "p": "x", "v": value, "l": [{"a": key, "b": None}]} | more


def put(table: Table, *found: dict[str, Any], overwrite: bool = False) -> int:
    return table.write(to_arrow(table, found), overwrite=overwrite).version


def reported(table: Table, version: int) -> Rows:
    """Returns what the log says of one version."""
    return changes(table, version=version - 1, stop=version)


def test_the_log_contains_exactly_the_rows_that_change(store: Store) -> None:
    table = make(store)
    then = put(table, row(1), row(2), row(3, None), row(4, float("nan")))
    before = rows(table)
    put(table, row(2, 7.0), row(5))
    put(table, row(3, None, _kind="-D"), row(1))
    table.compact(full=True)
    put(table, row(6), row(6, _kind="-D"))
    snapshot = table.rollback(then)
    assert str(snapshot.operation) == "ROLLBACK"
    assert repr(rows(table)) == repr(before)
    found = {(r["_kind"], r["id"]) for r in reported(table, snapshot.version)}
    assert found == {("+U", 2), ("-D", 5), ("+I", 3)}, "rows 1 and 4 are as they were, wherever they stand"
    assert_healthy(table.filestore)
    put(table, row(2, 9.0), row(8))
    table.compact(full=True)
    table.rollback(snapshot.version)
    assert repr(rows(table)) == repr(before)


def test_rows_that_only_moved_are_not_logged(store: Store) -> None:
    table = make(store)
    then = put(table, row(1), row(2))
    put(table, row(3))
    with_three = table.filestore.state().version
    table.compact(full=True)
    snapshot = table.rollback(with_three)
    assert reported(table, snapshot.version) == []
    assert snapshot.transactions == ()
    assert len(rows(table)) == 3
    assert table.rollback(snapshot.version).version == snapshot.version, "nothing to do"
    table.rollback(then)
    assert_whole(table)


def test_by_tag_and_by_time(store: Store) -> None:
    table = make(store)
    then = put(table, row(1))
    table.create_tag("good")
    moment = table.snapshots(1)[0].timestamp
    put(table, row(2))
    table.rollback(tag="good")
    assert [r["id"] for r in assert_whole(table)] == [1]
    put(table, row(3))
    table.rollback(timestamp=moment)
    assert [r["id"] for r in assert_whole(table)] == [1]
    assert rows(table, then) == rows(table)
    for wrong in ({}, {"version": 1, "tag": "good"}):
        with pytest.raises(InvalidRequest):
            table.rollback(**wrong)
    with pytest.raises(NotFound, match="no tag 'bad'"):
        table.rollback(tag="bad")
    with pytest.raises(NotFound, match="no version 99"):
        table.rollback(99)
    assert table.consumers() == []


def test_a_table_without_a_key(store: Store) -> None:
    table = make(store, key=())
    then = put(table, row(1), row(1))
    put(table, row(2))
    snapshot = table.rollback(then)
    assert [r["id"] for r in rows(table)] == [1, 1]
    found = [(r["_kind"], r["id"]) for r in reported(table, snapshot.version)]
    assert found == [("-D", 2)], "the file with the others stays"
    assert_whole(table)


def test_a_table_without_a_log(store: Store) -> None:
    table = make(store, log_system="none")
    then = put(table, row(1))
    put(table, row(1, 2.0), row(2))
    table.rollback(then)
    assert [(r["id"], r["v"]) for r in assert_whole(table)] == [(1, 1.0)]


def test_an_aggregation_goes_on_from_the_restored_rows(store: Store) -> None:
    table = make(store, **{"merge-engine": "aggregation", "fields_v_aggregate-function": "sum"})
    then = put(table, row(1, 1.0), row(2, 5.0))
    put(table, row(1, 10.0))
    table.rollback(then)
    put(table, row(1, 100.0))
    assert [(r["id"], r["v"]) for r in assert_whole(table)] == [(1, 101.0), (2, 5.0)]


def test_numbers_of_apps_stay(store: Store) -> None:
    table = make(store)
    then = put(table, row(1))
    table.write(to_arrow(table, [row(2)]), app=("job", 1))
    table.rollback(then)
    table.write(to_arrow(table, [row(2)]), app=("job", 1))
    assert [r["id"] for r in rows(table)] == [1]


# -------------------------------------------------------------------------------------------------------- other writers


def reopened(table: Table, storage: FaultyStorage) -> Table:
    return again(table, storage=storage)


OTHERS: dict[str, Callable[[Table], object]] = {
    "an upsert of restored and of other keys": lambda t: put(t, row(1, 50.0), row(9), row(2, 8.0)),
    "a delete": lambda t: put(t, row(1, _kind="-D"), row(4, _kind="-D")),
    "an overwrite": lambda t: put(t, row(1, 50.0), row(9), overwrite=True),
    "a compaction": lambda t: t.compact(full=True),
    "another rollback": lambda t: t.rollback(2),
    "a tag": lambda t: t.create_tag("t"),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("key", [("id",), ()], ids=["key", "no-key"])
@pytest.mark.parametrize("other", sampled(OTHERS, 3))
def test_what_others_commit_meanwhile_is_rolled_back_too(store: Store, other: str, key: tuple[str, ...]) -> None:
    if not key and "delete" in other:
        pytest.skip("without a key nothing is deleted")
    table = make(store, key=key)
    then = put(table, row(1), row(2), row(4))
    put(table, row(2, 7.0), row(3))
    put(table, row(5))
    expected = rows(table, then)
    storage = FaultyStorage(LocalStorage())

    def others_first(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and not call.done:
            storage.hook = lambda _: None
            OTHERS[other](store.table("shop.t"))

    mine = reopened(table, storage)
    storage.hook = others_first
    mine.rollback(then)
    assert rows(store.table("shop.t")) == expected
    fresh = store.table("shop.t")
    if key:
        assert_whole(fresh, leftovers=False)
    else:
        assert_healthy(fresh.filestore)
        left = list(expected)
        assert replay_all(changes(fresh, version=0)) == sorted(map(repr, left))


def replay_all(found: Rows) -> list[str]:
    held: list[str] = []
    for change in found:
        text = repr({name: value for name, value in change.items() if name != "_kind"})
        held.append(text) if change["_kind"] == "+I" else held.remove(text)
    return sorted(held)


def test_a_writer_that_folds_meanwhile_looks_its_keys_up_again(store: Store) -> None:
    table = make(store)
    then = put(table, row(1), row(2))
    put(table, row(1, 5.0), row(3))
    storage = FaultyStorage(LocalStorage())
    mine = reopened(table, storage)

    def others_first(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and not call.done:
            storage.hook = lambda _: None
            store.table("shop.t").rollback(then)

    storage.hook = others_first
    put(mine, row(2, 6.0), row(3, 7.0))
    assert [(r["id"], r["v"]) for r in assert_whole(store.table("shop.t"))] == [(1, 1.0), (2, 6.0), (3, 7.0)]


# ------------------------------------------------------------------------------------------- faults at every call of it

CHANGING = {"write_new", "replace", "delete"}


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "after"),
    [(Unavailable, False), (Unavailable, True), (Killed, True)],
    ids=["error-before", "error-after", "kill"],
)
def test_a_rollback_that_fails_anywhere_leaves_a_whole_table_and_can_be_repeated(
    kind: type[BaseException], after: bool, depth: Depth
) -> None:
    with warehouse() as store:
        table = make(store)
        then = put(table, row(1), row(2), row(4))
        put(table, row(2, 7.0), row(3))
        put(table, row(5))
        expected, newest = rows(table, then), rows(table)
        saved = Path(table.location).parent / "saved"
        shutil.copytree(table.location, saved)
        counting = FaultyStorage(LocalStorage())
        mine = reopened(table, counting)
        counting.calls.clear()
        mine.rollback(then)
        calls = list(counting.calls)
        assert {call.operation for call in calls} >= CHANGING | {"read", "open_read"}
        placed = [(n, c) for n, c in enumerate(calls) if not after or c.operation in CHANGING]
        for place, call in depth.sample(placed, 8):
            shutil.rmtree(table.location)
            shutil.copytree(saved, table.location)
            number = sum(earlier.operation == call.operation for earlier in calls[: place + 1])
            storage = FaultyStorage(LocalStorage())
            failing = reopened(table, storage)
            storage.hook = FailAt(number, kind("injected"), after, call.operation)
            with suppress(Killed, Unavailable):
                failing.rollback(then)
            assert storage.hook.fired or after, call
            fresh = store.table("shop.t")
            assert rows(fresh) in (expected, newest)
            assert_whole(fresh)
            fresh.rollback(then)
            assert rows(fresh) == expected
            put(fresh, row(77))  # ends transactions that the log still holds open
            assert_whole(fresh)
            assert not {f.code for f in fresh.examine().findings} - {"orphan"}


# ---------------------------------------------------------------------------------------------- interleaved with expiry


@pytest.fixture(scope="module")
def tagged() -> Iterator[tuple[FileStore, Rows]]:
    """A table that tests copy; its version 3 is kept by a tag only."""
    with memory_folder() as folder:
        options = {"snapshot_num__retained_min": 2, "snapshot_time__retained": "0 ms", "checkpoint_interval": 3}
        store = create(folder / "t", define("id BIGINT, v INT", ["id"], **options), ambient=seeded(1))
        for version in range(8):
            write(store, [{"id": n, "v": version} for n in (0, version % 3, version)], overwrite=version == 4)
        create_tag(store, "t", 3)
        expected = read(store, 3)
        expire(FileStore.open(LocalStorage(), store.location, seeded(2, Clock(1_800_000_000_000))))
        yield store, expected


@pytest.mark.slow
@given(st.lists(st.integers(0, 2), max_size=150))
def test_a_rollback_to_a_tag_that_is_deleted_and_expires(tagged: tuple[FileStore, Rows], order: list[int]) -> None:
    with memory_folder() as folder:
        location = str(folder / "t")
        shutil.copytree(tagged[0].location, location)

        def opened(storage: FaultyStorage, seed: int) -> FileStore:
            return FileStore.open(storage, location, seeded(seed, Clock(1_900_000_000_000)))

        def back(storage: FaultyStorage) -> str:
            try:
                own = opened(storage, 3)
                TableWriter(own, lambda _: None, own.ambient).rollback(3)
            except NotFound as error:
                return error.code
            return "done"

        def untag(storage: FaultyStorage) -> None:
            own = opened(storage, 4)
            delete_tag(own, "t")
            expire(own)

        found, *others = interleave([back, untag, lambda s: expire(opened(s, 5))], order)
        assert found in ("done", "snapshot-expired")
        for other in others:
            assert not isinstance(other, BaseException), other
        fresh = FileStore.open(LocalStorage(), location, seeded(6, Clock(1_950_000_000_000)))
        if found == "done":
            assert read(fresh) == tagged[1]
        assert_healthy(fresh)


def test_the_log_alone_leads_to_the_table(store: Store) -> None:
    """A consumer that applies the topic's records by key, in order, has the table's rows."""
    table = make(store)
    then = put(table, *(row(n) for n in range(50)))
    put(table, *(row(n, 2.0) for n in range(0, 50, 3)), *(row(n, _kind="-D") for n in range(1, 50, 3)))
    put(table, *(row(n) for n in range(60, 70)))
    table.rollback(then)
    assert replay(changes(table, version=0), ("id",)) == rows(table)
