"""Versions that expire while other operations change the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from filestore.doctor import Invariant, examine
from filestore.errors import NotFound
from filestore.life.expiry import expire
from filestore.life.orphans import find_orphans
from filestore.life.tags import create_tag, delete_tag
from filestore.model.change_text import parse_changes
from filestore.operations.alter import alter
from filestore.retention.rules import first_retained, tags_of
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tablestore import Store, Table
from tablestore.lookup.lookups import Lookups
from tablestore.lookup.request import LookupPlan, LookupRequest
from tablestore.writing.writer import TableWriter
from tests.faults import Call, FaultyStorage
from tests.tables import Clock, create, define, paths, reopen, seeded, write

HOUR_MS = 3_600_000
RETENTION = {"snapshot_num__retained_min": 2, "snapshot_time__retained": "1 h"}


def worn(folder: Path, storage: FaultyStorage | None = None, **options: object) -> FileStore:
    clock = Clock(step_ms=HOUR_MS)
    definition = define("id BIGINT, v INT", ["id"], **RETENTION, **options)
    store = create(folder / "t", definition, storage, seeded(1, clock))
    for v in range(6):
        write(store, [{"id": 1, "v": v}])
    return store


def test_the_doctor_asks_for_change_data_of_retained_versions_only(folder: Path) -> None:
    """Log entries stay until a checkpoint replaces them; the change files that they name are removed before."""
    store = worn(folder, changelog__producer="lookup")
    gone = [path for path in expire(store).files if path.startswith("_change_data/")]
    assert len(gone) > 1
    assert 0 in store.delta_log.versions(), "no checkpoint replaces the entries yet"
    assert examine(store).healthy
    kept = next(Path(store.location, "_change_data").iterdir())
    kept.unlink()
    assert [f.path for f in examine(store).problems if f.code is Invariant.CHANGE_FILE] == [f"_change_data/{kept.name}"]


def expires(store: FileStore) -> None:
    assert expire(store).versions > 0
    assert first_retained(store.state()) > 0


def tags(store: FileStore) -> None:
    assert create_tag(store, "b", 5).version == 5
    assert set(tags_of(store.state())) == {"a", "b"}


def untags(store: FileStore) -> None:
    delete_tag(store, "a")
    assert not tags_of(store.state())


@pytest.mark.parametrize("step", [expires, tags, untags], ids=lambda step: step.__name__)
def test_a_column_that_comes_meanwhile_stops_neither_expiry_nor_tags(
    folder: Path, step: Callable[[FileStore], None]
) -> None:
    storage = FaultyStorage(LocalStorage())
    store = worn(folder, storage)
    create_tag(store, "a", 6)

    def alter_first(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and not call.done:
            storage.hook = lambda _: None
            alter(reopen(store), parse_changes(["ADD COLUMN w INT"]))

    storage.hook = alter_first
    step(store)
    assert [column.name for column in store.state().definition.schema] == ["id", "v", "w"]
    assert examine(store).healthy


@pytest.mark.slow
def test_change_data_of_the_oldest_version_that_is_left_is_no_orphan_and_expires(folder: Path) -> None:
    """A checkpoint does not name change data, so those of a retained version were removed as orphans."""
    store = worn(folder, changelog__producer="lookup", checkpoint_interval=1)
    first = expire(store).first
    assert store.delta_log.versions()[0] == first > 1
    named = [action["cdc"]["path"] for action in store.required(first).actions if "cdc" in action]
    assert named
    assert not find_orphans(store, store.ambient.now_ms() + 1000 * HOUR_MS, lambda: None)
    assert not examine(store).orphans
    for v in range(6):
        write(store, [{"id": 1, "v": -v}])
    assert set(named) <= set(expire(store).files)
    assert not examine(store).findings


def test_a_file_that_a_rollback_restores_has_the_columns_of_its_own_time(folder: Path) -> None:
    """Once the file's own entry had expired, the doctor took the columns of the rollback's entry."""
    store = worn(folder, checkpoint_interval=2)
    alter(store, parse_changes(["ADD COLUMN w INT"]))
    create_tag(store, "wide")
    target = store.state()
    write(store, [{"id": 2, "v": 2, "w": 2}], overwrite=True)
    assert expire(store).log_entries, "the entries that added the files are gone"
    TableWriter(store, lambda _: None, store.ambient).rollback(target.version)
    assert paths(store.state()) == paths(target)
    assert not examine(store).problems


EXPIRED = 2
WAYS: dict[str, Callable[[Table, datetime], Any]] = {
    "scan": lambda table, _: table.scan(version=EXPIRED).to_arrow(),
    "scan at a time": lambda table, time: table.scan(timestamp=time).to_arrow(),
    "get": lambda table, _: table.get([1], version=EXPIRED),
    "lookup": lambda table, _: table.lookup([{"id": 1}], version=EXPIRED),
    "lookup at a time": lambda table, time: table.lookup([{"id": 1, "ts": time}], at="ts"),
    "files": lambda table, _: table.files(EXPIRED),
    "system table": lambda table, _: table.system("buckets", EXPIRED).to_arrow(),
    "changes from": lambda table, _: table.system("changes", from_version=EXPIRED).to_arrow(),
    "changes to": lambda table, _: table.system("changes", from_version=6, to_version=EXPIRED).to_arrow(),
    "follow": lambda table, time: next(table.follow("full", version=EXPIRED, stop=EXPIRED)),
    "rollback": lambda table, _: table.rollback(EXPIRED),
    "tag": lambda table, _: table.create_tag("late", EXPIRED),
}


@pytest.mark.parametrize("small_bytes", [1 << 20, -1], ids=["in memory", "by key"])
def test_a_table_that_has_read_a_version_refuses_it_once_it_has_expired(
    store: Store, monkeypatch: pytest.MonkeyPatch, small_bytes: int
) -> None:
    """A look-up by event time answered from rows that it had kept of an expired version, where a new table failed."""
    monkeypatch.setattr("tablestore.reading.keyed_rows.SMALL_BYTES", small_bytes)
    options = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "2", "snapshot.time-retained": "1 ms"}
    table = store.create_table("shop.t", "id BIGINT, v INT", primary_key=["id"], options=options)
    for v in range(6):
        table.write([{"id": 1, "v": v}])
    time = table.filestore.snapshot(EXPIRED).timestamp
    for name, way in WAYS.items():
        if name not in ("rollback", "tag"):
            way(table, time)
    assert table.expire().first > EXPIRED
    for reader in (store.table("shop.t"), table):
        for name, way in WAYS.items():
            with pytest.raises(NotFound) as caught:
                way(reader, time)
            assert caught.value.code == "snapshot-expired", name


class Watch:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_task_that_has_looked_a_version_up_refuses_it_once_it_has_expired(folder: Path) -> None:
    """Spark's tasks look up the version that their job began with, one after the other in one process."""
    watch, calls, storage = Watch(), list[Call](), FaultyStorage(LocalStorage())
    store = worn(folder, storage)
    task = FileStore(storage, store.location, replace(store.ambient, monotonic_s=watch))
    plan, timed = (
        LookupPlan.of(LookupRequest(None, "left", None, "", at, expired), store.state().definition)
        for at, expired in ((None, "fail"), ("ts", "oldest"))
    )
    time = store.snapshot(EXPIRED).timestamp
    given, lookups = pa.table({"id": [1]}), Lookups(task)
    late = pa.table({"id": [1], "ts": pa.array([time], pa.timestamp("us", "UTC"))})

    def found(rows: pa.Table, plan: LookupPlan, version: int) -> list[int]:
        return lookups.lookup(rows, plan, lookups.moment(version)).column("v").to_pylist()

    assert found(given, plan, EXPIRED) == found(late, timed, EXPIRED) == [EXPIRED - 1]
    storage.hook = calls.append
    assert found(given, plan, EXPIRED) == [EXPIRED - 1]
    assert not calls, "a warm look-up asks the storage nothing, but for one in a second"
    storage.hook = lambda _: None
    newest = store.state().version
    assert found(late, timed, newest) == [EXPIRED - 1]
    first = expire(store).first
    assert first > EXPIRED
    watch.seconds += 1
    with pytest.raises(NotFound) as caught:
        found(given, plan, EXPIRED)
    assert caught.value.code == "snapshot-expired"
    assert found(late, timed, newest) == [first - 1], "the oldest that is left now, not when the job began"
    with pytest.raises(NotFound) as caught:
        found(late, timed, EXPIRED)
    assert caught.value.code == "snapshot-expired", "and no later one than the job's"
