"""A checkpoint is what the entries say, for every reader; when it is written, and by whom; and that nobody waits."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.compact import compact_table
from filestore import layout
from filestore.beside import Worker
from filestore.commit.proposal import AppVersion
from filestore.delta.actions import remove_action
from filestore.delta.by_slot import BySlot
from filestore.delta.checkpoint import checkpoint_bytes, is_due, write_checkpoint
from filestore.delta.columns import ColumnFiles
from filestore.delta.entry import encode
from filestore.delta.log import DeltaLog
from filestore.delta.state import Replayed, TableState
from filestore.errors import NotFound, Unavailable
from filestore.life.expiry import expire
from filestore.model.files import DataFile, DeletionVector, Slot
from filestore.parquet.whole import parquet_bytes, parquet_rows
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tests.faults import Call, FailAt, FaultyStorage
from tests.folders import memory_folder
from tests.tables import (
    Clock,
    assert_healthy,
    create,
    define,
    in_order,
    read,
    read_deltalake,
    read_polars,
    reopen,
    seeded,
    write,
)

COLUMNS = "id BIGINT, p STRING, v INT"
NEVER = {"checkpoint_interval": 10_000}
WAIT_S = 60.0


def table(folder: Path | str, **options: object) -> FileStore:
    """A table with partitions, vectors, files without any, levels, pending runs, tombstones and an app's batch."""
    definition = define(COLUMNS, ["id", "p"], ["p"], **({"bucket": 1, **NEVER} | options))
    return create(Path(folder) / "t", definition, ambient=seeded(1))


def grow(store: FileStore, versions: int = 8) -> None:
    for version in range(versions):
        if version == 4:
            compact_table(store, full=True)
        else:
            rows = [{"id": n, "p": p, "v": version} for n in range(3 - version % 2) for p in ("é x", "%2F")]
            write(store, rows, later=store.state().definition.merges_on_read)


def path_of(store: FileStore, version: int) -> Path:
    return Path(store.location, layout.checkpoint_path(version))


def hint(store: FileStore) -> dict[str, Any] | None:
    path = Path(store.location, layout.LAST_CHECKPOINT)
    return json.loads(path.read_text()) if path.exists() else None


def without_entries(store: FileStore, before: int) -> None:
    for version in range(before):
        Path(store.location, layout.log_entry_path(version)).unlink()


@pytest.mark.parametrize("mode", ["merge-on-write", "merge-on-read"])
def test_readers_get_the_same_from_it_as_from_the_entries(folder: Path, mode: str) -> None:
    store = table(folder, write__mode=mode)
    grow(store)
    version = store.state().version
    expected = [reopen(store).state(), read(store), in_order(read_polars(store.location))]
    assert in_order(read_deltalake(store.location)) == expected[2]
    written = write_checkpoint(store.delta_log, store.state())
    assert written is not None and written.count == len(store.state().files)
    without_entries(store, version)
    found = reopen(store)
    assert found.delta_log.checkpoint(version).same(found.state())
    assert [found.state(), read(found), in_order(read_polars(store.location))] == expected
    assert in_order(read_deltalake(store.location)) == expected[2]
    hinted = hint(store)
    assert hinted is not None
    assert hinted == {
        "version": version,
        "size": pq.read_metadata(path_of(store, version)).num_rows,
        "sizeInBytes": path_of(store, version).stat().st_size,
        "numOfAddFiles": len(found.state().files),
    }


def test_deltalake_writes_its_own_on_ours_and_we_read_it(folder: Path) -> None:
    """As the version of 2026-11-28 does."""
    store = table(folder)
    grow(store, 4)
    write_checkpoint(store.delta_log, store.state())
    without_entries(store, 4)
    write(store, [{"id": 9, "p": "z", "v": 1}])
    deltalake.DeltaTable(store.location).create_checkpoint()
    assert reopen(store).delta_log.checkpoint(5).same(store.state())
    write(store, [{"id": 9, "p": "z", "v": 2}])
    write_checkpoint(store.delta_log, replace(store.state(), replayed=Replayed(0, 10_000)))
    assert reopen(store).delta_log.checkpoint(6).same(store.state())


SLOTS = [Slot((("p", value),), bucket) for value in ("x", "ä/b %", None) for bucket in range(2)]


def add(number: int, slot: Slot, dead: int, sizes: int) -> dict[str, Any]:
    action: dict[str, Any] = {
        "path": f"p%20q/{SLOTS.index(slot)}-{number}.parquet",
        "partitionValues": dict(slot.partition),
        "size": sizes,
        "modificationTime": number,
        "dataChange": True,
        "stats": json.dumps({"numRecords": 5, "minValues": {"v": "é"}, "tightBounds": not dead}, ensure_ascii=False),
        "tags": {
            "tablestore.bucket": str(slot.bucket),
            "tablestore.level": str(number),
            "tablestore.minKey": '["é"]',
            "tablestore.maxKey": "[2]",
        },
    }
    if dead:
        vector = {
            "storageType": "u",
            "pathOrInlineDv": f"{dead:020}",
            "offset": 1,
            "sizeInBytes": 40,
            "cardinality": dead,
        }
        action["deletionVector"] = vector
    return {"add": action}


def commits() -> st.SearchStrategy[list[list[dict[str, Any]]]]:
    slot = st.sampled_from(SLOTS)
    adds = st.builds(add, st.integers(0, 3), slot, st.integers(0, 2), st.integers(1, 2**40))
    removes = adds.map(lambda a: {"remove": {n: a["add"][n] for n in ("path", "partitionValues", "tags")}})
    apps = st.builds(lambda a, v: {"txn": {"appId": a, "version": v}}, st.sampled_from("ab"), st.integers(0, 2**62))
    domains = st.builds(
        lambda d, c, r: {"domainMetadata": {"domain": d, "configuration": c, "removed": r}},
        st.sampled_from(["own.a", "own.b"]),
        st.text(max_size=3),
        st.booleans(),
    )
    one_of_each = st.lists(adds | removes | apps | domains, max_size=8, unique_by=_about)
    return st.lists(one_of_each, max_size=6)


def valid(actions: list[dict[str, Any]], state: TableState) -> list[dict[str, Any]]:
    """Actions as a writer makes them: it removes what is there, also before it gives a file another vector.

    None adds what it removes: a file with the same vector, or none again (Delta protocol, "Add File and Remove File").
    """

    def again(action: dict[str, Any]) -> bool:
        there = state.named(action["add"]) if "add" in action else None
        return there is not None and there.vector == DeletionVector.from_action(action["add"].get("deletionVector"))

    kept = [action for action in actions if not again(action)]
    removes = [f for a in kept for kind in ("add", "remove") if kind in a and (f := state.named(a[kind]))]
    return [*(remove_action(file, 1, data_change=True) for file in removes), *(a for a in kept if "remove" not in a)]


def _about(action: dict[str, Any]) -> str:
    [(kind, value)] = action.items()
    return value.get("path") or f"{kind} {value.get('appId') or value.get('domain')}"


@given(commits(), st.data())
def test_any_history_is_in_it(history: list[list[dict[str, Any]]], data: st.DataObject) -> None:
    """Also one that stands on other checkpoints, in whatever order they were written."""
    with memory_folder() as folder:
        store = create(folder / "t", define("p STRING, v STRING", [], ["p"], **NEVER), ambient=seeded(1))
        log, states = store.delta_log, [store.state()]
        for actions in history:
            version = states[-1].version + 1
            info = {"inCommitTimestamp": states[-1].timestamp_ms + 1, "operation": "WRITE"}
            entry = [{"commitInfo": info}, *valid(actions, states[-1])]
            log.storage.write_new(layout.join(log.location, layout.log_entry_path(version)), encode(entry))
            states.append(states[-1].next(version, entry))
            if data.draw(st.booleans()):
                due = replace(states[-1], replayed=Replayed(0, 10_000))
                files = write_checkpoint(log, due)
                assert files is not None
                states[-1] = replace(states[-1], files=states[-1].files.rebased(files, due.files))
        for state in states:
            assert log.replayed(state.version) == state
            assert log.replayed(state.version).same(state)
            if state.version in log.checkpoints():
                assert log.checkpoint(state.version) == state
        listed = {
            layout.decode_path(path)
            for path in deltalake.DeltaTable(store.location).get_add_actions()["path"].to_pylist()
        }
        assert listed == {file.path for file in states[-1].files}


@pytest.mark.parametrize(
    ("entries", "actions", "files", "interval", "due"),
    [
        (9, 9, 5, 10, False),
        (10, 10, 5, 10, True),
        (10, 10, 100, 10, True),
        (10, 10, 101, 10, False),
        (10, 99, 1_000, 10, False),
        (10, 100, 1_000, 10, True),
        (1, 999, 5, 10, False),
        (1, 1_000, 5, 10, True),
        (1, 1_000, 10_001, 10, False),
        (99, 100, 50_000, 10, False),
        (100, 100, 50_000, 10, True),
        (100, 100, 50_000, 200, False),
        (200, 200, 50_000, 200, True),
        (1, 1, 0, 1, True),
        (0, 0, 5, 1, False),
    ],
)
def test_it_is_due_by_what_readers_have_to_replay(
    entries: int, actions: int, files: int, interval: int, due: bool
) -> None:
    names = (DataFile(f"{number}", Slot((), 0), 1, 1, 1, '{"numRecords":1}') for number in range(files))
    definition = define("id BIGINT", checkpoint_interval=interval)
    state = TableState(300, 1, "t", definition, BySlot(names), replayed=Replayed(300 - entries, actions))
    assert is_due(state) == due


def test_it_is_counted_from_the_last_one(folder: Path) -> None:
    """Versions that are multiples of the interval were chosen before: processes that die there left none for long."""
    store = table(folder, checkpoint_interval=4)
    grow(store, 3)
    write_checkpoint(store.delta_log, store.state())
    assert store.delta_log.checkpoints() == [3]
    other = reopen(store)
    grow(other, 6)
    assert other.delta_log.checkpoints() == [3, 7]
    grow(store, 1)
    assert store.delta_log.checkpoints() == [3, 7], "the last one is read before another is written"
    grow(store, 4)
    assert store.delta_log.checkpoints() == [3, 7, 14]
    assert_healthy(store)


def test_a_commit_with_many_actions_gets_one_soon(folder: Path) -> None:
    """Its entry alone takes readers longer than the checkpoint."""
    store = create(folder / "t", define("id BIGINT", ["id"], bucket=1_200))
    write(store, [{"id": number} for number in range(6_000)])
    assert store.delta_log.checkpoints() == [1]


class Slow(LocalStorage):
    """A storage in which a checkpoint takes as long as the test says."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def write_new(self, path: str, data: bytes) -> None:
        if path.endswith(".checkpoint.parquet"):
            self.begun.set()
            assert self.go_on.wait(WAIT_S)
        super().write_new(path, data)


def test_no_write_waits_for_one(folder: Path) -> None:
    storage, worker = Slow(), Worker()
    definition = define(COLUMNS, ["id", "p"], ["p"], checkpoint_interval=2)
    ambient = replace(seeded(1), beside=worker.take)
    store = create(folder / "t", definition, storage, ambient)
    grow(store, 2)
    assert storage.begun.wait(WAIT_S)
    grow(store, 4)
    assert (store.state().version, store.delta_log.checkpoints()) == (6, [])
    storage.go_on.set()
    assert worker.finish(WAIT_S)
    assert store.delta_log.checkpoints() == [2, 6], "and of those that were due meanwhile the last one is written"
    assert_healthy(store)


def test_a_writer_keeps_columns_from_then_on(folder: Path) -> None:
    """All files of a table that a process had made itself stayed objects, until the process ended."""
    store = table(folder, checkpoint_interval=4)
    grow(store, 4)
    expected = reopen(store).state()
    base, over = store.state().files.parts()
    assert isinstance(base, ColumnFiles) and not over
    assert store.state() == expected
    grow(store, 2)
    base, over = store.state().files.parts()
    assert isinstance(base, ColumnFiles) and over
    assert store.state() == reopen(store).state()


def test_a_slow_writers_older_one_is_not_named(folder: Path) -> None:
    store = table(folder)
    grow(store, 2)
    slow = store.state()
    grow(store, 2)
    due = Replayed(0, 10_000)
    assert write_checkpoint(store.delta_log, replace(store.state(), replayed=due)) is not None
    hinted = hint(store)
    assert write_checkpoint(store.delta_log, replace(slow, replayed=due)) is None
    assert (store.delta_log.checkpoints(), hint(store)) == ([4], hinted)


def test_the_hint_of_a_former_table_hides_no_version(folder: Path) -> None:
    store = table(folder)
    grow(store, 2)
    Path(store.location, layout.LAST_CHECKPOINT).write_text('{"version": 90, "size": 1}')
    assert write_checkpoint(store.delta_log, store.state()) is not None
    assert (hint(store) or {})["version"] == 2


def made_anew(store: FileStore, versions: int) -> FileStore:
    """Another table in the place of one that was dropped."""
    shutil.rmtree(store.location)
    other = create(
        store.location,
        define(COLUMNS, ["id", "p"], ["p"], **NEVER),
        ambient=seeded(2, Clock(ms=1_800_000_000_000)),
    )
    grow(other, versions)
    return other


@pytest.mark.few(4)
@pytest.mark.parametrize("versions", [0, 2, 4])
@pytest.mark.parametrize("before", ["entry", "checkpoint", "entry again", "hint"])
def test_a_late_writer_of_a_dropped_table_leaves_none_in_the_next_one(folder: Path, versions: int, before: str) -> None:
    """delta-rs saw the former table's files in the next table, and polars failed."""
    store = table(folder)
    grow(store, 3)
    late, asked, found = store.state(), list[str](), list[FileStore]()

    def hook(call: Call) -> None:
        if call.operation in ("read", "read_each", "write_new", "replace") and not call.done:
            asked.append(call.path)
            kinds = {
                "entry": call.path.endswith(".json") and not found,
                "checkpoint": call.operation == "write_new",
                "entry again": call.path.endswith(".json") and any("checkpoint.parquet" in p for p in asked),
                "hint": call.operation == "replace" and call.path.endswith("_last_checkpoint"),
            }
            if kinds[before] and not found:
                found.append(made_anew(store, versions))

    late_log = DeltaLog(FaultyStorage(LocalStorage(), hook), store.location)
    write_checkpoint(late_log, late)
    [now] = found
    expected = in_order(read(reopen(now)))
    assert (now.delta_log.checkpoints(), hint(now)) == ([], None)
    assert in_order(read_deltalake(now.location)) == in_order(read_polars(now.location)) == expected
    assert reopen(now).state() == now.state()
    grow(now, 4)
    write_checkpoint(now.delta_log, now.state())
    assert in_order(read_deltalake(now.location)) == in_order(read(reopen(now)))
    assert_healthy(now)


def test_a_late_writer_does_not_replace_that_of_the_next_table(folder: Path) -> None:
    """It took the next table's for a stranger's: until it saw its error, readers had the former table's files."""
    store = table(folder)
    grow(store, 3)
    late, seen = store.state(), list[bytes]()

    def hook(call: Call) -> None:
        if call.operation == "write_new" and not call.done and not seen:
            now = made_anew(store, 3)
            write_checkpoint(now.delta_log, replace(now.state(), replayed=Replayed(0, 10_000)))
        if seen or call.operation == "write_new":
            seen.append(path_of(store, 3).read_bytes())

    write_checkpoint(DeltaLog(FaultyStorage(LocalStorage(), hook), store.location), late)
    assert len(seen) > 2 and len(set(seen)) == 1
    now = reopen(store)
    assert (now.delta_log.checkpoints(), now.delta_log.last_checkpoint()) == ([3], 3)
    assert in_order(read_deltalake(now.location)) == in_order(read(now))


def test_one_that_a_late_writer_removes_is_written_again(folder: Path) -> None:
    """The next table's writer puts its own one there between the two requests with which the late one removes its own.

    delta-rs, DuckDB, ClickHouse and polars refuse a table whose hint names what is not there.
    """
    store = table(folder)
    grow(store, 3)
    late, deletes = store.state(), list[FileStore]()

    def hook(call: Call) -> None:
        if call.operation == "write_new" and not call.done and not deletes:
            deletes.append(made_anew(store, 3))
        if call.operation == "delete" and not call.done and len(deletes) == 1:
            [now] = deletes
            deletes.append(now)
            write_checkpoint(now.delta_log, replace(now.state(), replayed=Replayed(0, 10_000)))

    write_checkpoint(DeltaLog(FaultyStorage(LocalStorage(), hook), store.location), late)
    assert len(deletes) == 2
    now = reopen(store)
    assert (now.delta_log.checkpoints(), now.delta_log.last_checkpoint()) == ([3], 3)
    assert in_order(read_deltalake(now.location)) == in_order(read_polars(now.location)) == in_order(read(now))
    assert now.delta_log.checkpoint(3).same(now.delta_log.replayed(3))


def test_one_that_is_removed_before_it_is_named_is_written_again(folder: Path) -> None:
    """The late writer sees no hint yet, and the next table's writer does not see that its checkpoint goes."""
    store = table(folder)
    grow(store, 3)
    late, made, reached, go_on = store.state(), list[FileStore](), threading.Event(), threading.Event()
    writers = list[threading.Thread]()

    def before_the_hint(call: Call) -> None:
        if call.operation == "replace" and call.path.endswith("_last_checkpoint") and not call.done:
            reached.set()
            assert go_on.wait(WAIT_S)

    def hook(call: Call) -> None:
        if call.operation == "write_new" and not call.done and not made:
            made.append(made_anew(store, 3))
        if call.operation == "delete" and not call.done and not writers:
            log = DeltaLog(FaultyStorage(LocalStorage(), before_the_hint), store.location)
            state = replace(made[0].state(), replayed=Replayed(0, 10_000))
            writers.append(threading.Thread(target=write_checkpoint, args=(log, state)))
            writers[0].start()
            assert reached.wait(WAIT_S)

    write_checkpoint(DeltaLog(FaultyStorage(LocalStorage(), hook), store.location), late)
    now = reopen(made[0])
    assert (now.delta_log.checkpoints(), now.delta_log.last_checkpoint()) == ([], None)
    go_on.set()
    writers[0].join(WAIT_S)
    assert (now.delta_log.checkpoints(), now.delta_log.last_checkpoint()) == ([3], 3)
    assert in_order(read_deltalake(now.location)) == in_order(read_polars(now.location)) == in_order(read(now))
    assert now.delta_log.checkpoint(3).same(now.delta_log.replayed(3))


def test_a_strangers_one_is_replaced(folder: Path) -> None:
    """It was taken for what another process of this table has written."""
    store, other = table(folder), table(folder / "other")
    for each in (store, other):
        grow(each, 3)
    write_checkpoint(other.delta_log, other.state())
    foreign = parquet_rows(path_of(other, 3).read_bytes(), "f")
    meta = [m and m | {"id": "another"} for m in foreign.column("metaData").to_pylist()]
    at = foreign.column_names.index("metaData")
    path_of(store, 3).write_bytes(
        parquet_bytes(foreign.set_column(at, "metaData", pa.array(meta, foreign.schema.field(at).type)))
    )
    write_checkpoint(store.delta_log, store.state())
    assert store.delta_log.checkpoint(3).same(store.state())
    assert_healthy(store)


@pytest.mark.few(6)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", range(1, 7))
def test_a_failure_at_any_request_leaves_what_all_readers_read(folder: Path, number: int, after: bool) -> None:
    store = table(folder)
    grow(store, 3)
    write_checkpoint(store.delta_log, store.state())
    grow(store, 3)
    expected = in_order(read(store))
    failing = FaultyStorage(LocalStorage(), FailAt(number, Unavailable("no answer"), after))
    with pytest.raises(Unavailable):
        write_checkpoint(DeltaLog(failing, store.location), replace(store.state(), replayed=Replayed(3, 10_000)))
    assert in_order(read_deltalake(store.location)) == in_order(read_polars(store.location)) == expected
    assert reopen(store).state() == store.state()
    grow(store, 1)
    assert write_checkpoint(store.delta_log, replace(store.state(), replayed=Replayed(3, 10_000))) is not None
    assert_healthy(store)


Change = Callable[[pa.Table], pa.Table]


def of(kind: str, change: Callable[[list[dict[str, Any]]], list[dict[str, Any] | None]]) -> Change:
    """Changes the actions of a kind; what becomes None is left out."""

    def changed(rows: pa.Table) -> pa.Table:
        values = rows.column(kind).to_pylist(maps_as_pydicts="strict")
        places = [at for at, value in enumerate(values) if value is not None]
        now = change([values[at] for at in places])
        assert now != [values[at] for at in places], "the table has what is changed"
        for at, value in zip(places, now, strict=True):
            values[at] = value
        gone = {at for at in places if values[at] is None}
        at = rows.column_names.index(kind)
        rows = rows.set_column(at, kind, pa.array(values, rows.schema.field(kind).type))
        return rows.filter(pa.array([place not in gone for place in range(len(rows))]))

    return changed


def first(change: Callable[[dict[str, Any]], dict[str, Any] | None], where: str = "") -> Any:
    def changed(values: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
        at = next(at for at, value in enumerate(values) if where in json.dumps(value) and change(value) != value)
        return [change(value) if place == at else value for place, value in enumerate(values)]

    return changed


MUTANTS: dict[str, Change] = {
    "a lost file": of("add", first(lambda _: None)),
    "a lost vector": of("add", first(lambda a: a | {"deletionVector": None})),
    "another vector": of(
        "add",
        first(lambda a: a | {"deletionVector": a["deletionVector"] and a["deletionVector"] | {"offset": 7}}),
    ),
    "other statistics": of(
        "add", first(lambda a: a | {"stats": a["stats"].replace('"numRecords":', '"numRecords":1')})
    ),
    "another level": of("add", first(lambda a: a | {"tags": a["tags"] | {"tablestore.level": "5"}})),
    "another key": of("add", first(lambda a: a | {"tags": a["tags"] | {"tablestore.maxKey": "[99]"}})),
    "another size": of("add", first(lambda a: a | {"size": 1})),
    "another partition": of("add", first(lambda a: a | {"partitionValues": {"p": "new"}})),
    "a lost txn": of("txn", first(lambda _: None, "app")),
    "an earlier txn": of("txn", first(lambda t: t | {"version": 1}, "app")),
    "a lost domain": of("domainMetadata", first(lambda _: None)),
    "another domain": of("domainMetadata", first(lambda d: d | {"configuration": '{"first": 1}'})),
    "another option": of(
        "metaData", first(lambda m: m | {"configuration": m["configuration"] | {"tablestore.bucket": "3"}})
    ),
    "another comment": of("metaData", first(lambda m: m | {"description": "x"})),
    "another name": of("metaData", first(lambda m: m | {"name": "x"})),
    "a lost feature": of(
        "protocol", first(lambda p: p | {"writerFeatures": [f for f in p["writerFeatures"] if "fences" not in f]})
    ),
}


@pytest.mark.few(6)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_entries_stay_where_a_checkpoint_is_not_what_they_say(folder: Path, mutant: str) -> None:
    """Only paths were compared: behind such a checkpoint the table was another one as soon as its entries were gone."""
    kept = {"snapshot_num__retained_min": 1, "snapshot_time__retained": "0 ms"}
    store = table(folder, **kept)
    grow(store, 6)
    write(store, [{"id": 7, "p": "z", "v": 1}], app=AppVersion("app", 5))
    expire(store)  # it leaves a domain, and no entry may go without a checkpoint
    grow(store, 2)
    version = store.state().version
    assert store.state().totals.vectors
    assert store.state().app_versions["app"] == 5
    assert write_checkpoint(store.delta_log, store.state()) is not None
    path = path_of(store, version)
    whole = path.read_bytes()
    path.write_bytes(parquet_bytes(MUTANTS[mutant](parquet_rows(whole, "f"))))
    grow(store, 2)
    before = read(store)
    assert expire(store).log_entries == 0
    assert 0 in store.delta_log.versions()
    path.write_bytes(whole)
    grow(store, 1)
    assert expire(store).log_entries > 0
    assert min(store.delta_log.versions()) == version
    assert read(reopen(store)) != before


def test_one_that_is_gone_is_no_reason_to_fail(folder: Path) -> None:
    store = table(folder)
    grow(store, 2)
    state = store.state()
    without_entries(store, 3)
    assert write_checkpoint(store.delta_log, state) is None
    assert store.delta_log.checkpoints() == []
    with pytest.raises(NotFound):
        store.state()


def test_its_bytes_are_those_of_its_actions(folder: Path) -> None:
    """Statistics are most of them, and were not compressed."""
    store = table(folder)
    grow(store)
    state = store.state()
    data, actions = checkpoint_bytes(state, ColumnFiles.of(state.files, ["p"]))
    rows = parquet_rows(data, "f")
    assert len(rows) == actions
    kinds = {name: len(rows) - rows.column(name).null_count for name in rows.column_names}
    assert kinds == {
        "protocol": 1,
        "metaData": 1,
        "txn": len(state.app_versions),
        "domainMetadata": len(state.domains),
        "add": len(state.files),
    }
    assert not pc.any(pc.struct_field(rows.column("add").combine_chunks(), "dataChange")).as_py()
    group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(1)
    assert {group.column(at).compression for at in range(group.num_columns)} == {"ZSTD"}
