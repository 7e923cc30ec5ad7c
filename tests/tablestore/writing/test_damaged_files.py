"""Damaged and missing files are replaced by a rollback or an overwrite, with any log, engine and producer.

What only says to readers of changes which rows went is left out then, and they get an error that says so.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from filestore.delta.vectors import vector_file
from filestore.errors import Corrupt, NotFound
from filestore.model.snapshot import Operation
from filestore.storage.local import LocalStorage
from tablestore import Store, Table
from tablestore.following.gaps import truncates
from tests.depth import sampled
from tests.faults import Call, FaultyStorage
from tests.opened import again
from tests.servers.kafka import KafkaBroker
from tests.tables import assert_healthy, in_order, paths
from tests.warehouses import changes, rows, to_arrow

Row = dict[str, Any]
EMBEDDED = {"log.system": "embedded"}
SETTINGS: dict[str, dict[str, str]] = {
    "log": EMBEDDED,
    "eventual log": {**EMBEDDED, "log.consistency": "eventual"},
    "log of all changes": {**EMBEDDED, "changelog-producer": "lookup"},
    "changes as they come": {**EMBEDDED, "changelog-producer": "input"},
    "sums": {**EMBEDDED, "merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "partial update": {**EMBEDDED, "merge-engine": "partial-update"},
    "merge on read": {**EMBEDDED, "write-mode": "merge-on-read"},
    "no log": {"log.system": "none"},
    "no log, lookup": {"log.system": "none", "changelog-producer": "lookup"},
    "no log, merge on read": {"log.system": "none", "write-mode": "merge-on-read"},
}


def make(store: Store, setting: str) -> Table:
    options = {"bucket": "2", **SETTINGS[setting]}
    columns = "day STRING, id BIGINT, v BIGINT"
    return store.create_table("shop.t", columns, primary_key=["day", "id"], partition_by=["day"], options=options)


def put(table: Table, day: str, ids: range, value: int, **how: Any) -> int:
    found = [{"day": day, "id": number, "v": value} for number in ids]
    return table.write(to_arrow(table, found), **how).version


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], None]] = {"flipped": flip, "missing": Path.unlink}


def later_files(table: Table, earlier: int) -> list[str]:
    """Returns the files, runs and vectors of the newest version that an earlier one lacks."""

    def named(version: int) -> set[str]:
        state = table.filestore.state(version)
        vectors = {vector_file(file.vector) for file in state.files if file.vector}
        return {*paths(state), *vectors, *(run.path for run in state.pending)}

    return sorted(named(table.filestore.state().version) - named(earlier))


def applied(held: list[Row], batches: Iterable[pa.RecordBatch]) -> list[Row]:
    """Returns the rows of a reader that had some and was given these changes."""
    by_key = {(row["day"], row["id"]): row for row in held}
    for batch in batches:
        by_key = {} if truncates(batch) else by_key
        for row in batch.to_pylist():
            kind, key = row.pop("_kind"), (row["day"], row["id"])
            by_key.pop(key, None)
            by_key |= {key: row} if kind in ("+I", "+U") else {}
    return in_order(by_key.values())


def controls(table: Table) -> int:
    """Counts the control records of the embedded log."""
    found = 0
    for path in Path(table.location, "_log").glob("bucket-*.sqlite"):
        with closing(sqlite3.connect(path)) as db:
            found += db.execute("SELECT count(*) FROM segments WHERE kind = 'control'").fetchone()[0]
    return found


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


@pytest.mark.few(6)
@pytest.mark.parametrize("damage", ["cut", "missing", "flipped"])
@pytest.mark.parametrize("key", [["id"], []], ids=["key", "no key"])
@pytest.mark.parametrize("setting", ["log", "log of all changes", "no log", "no log, lookup", "no log, merge on read"])
def test_a_rollback_of_a_sound_table_restores_no_file_that_cannot_be_read(
    store: Store, setting: str, key: list[str], damage: str
) -> None:
    """Only a rollback over damage looked at what it restores: the others left a table that nobody could read."""
    options = {name: value for name, value in SETTINGS[setting].items() if key or "log" in name.split(".")}
    table = store.create_table("shop.t", "id BIGINT, v BIGINT", primary_key=key, options=options)
    assert isinstance(table, Table)
    then = table.write([{"id": number, "v": 1} for number in range(500)]).version
    table.write([{"id": 1, "v": 2}], overwrite=True)
    found = {**DAMAGE, "cut": cut}[damage]
    runs = [run.path for run in table.filestore.state(then).pending]
    for path in (*sorted(paths(table.filestore.state(then))), *runs):
        found(Path(table.location, path))
    table = again(table)
    before = table.version
    with pytest.raises(Corrupt) as caught:
        table.rollback(then)
    assert caught.value.code == "restored-file"
    assert table.version == before
    assert rows(table) == [{"id": 1, "v": 2}]


@pytest.mark.few(4)
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("setting", sampled(SETTINGS, 4))
def test_a_rollback_replaces_files_that_cannot_be_read(store: Store, setting: str, damage: str) -> None:
    table = make(store, setting)
    put(table, "b", range(5), 1)
    then = put(table, "a", range(40), 1)
    expected = rows(table)
    put(table, "a", range(10, 50), 2)
    for path in later_files(table, then):
        DAMAGE[damage](Path(table.location, path))
    table = store.table("shop.t")
    table.write(pa.table({"day": ["b"], "id": [99], "v": [9]}))  # of which nothing is damaged
    with pytest.raises((Corrupt, NotFound)):
        rows(table)
    snapshot = table.rollback(then)
    assert snapshot.metrics["restored_version"] == then
    assert rows(table) == expected
    if "log" in SETTINGS[setting] and setting != "no log":
        assert snapshot.operation is Operation.OVERWRITE
        assert controls(table) == 2
    assert_healthy_but_for_old_files(table, damage)
    goes_on(store, table, snapshot.version)


def assert_healthy_but_for_old_files(table: Table, damage: str) -> None:
    """Versions that are kept still name the files that are gone."""
    if damage == "flipped":
        assert_healthy(table.filestore)
    assert {f.code for f in table.examine().problems} <= {"retained-file"}


def goes_on(store: Store, table: Table, restored: int) -> None:
    """Writers and readers go on behind the version, and readers that stand before it know that they cannot."""
    put(table, "a", range(3), 7)
    put(table, "c", range(3), 7)
    table.compact(full=True)
    put(table, "a", range(2), 8)
    fresh = store.table("shop.t")
    newest, logged = fresh.filestore.state().version, fresh.opened.log_config() is not None
    for mode in ("upsert", "changelog") if logged else ("changelog",):
        after = fresh.follow(version=restored, stop=newest, mode=mode)
        assert applied(rows(fresh, restored), after) == rows(fresh)
        with pytest.raises(NotFound, match="scan='full'") as gap:
            list(fresh.follow(version=restored - 1, stop=newest, mode=mode))
        assert gap.value.code == "log-gap"
        again = fresh.follow(version=restored - 1, stop=newest, mode=mode, on_log_gap="rescan")
        assert applied([], again) == rows(fresh)


OTHERS: dict[str, Callable[[Table], object]] = {
    "a write": lambda table: put(table, "c", range(2, 8), 5),
    "a tag": lambda table: table.create_tag("t"),
    "an overwrite": lambda table: put(table, "a", range(3), 5, overwrite={"day": "a"}),
    "another rollback": lambda table: table.rollback(2),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("setting", ["log", "eventual log", "merge on read"])
def test_what_others_commit_meanwhile_is_rolled_back_too(store: Store, setting: str, other: str) -> None:
    table = make(store, setting)
    put(table, "b", range(5), 1)
    then = put(table, "a", range(40), 1)
    expected = rows(table)
    put(table, "a", range(10, 50), 2)
    for path in later_files(table, then):
        flip(Path(table.location, path))
    storage = FaultyStorage(LocalStorage())

    def others_first(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and not call.done:
            storage.hook = lambda _: None
            OTHERS[other](store.table("shop.t"))

    mine = again(table, storage=storage)
    storage.hook = others_first
    restored = mine.rollback(then).version
    fresh = store.table("shop.t")
    assert rows(fresh) == expected
    assert_healthy(fresh.filestore)
    put(fresh, "a", range(3), 7)
    after = fresh.follow(version=restored, stop=restored + 1)
    assert applied(expected, after) == rows(fresh)


@pytest.mark.few(3)
@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("how", ["overwrite", "drop"])
@pytest.mark.parametrize("setting", sampled(SETTINGS, 3))
def test_an_overwrite_replaces_files_that_cannot_be_read(store: Store, setting: str, how: str, damage: str) -> None:
    table = make(store, setting)
    then = put(table, "b", range(5), 1)
    put(table, "a", range(40), 1)
    put(table, "a", range(10, 50), 2)
    for path in later_files(table, then):
        DAMAGE[damage](Path(table.location, path))
    table = store.table("shop.t")
    if how == "drop":
        table.drop_partitions([{"day": "a"}])
    else:
        put(table, "a", range(3), 3, overwrite={"day": "a"})
    notes = table.filestore.snapshot(table.filestore.state().version).notes
    assert any("it has no change data" in note for note in notes) == ("changelog-producer" in SETTINGS[setting])
    assert {(row["day"], row["v"]) for row in rows(table)} == {("b", 1)} | ({("a", 3)} if how == "overwrite" else set())
    assert_healthy_but_for_old_files(table, damage)


@pytest.mark.few(4)
@pytest.mark.parametrize("both", [False, True], ids=["it alone", "the newest, too"])
@pytest.mark.parametrize("setting", [s for s in SETTINGS if s not in ("no log", "no log, merge on read")])
def test_a_rollback_to_a_version_with_a_damaged_file_says_so_and_changes_nothing(
    store: Store, setting: str, both: bool
) -> None:
    """Without a log and with change data it was committed, and nobody could read the table any more."""
    table = make(store, setting)
    first = put(table, "a", range(5), 1)
    then = put(table, "a", range(5, 9), 1)
    bad = later_files(table, first)
    put(table, "a", range(40), 2)
    table.compact(full=True)
    newest, expected = table.filestore.state().version, rows(table)
    for path in {*bad, *(later_files(table, then) if both else ())}:
        flip(Path(table.location, path))
    table = store.table("shop.t")
    with pytest.raises(Corrupt, match=f"version {then} needs a file that cannot be read") as refused:
        table.rollback(then)
    assert refused.value.code == "restored-file"
    assert table.filestore.state().version == newest
    assert both or rows(table) == expected
    table.rollback(first)
    assert len(rows(table)) == 5
    entry = table.filestore.delta_log.read_entry(table.filestore.state().version)
    assert entry is not None
    assert entry.actions[0]["commitInfo"]["operationParameters"] == {}, "it replaces the whole table"


def test_a_rollback_without_damage_logs_the_rows_that_change(store: Store) -> None:
    table = make(store, "log")
    then = put(table, "a", range(5), 1)
    put(table, "a", range(2, 5), 2)
    snapshot = table.rollback(then)
    assert snapshot.operation is Operation.ROLLBACK and controls(table) == 0
    found = changes(table, version=snapshot.version - 1)
    assert sorted((row["_kind"], row["id"]) for row in found) == [("+U", 2), ("+U", 3), ("+U", 4)]


def test_a_file_of_all_versions_is_replaced_by_the_rows_that_can_be_read(store: Store) -> None:
    table = make(store, "log")
    put(table, "a", range(5), 1)
    put(table, "b", range(5), 1)
    for path in later_files(table, 1):
        flip(Path(table.location, path))
    table = store.table("shop.t")
    with pytest.raises(Corrupt):
        table.write(pa.table({"day": ["b"], "id": [1], "_kind": ["-D"]}))
    table.write(table.scan(where="day = 'a'").to_arrow(), overwrite=True)
    assert {row["day"] for row in rows(table)} == {"a"}
    assert_healthy(table.filestore)


def test_the_vectors_of_restored_files_count(store: Store) -> None:
    """A file that is copied back before readers come to the version: its rows went, others are alive again."""
    table = make(store, "log")
    then = put(table, "a", range(40), 1)
    put(table, "a", range(10, 50), 2)
    bad = [Path(table.location, path) for path in later_files(table, then) if path.endswith(".parquet")]
    copies = [path.read_bytes() for path in bad]
    for path in bad:
        flip(path)
    restored = store.table("shop.t").rollback(then).version
    for path, data in zip(bad, copies, strict=True):
        path.write_bytes(data)
    fresh = store.table("shop.t")
    for mode in ("upsert", "changelog"):
        found = fresh.follow(version=restored - 1, stop=restored, mode=mode)
        assert applied(rows(fresh, restored - 1), found) == rows(fresh, then)


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [{}, {"log.consistency": "eventual"}, {"log.kafka.cleanup.policy": "compact"}],
    ids=["", "eventual", "compact"],
)
def test_a_log_in_kafka_has_what_replaces_files(store: Store, kafka_broker: KafkaBroker, more: dict[str, str]) -> None:
    """A compacted topic takes no record without a key: overwrites failed there."""
    servers = {"log.system": "kafka", "log.kafka.bootstrap.servers": kafka_broker.bootstrap}
    options = {"bucket": "2", **servers, **more}
    columns = "day STRING, id BIGINT, v BIGINT"
    table = store.create_table("shop.t", columns, primary_key=["day", "id"], partition_by=["day"], options=options)
    put(table, "b", range(5), 1)
    put(table, "a", range(9), 0)
    then = put(table, "a", range(40), 1, overwrite={"day": "a"})
    put(table, "a", range(10, 50), 2)
    expected = rows(table, then)
    for path in later_files(table, then):
        flip(Path(table.location, path))
    restored = store.table("shop.t").rollback(then).version
    put(table, "a", range(3), 7)
    fresh = store.table("shop.t")
    assert rows(fresh, restored) == expected
    assert fresh.examine().findings == ()
    assert applied(expected, fresh.follow(version=restored, stop=restored + 1)) == rows(fresh)
    with pytest.raises(NotFound, match="scan='full'"):
        list(fresh.follow(version=restored - 1, stop=restored + 1))
    again = fresh.follow(version=restored - 1, stop=restored + 1, on_log_gap="rescan")
    assert applied([], again) == rows(fresh)
