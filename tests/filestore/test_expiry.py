"""Expiry of stored versions: kept versions stay readable, removals are reported, and any step may fail."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction.compact import compact_table
from filestore import layout
from filestore.ambient import Ambient
from filestore.checks.report import Invariant
from filestore.commit.proposal import AppVersion
from filestore.doctor import examine
from filestore.errors import AlreadyExists, Conflict, Corrupt, InvalidRequest, NotFound, Unavailable
from filestore.files.leftovers import write_file
from filestore.life.consumers import Consumer, consumers_of, remove_consumer
from filestore.life.expiry import expire
from filestore.life.tags import create_due_tag, create_tag, delete_tag
from filestore.model.snapshot import Operation
from filestore.retention.holds import holds
from filestore.retention.rules import first_retained, tags_of
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tests.depth import Depth
from tests.faults import Call, FailAt, FaultyStorage, Killed
from tests.folders import memory_folder
from tests.interleaving import interleave
from tests.proposals import propose
from tests.tables import (
    Clock,
    assert_healthy,
    create,
    define,
    in_order,
    prepare,
    read,
    read_deltalake,
    read_polars,
    reopen,
    seeded,
    write,
)

DAY = 86_400_000
KEEP = {"snapshot_num__retained_min": 3, "snapshot_time__retained": "0 ms", "checkpoint_interval": 4}
Rows = list[dict[str, Any]]


def table(folder: Path | str, versions: int = 14, **options: object) -> FileStore:
    """Creates a table whose versions replace vectors and files, by upserts and compactions."""
    store = create(Path(folder) / "t", define("id BIGINT, v INT", ["id"], **(KEEP | options)), ambient=seeded(1))
    grow(store, versions)
    return store


def grow(store: FileStore, until: int) -> None:
    while (version := store.state().version) < until:
        if version % 5 == 4:
            compact_table(store, full=True)
        else:
            write(store, [{"id": n, "v": version} for n in (version % 3, version)])


def history(store: FileStore) -> dict[int, Rows]:
    return {version: read(store, version) for version in range(store.state().version + 1)}


def assert_reads(store: FileStore, versions: range | list[int], expected: dict[int, Rows]) -> None:
    fresh = reopen(store)
    for version in versions:
        assert read(fresh, version) == expected[version]
        assert in_order(read_polars(store.location, version)) == expected[version]
        assert in_order(read_deltalake(store.location, version)) == expected[version]


def assert_expired(store: FileStore, versions: range | list[int]) -> None:
    for version in versions:
        with pytest.raises(NotFound, match=f"version {version} of .* has expired") as caught:
            reopen(store).state(version)
        assert caught.value.code == "snapshot-expired"


def files_in(store: FileStore) -> set[str]:
    prefix = layout.join(store.location, "")
    return {info.path.removeprefix(prefix) for info in store.storage.walk(store.location)}


@pytest.mark.slow
def test_what_is_retained_reads_as_before_and_the_rest_is_gone(folder: Path) -> None:
    store = table(folder)
    before, stored = history(store), files_in(store)
    planned = expire(store, dry_run=True)
    assert (planned.first, planned.versions, store.state().version) == (12, 12, 14), "a dry run changes nothing"
    assert files_in(store) == stored
    done = expire(store)
    assert (done.first, done.files) == (planned.first, planned.files)
    assert (
        stored - files_in(store)
        == set(done.files)
        | {f"_delta_log/{v:020d}.{kind}" for v in range(12) for kind in ("json", "checkpoint.parquet")} & stored
    )
    assert_reads(store, range(12, 15), before)
    assert_expired(store, range(12))
    assert store.delta_log.versions() == list(range(12, 16)), "12 is a checkpoint"
    assert [s.version for s in store.snapshots()] == [15, 14, 13, 12]
    assert not assert_healthy(store).orphans
    rounds = [expire(store).files for _ in range(4)]
    assert rounds[0], "the expiry is a version itself, so one more is too many"
    assert rounds[-1] == (), "and in the end there is nothing that would be worth a commit"
    assert store.state().version == 14 + 1 + sum(map(bool, rounds))


@pytest.mark.slow
def test_a_table_can_live_on_after_its_first_versions(folder: Path) -> None:
    store = table(folder)
    for until in range(20, 60, 6):
        expire(store)
        grow(store, until)
        known = history_of_retained(store)
        assert_reads(store, sorted(known), known)
        assert len(store.delta_log.versions()) < 22
        assert_healthy(store)


def history_of_retained(store: FileStore) -> dict[int, Rows]:
    return {s.version: read(store, s.version) for s in store.snapshots()}


def test_versions_that_were_the_newest_within_the_time_stay(folder: Path) -> None:
    clock = Clock(step_ms=0)
    definition = define("id BIGINT, v INT", ["id"], **(KEEP | {"snapshot_time__retained": "1 h"}))
    store = create(folder / "t", definition, ambient=seeded(1, clock))
    for version in range(8):
        clock.ms += 20 * 60_000
        write(store, [{"id": 1, "v": version}])
    clock.ms += 59 * 60_000  # it has been the newest version for 59 minutes
    assert expire(store, dry_run=True).first == 6, "three are kept, and an hour ago the newest of them was not there"
    clock.ms = store.state().timestamp_ms
    assert expire(store).first == 5, "60 minutes ago that was the newest one"


def test_an_expiry_keeps_more_if_it_is_asked_but_not_less(folder: Path) -> None:
    clock = Clock(step_ms=0)
    definition = define("id BIGINT, v INT", ["id"], **(KEEP | {"snapshot_time__retained": "1 h"}))
    store = create(folder / "t", definition, ambient=seeded(1, clock))
    for version in range(8):
        clock.ms += DAY
        write(store, [{"id": 1, "v": version}])
    clock.ms += 2 * 3_600_000
    assert expire(store, dry_run=True).first == 6
    assert expire(store, dry_run=True, keep=timedelta(minutes=1)).first == 6
    assert expire(store, dry_run=True, keep=timedelta(days=900)).first == 0
    assert expire(store, keep=timedelta(days=5)).first == first_retained(store.state()) == 3


@pytest.mark.slow
def test_tags_keep_their_versions(folder: Path) -> None:
    store = table(folder)
    before = history(store)
    tag = create_tag(store, "eod", 6)
    assert (tag.version, tag.timestamp_ms) == (6, store.state(6).timestamp_ms)
    assert create_tag(store, "eod", 6) == tag, "a retry"
    with pytest.raises(AlreadyExists, match="names version 6 already"):
        create_tag(store, "eod", 7)
    assert expire(store).first == 13
    assert_reads(store, [6, 13, 14], before)
    assert_expired(store, [0, 3, 4, 5, 7, 12])
    assert min(store.delta_log.versions()) == 4, "the checkpoint that version 6 stands on"
    with pytest.raises(NotFound, match=r"has expired.* tagged ones 6"):
        create_tag(store, "late", 5)
    assert_healthy(store)
    delete_tag(store, "eod")
    assert_expired(store, [6])
    with pytest.raises(NotFound, match="no tag 'eod'"):
        delete_tag(store, "eod")
    assert expire(store).files
    assert min(store.delta_log.versions()) == 12
    assert not assert_healthy(store).findings


@pytest.mark.parametrize("version", [-1, 15])
def test_a_version_that_is_not_there_cannot_be_tagged(folder: Path, version: int) -> None:
    with pytest.raises(NotFound, match=f"no version {version}"):
        create_tag(table(folder), "x", version)


@pytest.mark.slow
def test_consumers_keep_theirs_and_all_later_ones(folder: Path) -> None:
    store = table(folder)
    before = history(store)
    consumer = Consumer(reopen(store), "report").register(6)
    assert [(c.id, c.version) for c in consumers_of(store)] == [("report", 6)]
    assert expire(store).first == 6
    assert_reads(store, range(6, 15), before)
    assert_expired(store, range(6))
    consumer.advance(9)
    assert expire(store).first == 9
    consumer.release()
    assert consumers_of(store) == []
    assert expire(store).first == 14
    assert_expired(store, range(6, 14))
    with pytest.raises(NotFound) as caught:
        Consumer(store, "late").register(7)
    assert caught.value.code == "snapshot-expired"
    with pytest.raises(NotFound, match="no version 99 yet"):
        Consumer(store, "late").register(99)
    assert consumers_of(store) == []
    assert_healthy(store)


def test_an_expired_consumer_holds_nothing(folder: Path) -> None:
    clock = Clock()
    store = create(folder / "t", define("id BIGINT, v INT", ["id"], **KEEP), ambient=seeded(1, clock))
    grow(store, 14)
    lost, alive = Consumer(store, "lost").register(5), Consumer(store, "alive").register(8)
    clock.ms += 6 * DAY
    alive.keep()
    clock.ms += 2 * DAY
    assert expire(store).first == 8
    with pytest.raises(NotFound) as caught:
        lost.advance(6)
    assert caught.value.code == "snapshot-expired"
    alive.advance(9)


def test_two_readers_with_one_id(folder: Path) -> None:
    store = table(folder)
    first = Consumer(store, "x").register(5)
    second = Consumer(store, "x").register(7)
    with pytest.raises(Conflict, match="took over consumer 'x' at version 7"):
        first.advance(6)
    first.release()
    assert [c.version for c in consumers_of(store)] == [7]
    with second:
        assert second.version == 7
    with pytest.raises(InvalidRequest, match="holds nothing"):
        _ = second.version


def test_an_expiry_right_before_a_consumer_registers_is_noticed(folder: Path) -> None:
    """The consumer writes its file first, and checks its version afterwards."""
    store = table(folder)

    def hook(call: Call) -> None:
        if call.operation == "replace" and "_consumers/" in call.path and not call.done:
            expire(store)

    reader = reopen(store, FaultyStorage(LocalStorage(), hook))
    with pytest.raises(NotFound, match="has expired"):
        Consumer(reader, "reader").register(5)
    assert consumers_of(store) == []


def test_what_is_restored_and_removed_again_meanwhile_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollback that began before, and a removal of all files, commit after an expiry has said what it removes."""
    store = table(folder)
    expected: dict[int, Rows] = {}
    former = [file for file in store.state(2).files if store.state().files.current(file) is None]

    def holding(*arguments: Any) -> Any:
        if store.delta_log.latest().version == 15:
            for removed, added in (((), former), (former, ())):
                base = store.delta_log.latest()
                named = propose(Operation.OVERWRITE, str(base.version), base.version, removes=removed, adds=added)
                if removed:
                    expected[base.version] = read(store, base.version)
                store.commit_version(base, named, lambda *_, same=named: same)
        return holds(*arguments)

    monkeypatch.setattr("filestore.life.expiry.holds", holding)
    gone = expire(store)
    assert former
    assert store.state().version == 17
    assert gone.files
    assert {file.path for file in former} <= files_in(store)
    assert_reads(store, [16], expected)


def test_a_run_that_is_restored_and_replaced_meanwhile_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A domain of a later version may name other runs in place of it."""
    store = table(folder, 8)
    names = [layout.run_path((), 0, str(UUID(int=number, version=4))) for number in range(2)]
    assert all(map(layout.is_run, names))
    for name in names:
        write_file(store.table_files(store.state()), name, b"x")

    def named(*runs: str) -> None:
        base = store.delta_log.latest()
        change = propose(Operation.ALTER, str(base.version), base.version, domains={"other.runs": {"runs": list(runs)}})
        store.commit_version(base, change, lambda *_, same=change: same)

    def holding(*arguments: Any) -> Any:
        if store.delta_log.latest().version == 18:
            named(names[1])
        return holds(*arguments)

    named(names[0])
    named()
    grow(store, 16)
    named(names[0])
    monkeypatch.setattr("filestore.life.expiry.holds", holding)
    assert expire(store).files
    assert store.state().version == 19
    assert set(names) <= files_in(store)


def test_a_consumer_can_be_forgotten(folder: Path) -> None:
    store = table(folder)
    Consumer(store, "x").register(5)
    remove_consumer(store, "x")
    with pytest.raises(NotFound, match="no consumer 'x'"):
        remove_consumer(store, "x")
    for name in ("", "a/b", "../x", ".x", "é"):
        with pytest.raises(InvalidRequest, match="no id for a consumer"):
            Consumer(store, name)


def test_a_consumer_does_not_create_a_dropped_table_again(folder: Path) -> None:
    store = table(folder)
    consumer = Consumer(store, "x")
    store.storage.delete_tree(store.location)
    with pytest.raises(NotFound):
        consumer.register(5)
    assert not Path(store.location).exists()


# ------------------------------------------------------------------------------------ those who know an expired version


@pytest.mark.slow
def test_a_reader_that_slept_finds_the_newest_version(folder: Path) -> None:
    store = table(folder)
    sleeper = reopen(store)
    grow(store, 40)
    expire(store)
    assert sleeper.state() == store.state()


@pytest.mark.slow
def test_a_writer_whose_base_expired_changes_nothing(folder: Path) -> None:
    store = table(folder)
    prepared = prepare(reopen(store), [{"id": 1, "v": 1}])
    grow(store, 40)
    expire(store)
    with pytest.raises(Conflict) as caught:
        prepared.commit()
    assert caught.value.code == "base-expired"
    assert reopen(store).state() == store.state()


@pytest.mark.slow
def test_a_writer_that_slept_in_the_middle_does_not_write_where_nobody_reads(folder: Path) -> None:
    """The writer looks for newer versions and sleeps; versions are added and expire meanwhile: its number is free."""
    store = table(folder)
    storage = FaultyStorage(LocalStorage())
    prepared = prepare(reopen(store, storage), [{"id": 77, "v": 1}])

    def sleep(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and not call.done:
            storage.hook = lambda _: None
            grow(store, 40)
            expire(store)

    storage.hook = sleep
    with pytest.raises(Conflict) as caught:
        prepared.commit()
    assert caught.value.code == "base-expired"
    assert min(store.delta_log.versions()) > 15
    assert_healthy(store)


@pytest.mark.slow
def test_a_batch_that_was_written_by_an_expired_version_is_not_written_again(folder: Path) -> None:
    store = table(folder, 2)
    write(store, [{"id": 1, "v": 1}], app=AppVersion("query", 7))
    grow(store, 40)
    expire(store)
    again = write(reopen(store), [{"id": 1, "v": 99}], app=AppVersion("query", 7))
    assert (again.fresh, again.snapshot.version) == (False, min(store.delta_log.versions()))


def test_times_of_expired_versions(folder: Path) -> None:
    store = table(folder)
    early = store.snapshot(2).timestamp
    expire(store)
    with pytest.raises(NotFound) as caught:
        store.version_at(int(early.timestamp() * 1000))
    assert caught.value.code == "snapshot-expired"
    with pytest.raises(NotFound) as caught:
        store.snapshot(2)
    assert caught.value.code == "snapshot-expired"
    with pytest.raises(NotFound, match="no version 99"):
        store.snapshot(99)


# ------------------------------------------------------------------------------------------------------- automatic tags


@contextmanager
def tagging(**options: object) -> Iterator[tuple[FileStore, Clock]]:
    with memory_folder() as folder:
        clock = Clock(20_000 * DAY, step_ms=0)
        definition = define(
            "id BIGINT, v INT", ["id"], **(KEEP | {"tag_automatic__creation": "process-time"} | options)
        )
        yield create(folder / "t", definition, ambient=seeded(1, clock)), clock


def test_each_day_gets_the_tag_of_its_last_version() -> None:
    with tagging(tag_num__retained__max=2) as (store, clock):
        create_tag(store, "mine", 0)
        assert create_due_tag(store) is None, "the table was made today"
        last: dict[str, int] = {}
        for day in ("2024-10-04", "2024-10-05", "2024-10-06"):
            midnight = (20_000 + len(last)) * DAY
            for hour in (1, 23):
                clock.ms = midnight + hour * 3_600_000
                last[day] = write(store, [{"id": 1, "v": hour}]).snapshot.version
            clock.ms += 2 * 3_600_000
            write(store, [{"id": 1, "v": 0}])  # of the next day
            tag = create_due_tag(store)
            assert tag is not None
            assert (tag.name, tag.version, tag.automatic) == (day, last[day], True)
            version = store.state().version
            assert create_due_tag(store) is None
            assert store.state().version == version
        assert list(tags_of(store.state())) == ["2024-10-05", "2024-10-06", "mine"]
        assert_healthy(store)


def test_no_tags_unless_asked_for() -> None:
    with tagging(tag_automatic__creation="none") as (store, clock):
        clock.ms += 3 * DAY
        assert create_due_tag(store) is None
        assert store.state().version == 0


def test_hourly_tags() -> None:
    with tagging(tag_creation__period="hourly") as (store, clock):
        clock.ms += 2 * 3_600_000
        tag = create_due_tag(store)
        assert tag is not None
        assert (tag.name, tag.version) == ("2024-10-04-01", 0)


# ------------------------------------------------------------------------------------------- faults at every call of it


@pytest.fixture(scope="module")
def template() -> Iterator[tuple[FileStore, dict[int, Rows]]]:
    """A table that tests copy, and the rows of its versions."""
    with memory_folder() as folder:
        store = table(folder)
        yield store, history(store)


@contextmanager
def copied(template: FileStore, storage: FaultyStorage | None = None) -> Iterator[FileStore]:
    with memory_folder() as folder:
        shutil.copytree(template.location, folder / "t")
        yield FileStore.open(storage or LocalStorage(), str(folder / "t"), later(3))


def calls_of_an_expiry(template: FileStore) -> list[Call]:
    storage = FaultyStorage(LocalStorage())
    with copied(template, storage) as store:
        storage.calls.clear()
        expire(store)
        return list(storage.calls)


def later(seed: int) -> Ambient:
    """An ambient whose clock is ahead of the template's."""
    return seeded(seed, Clock(1_800_000_000_000))


CHANGING = {"write_new", "replace", "delete"}


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "after"),
    [(Unavailable, False), (Unavailable, True), (Killed, True)],
    ids=["error-before", "error-after", "kill"],
)
def test_an_expiry_that_fails_anywhere_leaves_a_whole_table_and_can_be_repeated(
    template: tuple[FileStore, dict[int, Rows]], kind: type[BaseException], after: bool, depth: Depth
) -> None:
    """A call that only reads changes nothing, so a failure after it is not tried."""
    store, before = template
    calls = calls_of_an_expiry(store)
    assert len([call for call in calls if call.operation in CHANGING]) > 25
    placed = [(n, c) for n, c in enumerate(calls) if not after or c.operation in CHANGING]
    for place, call in depth.sample(placed, 6):
        number = sum(earlier.operation == call.operation for earlier in calls[: place + 1])
        storage = FaultyStorage(LocalStorage())
        with copied(store, storage) as failing:
            storage.hook = FailAt(number, kind("injected"), after, call.operation)
            with suppress(Killed, Unavailable):
                expire(failing)
            assert storage.hook.fired
            fresh = reopen(failing)
            report = examine(fresh)
            assert report.healthy, (call, [f.message for f in report.problems])
            assert_retained(fresh, before)
            expire(fresh)
            assert first_retained(fresh.state()) >= 12
            assert fresh.state().version in (15, 16)
            assert_retained(fresh, before)
            assert not examine(fresh).findings


def assert_retained(store: FileStore, expected: dict[int, Rows]) -> None:
    for version in range(first_retained(store.state()), 15):
        assert read(store, version) == expected[version]


# --------------------------------------------------------------------------------------------- interleaved with readers


ORDER = st.lists(st.integers(0, 2), max_size=150)


def reading(version: int, store: FileStore) -> Any:
    """Reads a version as a consumer: returns its rows, or the error code if the consumer registered too late."""

    def party(storage: FaultyStorage) -> Any:
        own = FileStore.open(storage, store.location, later(5))
        try:
            consumer = Consumer(own, f"reader-{version}").register(version)
        except NotFound as error:
            return error.code
        with consumer:
            return read(own, version)

    return party


def expiring(store: FileStore, seed: int) -> Any:
    return lambda storage: expire(FileStore.open(storage, store.location, later(seed)))


@given(ORDER, st.integers(8, 14))
def test_a_reader_with_a_consumer_gets_all_rows_or_comes_too_late(
    template: tuple[FileStore, dict[int, Rows]], order: list[int], version: int
) -> None:
    with copied(template[0]) as store:
        expected = read(store, version)
        found, *others = interleave([reading(version, store), expiring(store, 6), expiring(store, 7)], order)
        assert found in (expected, "snapshot-expired")
        if version >= 12:
            assert found == expected
        for other in others:
            assert not isinstance(other, BaseException), other
        assert_expired(store, [5])
        assert_healthy(reopen(store))


@pytest.mark.slow
@given(ORDER)
def test_a_reader_of_a_tag_that_is_deleted_and_expires(
    template: tuple[FileStore, dict[int, Rows]], order: list[int]
) -> None:
    with copied(template[0]) as store:
        expected = read(store, 6)
        create_tag(store, "t", 6)
        expire(store)

        def untag(storage: FaultyStorage) -> None:
            own = FileStore.open(storage, store.location, later(8))
            delete_tag(own, "t")
            expire(own)

        found, *others = interleave([reading(6, store), untag, expiring(store, 7)], order)
        assert found in (expected, "snapshot-expired")
        for other in others:
            assert not isinstance(other, BaseException), other
        assert_expired(store, [5])
        assert_healthy(reopen(store))


@pytest.mark.slow
@given(ORDER, st.integers(9, 12))
def test_a_tag_that_is_made_while_versions_expire_names_one_that_can_be_read(
    template: tuple[FileStore, dict[int, Rows]], order: list[int], version: int
) -> None:
    with copied(template[0]) as store:
        expected = read(store, version)

        def tag(storage: FaultyStorage) -> str:
            try:
                create_tag(FileStore.open(storage, store.location, later(8)), "t", version)
            except NotFound as error:
                return error.code
            return "tagged"

        found, *others = interleave([tag, expiring(store, 6), expiring(store, 7)], order)
        for other in others:
            assert not isinstance(other, BaseException), other
        if found == "tagged":
            assert read(reopen(store), version) == expected
        else:
            assert found == "snapshot-expired"
        assert_healthy(reopen(store))


def test_a_consumers_file_that_is_damaged_is_named(folder: Path) -> None:
    store = table(folder)
    Consumer(store, "x").register(5)
    path = Path(store.location) / layout.consumer_path("x")
    for content in ("{", "[]", '{"id": "x"}'):
        path.write_text(content)
        with pytest.raises(Corrupt, match=r"consumer's file .* is damaged \(.*\): remove it") as caught:
            Consumer(store, "x").position()
        assert caught.value.code == "bad-consumer"
    path.with_name("notes.md").write_text("")
    found = {Path(f.path or "").name: f.code for f in examine(store).findings}
    assert found == {path.name: Invariant.FOREIGN_FILE, "notes.md": Invariant.FOREIGN_FILE}


def test_a_hold_ends_once(folder: Path) -> None:
    store = table(folder)
    consumer = Consumer(store, "x").register(5)
    other = Consumer(store, "y").register(5)
    for _ in range(2):
        consumer.release()
        assert [hold.id for hold in consumers_of(store)] == ["y"]
    other.release()
