"""Time travel, and clocks that are wrong (fault test 14)."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore import layout
from filestore.delta.log import Commit, show_time
from filestore.errors import Corrupt, NotFound
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tests.folders import memory_folder
from tests.tables import Clock, assert_healthy, create, define, in_order, read, read_deltalake, reopen, seeded, write

COLUMNS = "id BIGINT, v INT"
NOW = 1_700_000_000_000
MINUTE = 60_000


@settings(max_examples=settings.default.max_examples // 2)
@given(st.lists(st.integers(-10 * MINUTE, 10 * MINUTE) | st.just(0), min_size=1, max_size=12))
def test_versions_grow_with_time_whatever_the_clocks_say(skews: list[int]) -> None:
    with memory_folder() as folder:
        clock = Clock(NOW, step_ms=0)
        store = create(folder / "t", define(COLUMNS, ["id"], checkpoint_interval=5), ambient=seeded(1, clock))
        for number, skew in enumerate(skews):
            clock.ms = NOW + skew  # each writer has a clock of its own
            write(reopen(store), [{"id": number % 3, "v": number}])
        times = [round(s.timestamp.timestamp() * 1000) for s in reversed(store.snapshots())]
        assert times == sorted(set(times)), "strictly"
        assert all(later <= max(NOW, *(NOW + s for s in skews)) + len(skews) for later in times)
        clock.ms = max(clock.ms, times[-1] + 1000)
        for version, time in enumerate(times):
            assert store.version_at(time) == version
            following = times[version + 1] if version + 1 < len(times) else time + 1000
            assert store.version_at(following - 1) == version
        with pytest.raises(NotFound):
            store.version_at(times[0] - 1)
        assert_healthy(store)
        history = deltalake.DeltaTable(store.location).history()
        assert [entry["inCommitTimestamp"] for entry in reversed(history)] == times


def test_a_time_that_is_still_to_come_is_refused(folder: Path) -> None:
    """Found by a stranger: the year 2099 read as now, without a word."""
    clock = Clock(NOW, step_ms=0)
    store = create(folder / "t", define(COLUMNS, ["id"]), ambient=seeded(1, clock))
    write(store, [{"id": 1, "v": 1}])
    newest = store.state().timestamp_ms
    clock.ms = newest + MINUTE
    for at in (newest, newest + 1, newest + MINUTE):
        assert store.version_at(at) == store.version_before(at + 1) == 1
    for find in (store.version_at, lambda at: store.version_before(at + 1)):
        with pytest.raises(
            NotFound, match=r"is in the future: the newest version of .* is 1, of 2023-11-14T22:13:20"
        ) as caught:
            find(newest + MINUTE + 1)
        assert caught.value.code == "no-such-version"
    clock.ms = newest - MINUTE  # a clock that is slow: what another wrote is there all the same
    assert store.version_at(newest) == 1


@pytest.fixture
def store(folder: Path) -> FileStore:
    made = create(folder / "t", define(COLUMNS, ["id"], checkpoint_interval=4))
    for number in range(10):
        write(made, [{"id": number % 4, "v": number}, {"id": number, "v": number}])
    return made


@pytest.mark.slow
def test_every_version_reads_as_it_was(store: FileStore) -> None:
    assert store.delta_log.checkpoints() == [4, 8]
    rows: dict[int, int] = {}
    for version in range(1, 11):
        rows |= {(version - 1) % 4: version - 1, version - 1: version - 1}
        expected = in_order({"id": i, "v": v} for i, v in rows.items())
        assert read(store, version) == expected
        assert read(reopen(store), version) == expected
        assert read_deltalake(store.location, version) == expected


@pytest.mark.parametrize("version", [-1, 11])
def test_versions_that_are_not_there(store: FileStore, version: int) -> None:
    with pytest.raises(NotFound, match="it has versions 0 to 10"):
        store.state(version)


def test_a_state_is_the_same_from_any_start(store: FileStore) -> None:
    for version in range(11):
        assert reopen(store).state(version) == store.delta_log.at(version)
    (Path(store.location) / "_delta_log" / "_last_checkpoint").unlink()
    assert reopen(store).state() == store.state()


def test_history_pages(store: FileStore) -> None:
    assert [s.version for s in store.snapshots(limit=3)] == [10, 9, 8]
    assert [s.version for s in store.snapshots(limit=3, before=8)] == [7, 6, 5]
    assert len(store.snapshots()) == 11


def test_there_is_no_table(folder: Path) -> None:
    with pytest.raises(NotFound, match="there is no table"):
        FileStore.open(LocalStorage(), str(folder / "nix"), seeded())


def test_a_time_beyond_the_calendar_is_shown_as_a_number() -> None:
    assert show_time(0) == "1970-01-01T00:00:00+00:00"
    assert show_time(10**18) == f"{10**18} ms since 1970"


def test_a_log_that_lost_its_beginning_is_corrupt(folder: Path) -> None:
    store = create(folder / "t", define(COLUMNS, ["id"]))
    write(store, [{"id": 1, "v": 1}])
    (Path(store.location) / layout.log_entry_path(0)).unlink()
    with pytest.raises(Corrupt, match="has neither version 0 nor a checkpoint") as caught:
        store.delta_log.oldest()
    assert caught.value.code == "version-gap"
    with pytest.raises(NotFound, match="has expired; the oldest that is left is 1: take a later time") as gone:
        store.delta_log.version_before(0)
    assert gone.value.code == "snapshot-expired"


def test_an_entry_of_a_foreign_writer_may_lack_its_info() -> None:
    entry = Commit(7, ({"add": {}},))
    assert (entry.commit_id, entry.timestamp_ms) == (None, None)
