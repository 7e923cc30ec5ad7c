"""The commit loop under failing storage and faster writers (FORMAT.md section 6; fault test 2)."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import deltalake
import pytest

from filestore import layout
from filestore.commit.conflict import Rebase
from filestore.commit.loop import Committed, commit_version
from filestore.commit.plan import commit_info, plan_actions
from filestore.commit.proposal import AppVersion, Proposal
from filestore.commit.protocol import metadata_only
from filestore.delta.entry import encode
from filestore.delta.state import TableState
from filestore.doctor import examine
from filestore.errors import AlreadyExists, CommitUnknown, Conflict, NotFound, Unavailable, Unsupported
from filestore.model.snapshot import Operation
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tests.faults import Call, FailAt, FaultyStorage
from tests.tables import Clock, assert_healthy, create, define, prepare, read, reopen, seeded, write

COLUMNS = "id BIGINT, v INT"
ENTRY = "_delta_log/"


@pytest.fixture
def storage() -> FaultyStorage:
    return FaultyStorage(LocalStorage())


@pytest.fixture
def store(folder: Path, storage: FaultyStorage) -> FileStore:
    made = create(folder / "t", define(COLUMNS, ["id"]), storage, seeded(1))
    write(made, [{"id": 1, "v": 1}])
    return made


def at_commit(error: BaseException, *, after: bool, number: int = 1) -> FailAt:
    return FailAt(number, error, after, "write_new", ENTRY)


def test_an_error_before_the_write_commits_nothing(store: FileStore, storage: FaultyStorage) -> None:
    prepared = prepare(store, [{"id": 2, "v": 2}])
    storage.hook = at_commit(Unavailable("503"), after=False)
    with pytest.raises(Unavailable) as caught:
        prepared.commit()
    assert not isinstance(caught.value, CommitUnknown)
    assert reopen(store).state().version == 1
    assert prepared.commit().fresh, "the same commit can be tried again"
    assert_healthy(store)


def test_a_lost_reply_is_found_to_be_our_own_commit(store: FileStore, storage: FaultyStorage) -> None:
    prepared = prepare(store, [{"id": 2, "v": 2}])
    storage.hook = at_commit(Unavailable("connection reset"), after=True)
    committed = prepared.commit()
    assert committed.fresh
    assert committed.snapshot.version == 2
    assert store.delta_log.versions() == [0, 1, 2]
    assert_healthy(store)


def test_a_store_that_retries_by_itself_finds_its_own_entry(store: FileStore, storage: FaultyStorage) -> None:
    """The store wrote, lost the reply, tried again and reports that the name is taken."""

    def write_twice(call: Call) -> None:
        if call.operation == "write_new" and ENTRY in call.path and not call.done:
            storage.hook = lambda _: None
            storage.inner.write_new(call.path, entry_of(prepared.proposal))

    def entry_of(proposal: Proposal) -> bytes:
        return encode(plan_actions(proposal, store.state(), 2_000_000_000_000))

    prepared = prepare(store, [{"id": 2, "v": 2}])
    storage.hook = write_twice
    committed = prepared.commit()
    assert committed.snapshot.commit_id == prepared.proposal.commit_id
    assert store.delta_log.versions() == [0, 1, 2]
    assert_healthy(store)


def test_nobody_knows_when_the_entry_cannot_be_read_either(store: FileStore, storage: FaultyStorage) -> None:
    prepared = prepare(store, [{"id": 2, "v": 2}])
    failing = at_commit(Unavailable("reset"), after=True)

    def fail(call: Call) -> None:
        if failing.fired and call.operation == "read":
            raise Unavailable("still down")
        failing(call)

    storage.hook = fail
    with pytest.raises(CommitUnknown, match=prepared.proposal.commit_id):
        prepared.commit()
    storage.hook = lambda _: None
    assert reopen(store).snapshot(2).commit_id == prepared.proposal.commit_id
    assert not prepared.commit().fresh
    assert_healthy(store)


@dataclass
class Recorded:
    """A transaction without work."""

    base: TableState
    calls: list[str] = field(default_factory=list)

    def prepare(self) -> Proposal:
        return Proposal(Operation.WRITE, "mine", self.base.version)

    def rebase(self, proposal: Proposal, state: TableState, changed: Rebase) -> Proposal:
        return proposal

    def finish(self, committed: Committed) -> None:
        self.calls.append("finish")

    def discard(self, *, again: bool) -> None:
        self.calls.append("discard")


def test_of_an_unknown_outcome_nothing_is_discarded(store: FileStore, storage: FaultyStorage) -> None:
    transaction = Recorded(store.state())

    def down(call: Call) -> None:
        if ENTRY in call.path and (call.operation == "write_new" or down_already):
            down_already.append(call)
            raise Unavailable("injected")

    down_already: list[Call] = []
    storage.hook = down
    with pytest.raises(CommitUnknown):
        store.commit(lambda base: nullcontext(transaction), base=transaction.base)
    assert transaction.calls == []
    storage.hook = at_commit(Unavailable("injected"), after=False)
    with pytest.raises(Unavailable):
        store.commit(lambda base: nullcontext(transaction), base=transaction.base)
    assert transaction.calls == ["discard"]
    storage.hook = lambda call: None
    assert store.commit(lambda base: nullcontext(transaction), base=transaction.base) is not None
    assert transaction.calls == ["discard", "finish"]


def test_the_entry_of_another_after_an_error_is_a_lost_race(store: FileStore, storage: FaultyStorage) -> None:
    prepared = prepare(store, [{"id": 2, "v": 2}])

    def other_wins(call: Call) -> None:
        if call.operation == "write_new" and ENTRY in call.path and not call.done:
            storage.hook = lambda _: None
            write(reopen(store), [{"id": 3, "v": 3}])
            raise Unavailable("and now the network is down for a moment")

    storage.hook = other_wins
    assert prepared.commit().snapshot.version == 3
    assert [row["id"] for row in read(store)] == [1, 2, 3]
    assert_healthy(store)


@pytest.mark.parametrize("races", [1, 5])
def test_a_writer_that_loses_races_goes_on(store: FileStore, storage: FaultyStorage, races: int) -> None:
    prepared = prepare(store, [{"id": 2, "v": 2}])
    won: list[int] = []

    def other_wins(call: Call) -> None:
        if call.operation == "write_new" and ENTRY in call.path and not call.done and len(won) < races:
            won.append(1)
            write(reopen(store), [{"id": 2, "v": 100 + len(won)}])

    storage.hook = other_wins
    committed = prepared.commit()
    assert committed.snapshot.version == 2 + races
    assert len(prepared.rebases) == races
    assert {row["id"]: row["v"] for row in read(store)} == {1: 1, 2: 2}
    assert_healthy(store)


@dataclass
class Busy:
    """A clock on which another writer commits every 200 ms: whenever the time passes, its commits are made."""

    store: FileStore
    ms: int = 1_700_000_000_000
    next_ms: int = 1_700_000_000_200
    commits: int = 0

    def sleep(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)
        while self.next_ms <= self.ms:
            self.next_ms += 200
            self.commits += 1
            write(self.store, [{"id": 1, "v": self.commits}])


def test_a_compaction_does_not_starve_beside_a_busy_writer(folder: Path) -> None:
    """Each commit that it missed costs its rebase 120 ms: if it waited between attempts, it would never catch up."""
    table = create(folder / "t", define(COLUMNS, ["id"]), ambient=seeded(1))
    busy = Busy(reopen(table))
    ambient = replace(seeded(2), now_ms=lambda: busy.ms, sleep=busy.sleep)
    base, seen = table.state(), 0

    def rebase(proposal: Proposal, state: TableState, changed: Rebase) -> Proposal:
        nonlocal seen
        missed, seen = busy.commits - seen, busy.commits
        busy.sleep(0.12 * missed)
        return proposal

    prepared = prepare(table, [{"id": 2, "v": 2}]).proposal
    busy.sleep(2)  # the merge took that long
    compaction = replace(prepared, operation=Operation.COMPACT, commit_id="slow")
    committed = commit_version(table.delta_log, base, compaction, rebase, ambient)
    assert committed.fresh
    assert busy.commits < 30, "10 while it merged, 6 + 4 + 2 + 1 + 1 while it caught up"


def test_too_many_races_are_a_conflict_and_commit_nothing(folder: Path, storage: FaultyStorage) -> None:
    store = create(folder / "t", define(COLUMNS, ["id"], commit_max__retries=3), storage, seeded(2))
    prepared = prepare(store, [{"id": 2, "v": 2}])
    other = reopen(store)

    def other_wins(call: Call) -> None:
        if call.operation == "write_new" and ENTRY in call.path and not call.done:
            write(other, [{"id": 3, "v": 3}])

    storage.hook = other_wins
    with pytest.raises(Conflict, match="lost the race for a version 4 times") as caught:
        prepared.commit()
    assert caught.value.code == "too-many-races"
    storage.hook = lambda _: None
    assert [row["id"] for row in read(other)] == [3]
    assert prepared.commit().fresh
    assert_healthy(other)


def test_an_operation_begins_as_often_as_the_options_allow_and_fails_with_its_conflict(folder: Path) -> None:
    table = create(folder / "t", define(COLUMNS, ["id"], commit_max__retries=2), ambient=seeded(1))
    begun = []

    def propose(base: TableState) -> Proposal:
        begun.append(base.version)
        raise Conflict("try again", code="never", again=True)

    with pytest.raises(Conflict, match="try again"):
        table.commit(metadata_only(propose))
    assert begun == [0, 0, 0]


def test_a_retry_with_the_same_commit_id_changes_nothing(store: FileStore) -> None:
    first = prepare(store, [{"id": 2, "v": 2}])
    committed = first.commit()
    write(store, [{"id": 2, "v": 3}])
    again = prepare(store, [{"id": 2, "v": 2}], commit_id=first.proposal.commit_id, base=first.base).commit()
    assert (again.fresh, again.snapshot) == (False, committed.snapshot)
    assert [row["v"] for row in read(store)] == [1, 3]


def test_a_batch_is_written_once_however_often_it_is_replayed(store: FileStore) -> None:
    committed = [write(store, [{"id": n, "v": n}], app=AppVersion("query", n)) for n in (0, 1, 2)]
    for number, first in enumerate(committed):
        again = write(reopen(store), [{"id": number, "v": 99}], app=AppVersion("query", number))
        assert (again.fresh, again.snapshot) == (False, first.snapshot)
    assert write(store, [{"id": 9, "v": 9}], app=AppVersion("other", 0)).fresh
    assert {row["v"] for row in read(store)} == {0, 1, 2, 9}
    assert_healthy(store)


def test_a_batch_that_was_jumped_over_counts_as_written(store: FileStore) -> None:
    write(store, [{"id": 3, "v": 3}], app=AppVersion("query", 3))
    later = write(store, [{"id": 5, "v": 5}], app=AppVersion("query", 5))
    for number in (1, 4):
        again = write(reopen(store), [{"id": 99, "v": 99}], app=AppVersion("query", number))
        assert not again.fresh
        assert again.snapshot.version == (2 if number == 1 else later.snapshot.version)


def test_a_batch_replayed_while_it_is_written_is_written_once(store: FileStore, storage: FaultyStorage) -> None:
    prepared = prepare(store, [{"id": 2, "v": 2}], app=AppVersion("query", 7))

    def twin_wins(call: Call) -> None:
        if call.operation == "write_new" and ENTRY in call.path and not call.done:
            storage.hook = lambda _: None
            write(reopen(store), [{"id": 2, "v": 3}], app=AppVersion("query", 7))

    storage.hook = twin_wins
    committed = prepared.commit()
    assert not committed.fresh
    assert committed.snapshot.commit_id != prepared.proposal.commit_id
    assert {row["v"] for row in read(store)} == {1, 3}


def test_positions_travel_with_their_app_and_stay(store: FileStore) -> None:
    write(store, [{"id": 2, "v": 2}], app=AppVersion("query", 0, (("a", 5), ("b", 0))))
    write(store, [{"id": 3, "v": 3}])
    write(store, [{"id": 4, "v": 4}], app=AppVersion("query", 1, (("a", 2**63 - 1),)))
    assert [store.required(version).positions for version in (2, 3, 4)] == [{"a": 5, "b": 0}, {}, {"a": 2**63 - 1}]
    assert reopen(store).state().positions == {"a": 2**63 - 1, "b": 0}
    assert reopen(store).state(3).positions == {"a": 5, "b": 0}
    deltalake.DeltaTable(store.location).create_checkpoint()
    assert reopen(store).state().positions == {"a": 2**63 - 1, "b": 0}, "a checkpoint keeps them"
    assert_healthy(store)


def test_a_position_that_goes_back_is_found(store: FileStore) -> None:
    write(store, [{"id": 2, "v": 2}], app=AppVersion("query", 0, (("a", 5),)))
    write(store, [{"id": 3, "v": 3}], app=AppVersion("query", 1, (("a", 4),)))
    assert [found.code for found in examine(store).problems] == ["app-version-order"]


def test_a_new_schema_in_between_is_a_conflict(store: FileStore) -> None:
    prepared = prepare(store, [{"id": 2, "v": 2}])
    entry = json.loads((Path(store.location) / layout.log_entry_path(0)).read_text().splitlines()[2])
    data = encode([commit_info(Proposal(Operation.WRITE, "theirs", 1), 1, 2 * 10**12), entry])
    LocalStorage().write_new(layout.join(store.location, layout.log_entry_path(2)), data)
    with pytest.raises(Conflict, match="schema or protocol"):
        prepared.commit()


def test_a_table_that_was_made_again_is_not_written_to(folder: Path, store: FileStore) -> None:
    prepared = prepare(store, [{"id": 2, "v": 2}])
    store.storage.delete_tree(store.location)
    fresh = create(folder / "t", define(COLUMNS, ["id"]), ambient=seeded(9, Clock(10**12)))
    for _ in range(3):
        with pytest.raises(NotFound) as caught:
            prepared.commit()
        assert caught.value.code == "table-replaced"
        write(fresh, [{"id": 7, "v": 7}])
    assert fresh.delta_log.versions() == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["readerFeatures", "writerFeatures"])
def test_a_table_of_a_later_version_is_refused(store: FileStore, kind: str) -> None:
    path = Path(store.location) / layout.log_entry_path(0)
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1]["protocol"][kind].append("variantType")
    path.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(Unsupported, match="'variantType'") as caught:
        reopen(store)
    assert caught.value.code == "unknown-feature"


def test_only_what_is_newer_is_read(store: FileStore, storage: FaultyStorage) -> None:
    for n in range(5):
        write(store, [{"id": n, "v": n}])
    storage.calls.clear()
    assert store.state().version == 6
    names = [Path(call.path).name[-7:] for call in storage.calls]
    assert sorted(names) == ["06.json", "07.json"], "is it still the same table, and is there more?"


def test_a_failing_checkpoint_is_only_a_warning(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = create(folder / "t", define(COLUMNS, ["id"], checkpoint_interval=1))

    def full(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("filestore.delta.checkpoint.parquet_bytes", full)
    assert write(store, [{"id": 1, "v": 1}]).fresh
    assert "no checkpoint" in caplog.text


def test_creating_twice_is_one_table(folder: Path) -> None:
    definition = define(COLUMNS, ["id"])
    first = FileStore.create(LocalStorage(), str(folder / "t"), definition, "one", seeded())
    write(first, [{"id": 1, "v": 1}])
    again = FileStore.create(LocalStorage(), str(folder / "t"), definition, "one", seeded())
    assert again.state() == first.state()
    with pytest.raises(AlreadyExists, match="holds table one already"):
        FileStore.create(LocalStorage(), str(folder / "t"), definition, "two", seeded())
    assert Operation.CREATE is first.snapshot(0).operation


def test_a_loser_pauses_for_a_multiple_of_what_an_attempt_takes(folder: Path, storage: FaultyStorage) -> None:
    """16 writers with pauses that did not know how long an attempt takes needed 3 times as long, and some gave up."""
    clock, pauses = Clock(step_ms=0), list[float]()
    ambient = replace(seeded(1, clock), chance=lambda: 1.0, sleep=pauses.append)
    store = create(folder / "t", define(COLUMNS, ["id"]), storage, ambient)
    prepared = prepare(store, [{"id": 2, "v": 2}])
    other = FileStore.open(LocalStorage(), store.location, seeded(2))

    def other_wins(call: Call) -> None:
        if call.operation == "write_new" and ENTRY in call.path and not call.done and len(pauses) < 12:
            clock.ms += 40  # an attempt takes 40 ms
            write(other, [{"id": 3, "v": 3}])

    storage.hook = other_wins
    prepared.commit()
    assert pauses == [0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.0, 5.0, 5.0, 5.0, 5.0]
