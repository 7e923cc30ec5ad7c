"""Partitions that are dropped or overwritten: which rows are removed, which stay, and who wins a race."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from compaction.compact import compact_table
from filestore.errors import Conflict, InvalidRequest, Unavailable
from filestore.model.snapshot import Operation
from filestore.rows.partitions import partition_set
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from log.table.store import LogControl
from log.table.systems import open_log
from tablestore import Store, Table
from tablestore.writing.overwrite import Drop, parse_spec
from tests.bothlogs import both_logs
from tests.depth import Depth
from tests.faults import FailAt, FaultyStorage, Killed
from tests.opened import again
from tests.warehouses import assert_whole, changes, keyed, open_in_log, orphans, replay, rows
from tests.writers import on, sorted_batches

DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")
Ids = set[tuple[str, int]]
KEY = ["id", "day", "region"]


def some(day: str, *ids: int, region: str = "eu", name: str = "a") -> pa.Table:
    count = len(ids)
    return pa.table({"id": ids, "day": [day] * count, "region": [region] * count, "name": [name] * count})


def held(table: Table) -> Ids:
    return {(str(row["day"]), row["id"]) for row in assert_whole(table, leftovers=False)}


def ids(table: Table) -> Ids:
    return {(str(row["day"]), row["id"]) for row in rows(table)}


@pytest.fixture
def sales(store: Store, log_options: dict[str, str]) -> Table:
    return filled(store, "shop.sales", **log_options)


def filled(store: Store, name: str, **options: str) -> Table:
    """Creates three days with rows 1 to 3 in each; rows 3 are of another region."""
    table = store.create_table(
        name,
        "id BIGINT, day DATE, region STRING, name STRING",
        primary_key=KEY,
        partition_by=["day", "region"],
        options={"bucket": "2", **options},
    )
    table.write(pa.concat_tables([*(some(day, 1, 2) for day in DAYS), *(some(day, 3, region="us") for day in DAYS)]))
    return table


def everything() -> Ids:
    return {(day, number) for day in DAYS for number in (1, 2, 3)}


# ---------------------------------------------------------------------- drop


@pytest.mark.few(3)
@both_logs
@pytest.mark.parametrize(
    ("specs", "gone"),
    [
        ([{"day": DAYS[0], "region": "eu"}], {(DAYS[0], 1), (DAYS[0], 2)}),
        ([{"day": DAYS[0]}], {(DAYS[0], 1), (DAYS[0], 2), (DAYS[0], 3)}),
        ([{"region": "us"}], {(day, 3) for day in DAYS}),
        ([{"day": DAYS[0], "region": "us"}, {"day": DAYS[2]}], {(DAYS[0], 3), *((DAYS[2], n) for n in (1, 2, 3))}),
    ],
    ids=["one", "a day", "a region", "several"],
)
def test_a_drop_takes_all_partitions_with_these_values(sales: Table, specs: list[dict[str, Any]], gone: Ids) -> None:
    before = sales.filestore.state().version
    snapshot = sales.drop_partitions(specs)
    assert snapshot is not None
    assert (snapshot.version, snapshot.operation) == (before + 1, Operation.DROP_PARTITION)
    assert snapshot.metrics["rows_removed"] == len(gone)
    assert held(sales) == everything() - gone
    assert {(str(c["day"]), c["id"]) for c in changes(sales, version=before)} == gone
    assert {c["_kind"] for c in changes(sales, version=before)} == {"-D"}
    assert rows(sales, before) != rows(sales)


@pytest.mark.slow
@pytest.mark.few(1)
@both_logs
def test_readers_go_on_over_a_drop(sales: Table) -> None:
    """A reader that follows gets each removed row once; a reader that starts later ends with the same rows."""
    before = sales.filestore.state().version
    for mode in ("upsert", "changelog"):
        newest = sales.filestore.state().version + 3
        following = sales.follow(mode=mode, stop=newest)
        first = next(following).to_pylist()
        dropped = sales.drop_partitions([{"day": DAYS[0]}, {"region": "us"}])
        assert dropped is not None
        sales.write(some(DAYS[0], 1, name="again"))
        sales.write(pa.concat_tables([some(DAYS[0], 2), some(DAYS[2], 3, region="us")]))
        found = [*first, *(row for batch in following for row in batch.to_pylist())]
        gone = [(str(row["day"]), row["id"]) for row in found if row["_kind"] == "-D"]
        assert sorted(gone) == sorted(key for key in everything() if key[0] == DAYS[0] or key[1] == 3)
        assert replay(found, KEY) == rows(sales) == replay(changes(sales, "full", version=before, mode=mode), KEY)
        sales.write(some(DAYS[0], 3, region="us"))
        sales.write(some(DAYS[1], 3, region="us"))
    assert held(sales) == everything()


def test_a_drop_of_nothing_is_no_commit(sales: Table) -> None:
    before = sales.filestore.state().version
    assert sales.drop_partitions([{"day": "2030-01-01"}]) is None
    assert sales.drop_partitions([{"region": None}]) is None
    assert sales.filestore.state().version == before


def test_rows_can_come_back_after_a_drop(sales: Table) -> None:
    sales.drop_partitions([{"day": DAYS[0]}])
    sales.write(some(DAYS[0], 1, name="again"))
    assert held(sales) == everything() - {(DAYS[0], 2), (DAYS[0], 3)}


def test_a_table_without_a_key_or_a_log_drops_too(store: Store) -> None:
    table = store.create_table(
        "shop.events", "id BIGINT, day DATE", partition_by=["day"], options={"log.system": "none"}
    )
    table.write(pa.table({"id": [1, 1, 2], "day": [DAYS[0], DAYS[0], DAYS[1]]}))
    table.drop_partitions([{"day": DAYS[0]}])
    assert held(table) == {(DAYS[1], 2)}


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (lambda table: table.drop_partitions([]), "no-partition"),
        (lambda table: table.drop_partitions([{"id": 1}]), "unknown-partition-column"),
        (lambda table: table.write(some(DAYS[0], 9), overwrite="dinamic"), "bad-overwrite"),
        (lambda table: table.write(some(DAYS[0], 9), overwrite=["day"]), "bad-argument"),
        (lambda table: table.write(some(DAYS[0], 9), overwrite={}), "no-partition"),
        (lambda table: table.write(some(DAYS[0], 9), overwrite={"day": "x"}), "bad-partition-value"),
        (lambda table: table.write(some(DAYS[1], 9), overwrite={"day": DAYS[0]}), "outside-partitions"),
        (
            lambda table: table.write(
                pa.concat_tables([some(DAYS[0], 8), some(DAYS[0], 9, region="us")]), overwrite={"region": "eu"}
            ),
            "outside-partitions",
        ),
    ],
)
def test_a_bad_request_changes_nothing(sales: Table, act: Callable[[Table], Any], code: str) -> None:
    before = sales.filestore.state().version
    with pytest.raises(InvalidRequest) as caught:
        act(sales)
    assert caught.value.code == code
    assert sales.filestore.state().version == before
    assert held(sales) == everything()


# ---------------------------------------------------------------------- overwrite


def test_a_dynamic_overwrite_replaces_the_partitions_that_the_rows_have(sales: Table) -> None:
    before = sales.filestore.state().version
    snapshot = sales.write(pa.concat_tables([some(DAYS[0], 7), some("2026-02-01", 7)]), overwrite="dynamic")
    assert snapshot.operation is Operation.OVERWRITE
    assert (snapshot.metrics["rows_written"], snapshot.metrics["rows_removed"]) == (2, 2)
    assert held(sales) == (everything() - {(DAYS[0], 1), (DAYS[0], 2)}) | {(DAYS[0], 7), ("2026-02-01", 7)}
    found = [(c["_kind"], str(c["day"]), c["id"]) for c in changes(sales, version=before)]
    assert sorted(found) == sorted(
        [("+I", DAYS[0], 7), ("+I", "2026-02-01", 7), ("-D", DAYS[0], 1), ("-D", DAYS[0], 2)]
    )
    assert all(kind == "-D" for kind, *_ in found[:2]), "old rows leave before new ones come"


@pytest.mark.slow
def test_a_static_overwrite_replaces_the_partitions_that_it_names(sales: Table) -> None:
    sales.write(some(DAYS[0], 7), overwrite={"day": DAYS[0]})  # no row for the region us, which is emptied
    assert held(sales) == (everything() - {(DAYS[0], n) for n in (1, 2, 3)}) | {(DAYS[0], 7)}
    sales.write(some(DAYS[1], 7), overwrite=[{"day": DAYS[1], "region": "eu"}, {"day": DAYS[2]}])
    assert held(sales) == {(DAYS[0], 7), (DAYS[1], 7), (DAYS[1], 3)}


@pytest.mark.slow
def test_overwrites_without_rows(sales: Table) -> None:
    sales.write(some(DAYS[0]), overwrite={"day": DAYS[0]})
    assert held(sales) == {key for key in everything() if key[0] != DAYS[0]}
    version = sales.write(some(DAYS[0]), overwrite="dynamic").version
    assert held(sales) == {key for key in everything() if key[0] != DAYS[0]}
    assert sales.filestore.state().version == version
    sales.write(some(DAYS[0]), overwrite=True)
    assert held(sales) == set()


def test_a_dynamic_overwrite_of_an_unpartitioned_table_replaces_all(orders: Table) -> None:
    orders.write(pa.table({"id": [1, 2], "name": ["a", "a"]}))
    orders.write(pa.table({"id": [3], "name": ["a"]}), overwrite="dynamic")
    assert [row["id"] for row in assert_whole(orders, leftovers=False)] == [3]


@both_logs
def test_the_log_says_which_partitions_are_to_be_read_again(sales: Table) -> None:
    sales.drop_partitions([{"region": "us"}])
    sales.write(some(DAYS[0], 7), overwrite="dynamic")
    sales.write(some(DAYS[0], 7), overwrite=True)
    config = sales.opened.log_config()
    assert config is not None
    transactions = [t for snapshot in reversed(sales.snapshots(3)) for t in snapshot.transactions]
    with open_log(config, sales.opened.ambient) as log:
        for bucket in (0, 1):
            reported = [e.payload for e in log.events(transactions, bucket=bucket) if isinstance(e, LogControl)]
            assert reported == [
                {"control": "drop partition", "partitions": [{"region": "us"}]},
                {"control": "overwrite", "partitions": [{"day": DAYS[0], "region": "eu"}]},
                {"control": "overwrite"},
            ]


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("day=2026-01-01", {"day": "2026-01-01"}),
        ("day = 2026-01-01 , region=a=b", {"day": "2026-01-01", "region": "a=b"}),
        (
            '{"day": null, "n": 7, "yes": true, "region": "a,b"}',
            {"day": None, "n": "7", "yes": "true", "region": "a,b"},
        ),
    ],
)
def test_a_spec_as_text(text: str, spec: dict[str, str | None]) -> None:
    assert parse_spec(text) == spec


@pytest.mark.parametrize("text", ["", "day", "=x", "day=1,day=2", "{day: 1}", '{"day": 1.5}', '{"day": [1]}'])
def test_a_bad_spec_as_text(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_spec(text)
    assert caught.value.code == "bad-partition"


# ---------------------------------------------------------------------- races


def faster(table: Table, act: Callable[[Table], Any]) -> Any:
    """Opens the table for a writer before whose first commit another process commits."""
    open_ = True

    def between(call: Any) -> None:
        nonlocal open_
        if open_ and call.operation == "write_new" and call.path.endswith(".json") and not call.done:
            open_ = False
            act(again(table))

    return on(table, FaultyStorage(LocalStorage(), between))


def drop(specs: list[dict[str, Any]], table: Table, *, unless_changed: bool = False) -> Callable[[Any], Drop]:
    return lambda _: Drop(partition_set(specs, table.definition), unless_changed)


def test_a_drop_removes_what_was_written_in_between(sales: Table) -> None:
    writer = faster(sales, lambda table: table.write(pa.concat_tables([some(DAYS[0], 1, 8), some(DAYS[1], 8)])))
    snapshot = writer.drop_partitions(drop([{"day": DAYS[0]}], sales))
    assert snapshot.metrics["rows_removed"] == 4
    assert held(sales) == {key for key in everything() | {(DAYS[1], 8)} if key[0] != DAYS[0]}


def test_an_upsert_after_a_drop_is_there(sales: Table) -> None:
    writer = faster(sales, lambda table: table.drop_partitions([{"day": DAYS[0]}]))
    batches = sorted_batches(sales, pa.concat_tables([some(DAYS[0], 1, 8, name="b"), some(DAYS[1], 1, name="b")]))
    writer.write(lambda job: [job.run(batches, "0.0")])
    assert held(sales) == {key for key in everything() if key[0] != DAYS[0]} | {(DAYS[0], 1), (DAYS[0], 8)}
    found = keyed(sales, rows(sales))
    assert {row["name"] for row in found.values()} == {"a", "b"}


def test_deletes_after_a_drop_delete_nothing(sales: Table) -> None:
    writer = faster(sales, lambda table: table.drop_partitions([{"day": DAYS[0]}]))
    gone = some(DAYS[0], 1).append_column("_kind", pa.array(["-D"]))
    writer.write(lambda job: [job.run(sorted_batches(sales, gone), "0.0")])
    assert held(sales) == {key for key in everything() if key[0] != DAYS[0]}


@pytest.mark.parametrize("overwrite", ["dynamic", {"day": DAYS[0]}], ids=str)
def test_an_overwrite_of_partitions_removes_what_was_written_in_between(sales: Table, overwrite: Any) -> None:
    writer = faster(sales, lambda table: table.write(pa.concat_tables([some(DAYS[0], 1, 8), some(DAYS[1], 8)])))
    batches = sorted_batches(sales, some(DAYS[0], 7))
    writer.write(lambda job: [job.run(batches, "0.0")], overwrite=overwrite)
    left = {(DAYS[0], 3)} if overwrite == "dynamic" else set()
    others = {key for key in everything() if key[0] != DAYS[0]}
    assert held(sales) == others | left | {(DAYS[0], 7), (DAYS[1], 8)}


def test_two_overwrites_of_different_partitions_both_hold(sales: Table) -> None:
    writer = faster(sales, lambda table: table.write(some(DAYS[1], 8), overwrite="dynamic"))
    batches = sorted_batches(sales, some(DAYS[0], 7))
    writer.write(lambda job: [job.run(batches, "0.0")], overwrite="dynamic")
    gone = {(day, number) for day in DAYS[:2] for number in (1, 2)}
    assert held(sales) == (everything() - gone) | {(DAYS[0], 7), (DAYS[1], 8)}


@pytest.mark.slow
def test_a_compaction_gives_up_partitions_that_were_dropped_meanwhile(sales: Table) -> None:
    for number in range(10, 20):
        sales.write(some(DAYS[0], number))
    open_ = True

    def between(call: Any) -> None:
        nonlocal open_
        if open_ and call.operation == "write_new" and call.path.endswith(".json") and not call.done:
            open_ = False
            again(sales).drop_partitions([{"day": DAYS[0]}])

    files = FileStore.open(FaultyStorage(LocalStorage(), between), sales.location, sales.opened.ambient)
    with pytest.raises(Conflict):
        compact_table(files, full=True)
    assert held(sales) == {key for key in everything() if key[0] != DAYS[0]}


@pytest.mark.parametrize("mode", ["merge-on-write", "merge-on-read"])
def test_a_drop_that_holds_only_for_unchanged_rows_is_decided_again(store: Store, mode: str) -> None:
    """A run that was added meanwhile was dropped with the rest, since no file had changed."""
    sales = filled(store, "shop.sales", **{"write-mode": mode})
    asked: list[int] = []

    def choose(state: Any) -> Drop:
        asked.append(state.version)
        days = DAYS[:2] if len(asked) == 1 else DAYS[1:2]
        return Drop(partition_set([{"day": day} for day in days], sales.definition), unless_changed=True)

    writer = faster(sales, lambda table: table.write(some(DAYS[0], 77)))
    writer.drop_partitions(choose)
    assert asked == [1, 2]
    sales.compact(full=True)
    assert held(sales) == {key for key in everything() if key[0] != DAYS[1]} | {(DAYS[0], 77)}


@pytest.mark.parametrize(
    "act",
    [lambda table: table.compact(full=True), lambda table: table.write(some(DAYS[2], 5))],
    ids=["compaction", "another partition"],
)
def test_a_drop_that_holds_only_for_unchanged_rows_goes_on_where_none_changed(
    sales: Table, act: Callable[[Table], Any]
) -> None:
    sales.write(some(DAYS[0], *range(10, 20)))
    before = sales.filestore.state().version
    writer = faster(sales, act)
    writer.drop_partitions(drop([{"day": DAYS[0]}], sales, unless_changed=True))
    assert sales.filestore.state().version == before + 2
    assert {key for key in held(sales) if key[0] == DAYS[0]} == set()


# ---------------------------------------------------------------------- faults

ACTS: dict[str, tuple[Callable[[Any, Table], Any], Ids]] = {
    "drop": (
        lambda writer, table: writer.drop_partitions(drop([{"day": DAYS[0]}], table)),
        {key for key in everything() if key[0] != DAYS[0]},
    ),
    "static": (
        lambda writer, table: writer.write(
            lambda job: [job.run(sorted_batches(table, some(DAYS[0], 7)), "0.0")], overwrite={"day": DAYS[0]}
        ),
        {key for key in everything() if key[0] != DAYS[0]} | {(DAYS[0], 7)},
    ),
    "dynamic": (
        lambda writer, table: writer.write(
            lambda job: [job.run(sorted_batches(table, some(DAYS[0], 7)), "0.0")], overwrite="dynamic"
        ),
        (everything() - {(DAYS[0], 1), (DAYS[0], 2)}) | {(DAYS[0], 7)},
    ),
}


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("how", ["error before", "error after", "killed before", "killed after"])
@pytest.mark.parametrize("name", list(ACTS))
def test_a_failure_at_any_storage_call_leaves_all_or_nothing(store: Store, name: str, how: str, depth: Depth) -> None:
    act, wanted = ACTS[name]
    error = Killed if how.startswith("killed") else Unavailable
    for number in depth.counting(19):
        table = filled(store, f"shop.sales{number}")
        fault = FailAt(number, error("injected"), after=how.endswith("after"))
        with contextlib.suppress(Unavailable, Killed):
            act(on(table, FaultyStorage(LocalStorage(), fault)), table)
        version = table.filestore.state().version
        assert version in (1, 2)
        assert ids(table) == (wanted if version == 2 else everything()), number
        if not fault.fired:
            break
        if how == "error before":
            assert orphans(table) == []
        act(on(table, LocalStorage()), table)
        assert ids(table) == wanted
        table.write(some(DAYS[1], 1))  # whoever writes next ends what is named
        assert open_in_log(table) == []
        assert table.examine().healthy
    assert version == 2
    assert number > 3
    assert_whole(table, leftovers=False)
