"""Changed columns where rows wait to be merged, changes are written down, versions expire, and look-ups are warm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filestore.checks.report import Invariant
from filestore.doctor import examine
from filestore.errors import Conflict, NotFound, Unavailable, Unsupported
from filestore.model.changes import AddColumn, Change, DropColumn, RenameColumn, SetOption, UnsetOption, WidenColumn
from filestore.model.snapshot import Operation
from filestore.operations.alter import alter
from filestore.operations.fold import fold_table
from filestore.operations.rewrite import TableRewrite
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tablestore import Store, Table
from tablestore.writing.writer import TableWriter
from tests.depth import Depth
from tests.faults import Call, FailAt, FaultyStorage, Killed
from tests.opened import again
from tests.tables import assert_healthy, read_deltalake
from tests.tablestore.test_merge_on_read import overlay_of
from tests.warehouses import assert_whole, changes, orphans, replay, rows, to_arrow, warehouse

Row = dict[str, Any]
COLUMNS = "id BIGINT, a INT, b STRING, f FLOAT"
LATER = {"write-mode": "merge-on-read"}
MODES = ("rewrite", "metadata")
CHANGES: tuple[Change, ...] = (
    RenameColumn("b", "c"),
    DropColumn("f"),
    WidenColumn("a", "BIGINT"),
    AddColumn("f", "STRING"),
    AddColumn("b", "INT"),
)
ENGINES = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update", "log.system": "none"},
    "aggregation": {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum", "log.system": "none"},
}


def make(store: Store, mode: str, **options: str) -> Table:
    named = {"schema.evolution-mode": mode, "bucket": "2", **options}
    return store.create_table("shop.t", COLUMNS, primary_key=["id"], options=named)


def put(table: Table, *listed: Row) -> int:
    return table.write(to_arrow(table, listed)).version


def keyed(found: list[Row]) -> dict[int, Row]:
    return {row["id"]: row for row in found}


def operations(table: Table) -> list[Operation]:
    return [snapshot.operation for snapshot in reversed(table.snapshots())]


# ------------------------------------------------------------------------------------------------ pending runs


@pytest.mark.few(2)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mode", MODES)
def test_runs_of_former_columns_read_right(store: Store, mode: str, engine: str) -> None:
    table = make(store, mode, **LATER, **ENGINES[engine])
    put(table, {"id": 1, "a": 1, "b": "x"}, {"id": 2, "a": 2, "b": "y", "f": 0.5})
    table.compact(full=True)
    put(table, {"id": 2, "a": 20, "b": "z", "f": 1.5}, {"id": 3, "a": 3, "b": "w"})
    table.alter(*CHANGES)
    put(table, {"id": 3, "a": 2**40, "c": "new", "f": "text", "b": 7})
    a2, a3 = (22, 3 + 2**40) if engine == "aggregation" else (20, 2**40)
    expected = {
        1: {"id": 1, "a": 1, "c": "x", "f": None, "b": None},
        2: {"id": 2, "a": a2, "c": "z", "f": None, "b": None},
        3: {"id": 3, "a": a3, "c": "new", "f": "text", "b": 7},
    }
    assert keyed(rows(table)) == expected
    assert keyed(table.get([1, 2, 3]).to_pylist()) == expected
    assert table.scan(["id"], "c = 'z'").to_arrow()["id"].to_pylist() == [2]
    assert_healthy(table.filestore)
    table.compact(full=True)
    assert keyed(rows(table)) == expected
    assert_healthy(table.filestore)
    assert orphans(table) == []


def test_a_rewrite_folds_first_and_metadata_alone_does_not(store: Store) -> None:
    for mode, steps in (("rewrite", [Operation.FOLD, Operation.ALTER]), ("metadata", [Operation.ALTER])):
        table = make(store, mode, **LATER)
        put(table, {"id": 1, "a": 1})
        table.alter(*CHANGES)
        assert operations(table)[2:] == steps
        store.drop_table("shop.t")


@pytest.mark.parametrize("mode", MODES)
def test_adding_a_column_folds_nothing(store: Store, mode: str) -> None:
    table = make(store, mode, **LATER)
    put(table, {"id": 1, "a": 1})
    table.alter("ADD COLUMN n INT FIRST", "ALTER COLUMN a DROP NOT NULL", "ALTER COLUMN b FIRST")
    assert operations(table) == [Operation.CREATE, Operation.WRITE, Operation.ALTER]
    put(table, {"id": 1, "n": 5}, {"id": 2, "n": 6})
    assert {row["id"]: row["n"] for row in assert_whole(table)} == {1: 5, 2: 6}


def test_how_pending_rows_are_merged_stays_as_it_was(store: Store) -> None:
    """A delete that waits takes its row away; without the option nobody could merge it any more."""
    option = "partial-update.remove-record-on-delete"
    table = make(store, "rewrite", **LATER, **ENGINES["partial-update"], **{option: "true"})
    put(table, {"id": 1, "a": 1}, {"id": 2, "a": 2})
    put(table, {"id": 1, "_kind": "-D"})
    table.alter(UnsetOption(option))
    assert operations(table)[-2:] == [Operation.FOLD, Operation.ALTER]
    table.alter(SetOption("ignore-delete", "true"))
    put(table, {"id": 2, "_kind": "-D"})
    assert [row["id"] for row in assert_whole(table)] == [2]


def test_without_somebody_to_fold_nothing_is_changed(store: Store) -> None:
    table = make(store, "rewrite", **LATER)
    put(table, {"id": 1, "a": 1})
    for change in (DropColumn("b"), SetOption("ignore-delete", "true")):
        with pytest.raises(Unsupported) as caught:
            alter(table.filestore, [change], TableRewrite)
        assert caught.value.code == "pending-runs"
    assert table.filestore.state().version == 1
    assert alter(table.filestore, [AddColumn("n", "INT")]).version == 2


def test_a_column_that_is_not_null_only_without_runs(store: Store) -> None:
    table = make(store, "rewrite", **LATER)
    put(table, {"id": 1, "a": 1})
    with pytest.raises(Exception, match="has rows") as caught:
        table.alter(AddColumn("n", "INT", nullable=False))
    assert caught.value.code == "not-null-column"  # type: ignore[attr-defined]


def racing(table: Table, *acts: Any) -> FileStore:
    """The table on a storage that lets others act just before an entry of ours is written, once each."""
    waiting = list(acts)

    def others_first(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and not call.done and waiting:
            waiting.pop(0)(again(table))

    return FileStore.open(FaultyStorage(LocalStorage(), others_first), table.location, table.opened.ambient)


def fold(store: FileStore) -> None:
    fold_table(store, full=True)


@pytest.mark.parametrize("change", [RenameColumn("a", "aa"), SetOption("ignore-delete", "true")])
def test_runs_that_come_meanwhile_are_folded_too(store: Store, change: Change) -> None:
    table = make(store, "rewrite", **LATER)
    put(table, {"id": 1, "a": 1}, {"id": 2, "a": 2})
    acts = [lambda t, n=n: put(t, {"id": n, "a": 10 * n}, {"id": 1, "_kind": "-D"}) for n in (2, 3, 4)]
    snapshot = alter(racing(table, *acts), [change], TableRewrite, fold)
    assert snapshot.operation is Operation.ALTER
    assert operations(table).count(Operation.ALTER) == 1
    name = "a" if isinstance(change, SetOption) else "aa"
    assert {row["id"]: row[name] for row in rows(table)} == {2: 20, 3: 30, 4: 40}
    assert_healthy(table.filestore)
    assert orphans(table) == []
    assert keyed(replay(changes(table, version=0), ["id"])) == keyed(rows(table))


def test_a_rollback_takes_runs_that_come_meanwhile_back_too(store: Store) -> None:
    table = make(store, "rewrite", **LATER)
    put(table, {"id": 1, "a": 1})
    table.compact(full=True)
    version = put(table, {"id": 1, "a": 2}) - 1
    acts = [lambda t, n=n: put(t, {"id": n, "a": 99}) for n in (1, 2, 1)]
    TableWriter(racing(table, *acts), table.opened.log_config, table.opened.ambient).rollback(version)
    assert [(row["id"], row["a"]) for row in rows(table)] == [(1, 1)]
    assert replay(changes(table, version=0), ["id"]) == rows(table)
    assert_whole(table, leftovers=False)


def test_a_change_that_never_gets_through_leaves_no_file(store: Store) -> None:
    table = make(store, "rewrite", **LATER, **{"commit.max-retries": "2"})
    put(table, {"id": 1, "a": 1})
    acts = [lambda t, n=n: put(t, {"id": n, "a": n}) for n in range(2, 30)]
    with pytest.raises(Conflict):
        alter(racing(table, *acts), [DropColumn("b")], TableRewrite, fold)
    assert Operation.ALTER not in operations(table)
    assert_healthy(table.filestore)
    assert orphans(table) == []


def on(table: Table, decide: Callable[[Call], None] | None = None) -> FileStore:
    storage = FaultyStorage(LocalStorage()) if decide is None else FaultyStorage(LocalStorage(), decide)
    return FileStore.open(storage, table.location, table.opened.ambient)


def waiting(store: Store) -> Table:
    table = make(store, "rewrite", **LATER, **{"bucket": "1", "changelog-producer": "full-compaction"})
    put(table, {"id": 1, "a": 1, "b": "x"}, {"id": 2, "a": 2, "b": "y"})
    table.compact(full=True)
    put(table, {"id": 2, "a": 3, "b": "z"})
    return table


@pytest.mark.slow
def test_a_fault_at_any_call_of_a_change_that_folds_leaves_the_table_whole(depth: Depth) -> None:
    with warehouse() as store:
        counted = on(waiting(store))
        alter(counted, CHANGES, TableRewrite, fold)
        calls = counted.storage.calls  # type: ignore[attr-defined]
    for error, after in ((Unavailable("the storage is away"), False), (Killed(), True)):
        numbered = [(number, call) for number, call in enumerate(calls, start=1) if not (after and call.only_reads)]
        for number, _ in depth.sample(numbered, 8):
            with warehouse() as store:
                table = waiting(store)
                fault = FailAt(number, error, after=after)
                try:
                    alter(on(table, fault), CHANGES, TableRewrite, fold)
                except (Unavailable, Killed):
                    assert fault.fired
                name = "c" if "c" in table.schema.names else "b"
                assert {row["id"]: (row["a"], row[name]) for row in rows(table)} == {1: (1, "x"), 2: (3, "z")}
                assert_healthy(table.filestore)
                if name == "b":
                    table.alter(*CHANGES)
                assert operations(table).count(Operation.ALTER) == 1
                assert {row["id"]: (row["a"], row["c"]) for row in rows(table)} == {1: (1, "x"), 2: (3, "z")}
                assert_healthy(table.filestore)
                assert keyed(replay(changes(table, version=0), ["id"])) == keyed(rows(table))


def test_a_write_that_waits_loses_against_a_change_and_is_done_again(store: Store) -> None:
    table = make(store, "metadata", **LATER)
    put(table, {"id": 1, "a": 1})
    storage = racing(table, lambda t: t.alter(AddColumn("n", "INT", first=True), DropColumn("f"))).storage
    late = again(table, storage=storage)
    late.write(pl.DataFrame({"id": [1, 9], "a": [7, 9]}))
    assert {row["id"]: row["a"] for row in rows(table)} == {1: 7, 9: 9}
    assert_healthy(table.filestore)


def test_an_overlay_has_the_names_of_its_files(store: Store) -> None:
    table = make(store, "metadata", **LATER)
    put(table, {"id": 1, "a": 1, "b": "x"}, {"id": 2, "a": 2, "b": "y"})
    table.compact(full=True)
    put(table, {"id": 2, "a": 20, "b": "z"})
    table.alter(RenameColumn("b", "c"), AddColumn("b", "INT"), DropColumn("f"))
    put(table, {"id": 3, "a": 3, "c": "new", "b": 5})
    assert keyed(read_deltalake(overlay_of(table))) == keyed(rows(table))


def test_the_doctor_reads_runs_by_the_columns_of_their_time(store: Store) -> None:
    table = make(store, "metadata", **LATER)
    put(table, {"id": 1, "a": 1})
    table.alter(*CHANGES)
    assert examine(table.filestore).findings == ()
    (run,) = table.filestore.state().pending
    path = f"{table.location}/{run.path}"
    written = pq.read_table(path)
    for damaged in (written.drop_columns(["b"]), written.append_column("x", pa.nulls(written.num_rows, pa.int8()))):
        pq.write_table(damaged, path)
        codes = {finding.code for finding in examine(table.filestore).findings}
        assert codes == {Invariant.PENDING_RUN}


# ------------------------------------------------------------------------------------------------ change data


@pytest.mark.parametrize("mode", MODES)
def test_change_data_have_the_names_of_files(store: Store, mode: str) -> None:
    table = make(store, mode, **{"changelog-producer": "lookup", "bucket": "1"})
    put(table, {"id": 1, "a": 1, "b": "x"})
    put(table, {"id": 1, "a": 2, "b": "x"})
    table.alter(RenameColumn("b", "c"), AddColumn("b", "INT"))
    version = put(table, {"id": 1, "a": 3, "c": "y", "b": 7})
    commit = table.filestore.required(version)
    (path,) = [action["cdc"]["path"] for action in commit.actions if "cdc" in action]
    found = pq.read_table(f"{table.location}/{path}")
    names = [column.in_files for column in table.definition.schema]
    assert found.column_names == [*names, "_change_type"]
    assert (names == list(table.definition.schema.names)) == (mode == "rewrite")
    assert sorted(found["a"].to_pylist()) == [2, 3]
    assert_healthy(table.filestore)
    assert orphans(table) == []


def test_the_change_feed_of_versions_with_the_columns_of_now(store: Store) -> None:
    table = make(store, "rewrite", **{"changelog-producer": "lookup"})
    put(table, {"id": 1, "a": 1, "b": "x"})
    altered = table.alter(RenameColumn("b", "c")).version
    put(table, {"id": 1, "a": 2, "c": "y"})
    feed = deltalake.DeltaTable(table.location).load_cdf(starting_version=altered)
    reported = pl.DataFrame(feed.read_all()).select("_change_type", "c", "_commit_version").rows()
    assert sorted(reported) == [("update_postimage", "y", altered + 1), ("update_preimage", "x", altered + 1)]


# ------------------------------------------------------------------------------------------------ versions


@pytest.mark.parametrize("mode", MODES)
def test_system_tables_show_older_versions_in_the_columns_of_now(store: Store, mode: str) -> None:
    table = make(store, mode)
    put(table, {"id": 1, "a": 1, "b": "x"}, {"id": 2, "a": 2, "b": "y"})
    table.alter(*CHANGES)
    put(table, {"id": 2, "a": 2**40, "c": "z", "b": 5})
    table.write(to_arrow(table, [{"id": 9, "c": "over"}]), overwrite=True)
    schemas = table.system("schemas").to_arrow().to_pylist()
    assert [[field["name"] for field in row["fields"]] for row in schemas] == [
        ["id", "a", "b", "f"],
        ["id", "a", "c", "f", "b"],
    ]
    names = ["rowkind", "id", "a", "c", "f", "b"]
    reported = table.system("changes", from_version=1, to_version=3).to_arrow()
    assert reported.column_names == names
    assert reported.to_pylist() == [
        {"rowkind": "-U", "id": 2, "a": 2, "c": "y", "f": None, "b": None},
        {"rowkind": "+U", "id": 2, "a": 2**40, "c": "z", "f": None, "b": 5},
    ]
    assert table.system("changes", from_version=1, to_version=2).to_arrow().num_rows == 0
    backwards = table.system("changes", from_version=3, to_version=1).to_arrow().to_pylist()
    assert [(row["rowkind"], row["c"]) for row in backwards] == [("-U", "z"), ("+U", "y")]
    audited = table.system("audit_log").to_arrow()
    assert audited.column_names == [*names, "_commit_version", "_commit_timestamp"]
    assert sorted((row["_commit_version"], row["rowkind"], row["id"], row["c"]) for row in audited.to_pylist()) == [
        (1, "+I", 1, "x"),
        (1, "+I", 2, "y"),
        (3, "+U", 2, "z"),
        (4, "+I", 9, "over"),
        (4, "-D", 1, "x"),
        (4, "-D", 2, "z"),
    ]


@pytest.mark.parametrize("mode", MODES)
def test_versions_from_before_a_change_expire(store: Store, mode: str) -> None:
    kept = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1", "checkpoint.interval": "2"}
    table = make(store, mode, **LATER, **kept)
    put(table, {"id": 1, "a": 1, "b": "x"}, {"id": 2, "a": 2, "b": "y"})
    table.compact(full=True)
    put(table, {"id": 2, "a": 3, "b": "w"})
    table.alter(*CHANGES)
    version = put(table, {"id": 1, "a": 2**40, "c": "z"})
    expected = {1: (2**40, "z"), 2: (3, "w")}
    following = table.follow(version=version, stop=version + 2)
    table.expire()
    put(table, {"id": 3, "a": 3, "c": "later"})
    assert {row["id"]: (row["a"], row["c"]) for row in rows(table)} == expected | {3: (3, "later")}
    assert_healthy(table.filestore)
    with pytest.raises(NotFound):
        rows(table, 1)
    table.write(to_arrow(table, [{"id": 4}]))
    assert [row["id"] for batch in following for row in batch.to_pylist()] == [3]


@pytest.mark.parametrize("mode", MODES)
def test_a_consumer_goes_on_with_the_columns_of_now(store: Store, mode: str) -> None:
    table = make(store, mode)
    put(table, {"id": 1, "a": 1, "b": "x"})
    assert len(list(table.follow(stop=1, consumer="report"))) == 1
    put(table, {"id": 2, "a": 2, "b": "y"})
    table.alter(*CHANGES)
    put(table, {"id": 3, "a": 2**40, "c": "z", "b": 5})
    found = pa.Table.from_batches(table.follow(stop=4, consumer="report"))
    assert found.column_names == ["id", "a", "c", "f", "b", "_kind"]
    assert [(row["id"], row["a"], row["c"], row["b"]) for row in found.to_pylist()] == [
        (2, 2, "y", None),
        (3, 2**40, "z", 5),
    ]


# ------------------------------------------------------------------------------------------------ look-ups


def test_warm_look_ups_see_columns_that_changed_their_names(store: Store) -> None:
    table = make(store, "metadata", **{"file.bloom-filter": "true"})
    table.alter(AddColumn("g", "STRING"))
    put(table, *({"id": i, "b": f"b{i}", "g": f"g{i}"} for i in range(8)))
    for _ in range(4):
        assert table.get([5], ["b", "g"]).to_pylist() == [{"b": "b5", "g": "g5"}]
    table.alter(RenameColumn("b", "x"), RenameColumn("g", "b"), RenameColumn("x", "g"))
    for _ in range(4):
        assert table.get([5, 77], ["b", "g"]).to_pylist() == [{"b": "g5", "g": "b5"}]
    assert_healthy(table.filestore)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_partitions_and_buckets_are_pruned_as_before(store: Store, mode: str) -> None:
    table = store.create_table(
        "shop.p",
        "id BIGINT, day STRING, v INT",
        primary_key=["id", "day"],
        partition_by=["day"],
        options={"schema.evolution-mode": mode, "bucket": "4", **LATER},
    )
    put(table, *({"id": i, "day": "ab"[i % 2], "v": i} for i in range(20)))
    table.alter(RenameColumn("v", "w"), WidenColumn("w", "BIGINT"))
    put(table, *({"id": i, "day": "ab"[i % 2], "w": 2**40 + i} for i in range(10)))
    assert table.scan(["w"], "id = 7 AND day = 'b'").to_arrow()["w"].to_pylist() == [2**40 + 7]
    assert table.scan(["w"], "id IN (17)").to_arrow()["w"].to_pylist() == [17]
    table.drop_partitions([{"day": "a"}])
    table.write(to_arrow(table, [{"id": 1, "day": "b", "w": 1}]), overwrite="dynamic")
    assert rows(table) == [{"id": 1, "day": "b", "w": 1}]
    assert_healthy(table.filestore)
    assert replay(changes(table, version=0), ["id", "day"]) == rows(table)
