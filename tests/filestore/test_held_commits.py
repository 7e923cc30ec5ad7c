"""Commits that a database holds: in a store where all of several writers win, and where any step may be the last."""

from __future__ import annotations

import pickle
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import deltalake
import pytest

from filestore import layout
from filestore.commit.claims import Claim, Claims
from filestore.commit.held import HeldStorage
from filestore.errors import AlreadyExists, CommitUnknown, Conflict, Corrupt, NotFound, Unavailable, Unsupported
from filestore.life.expiry import expire
from filestore.life.orphans import find_orphans, remove_orphans
from filestore.model.changes import SetOption
from filestore.operations.alter import alter
from filestore.storage.interface import Storage
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tests.depth import Depth
from tests.faults import Call, FailAt, FaultyClaims, FaultyStorage, Hook, Killed
from tests.folders import memory_folder
from tests.simulation.turns import Task, Turns, single_threaded
from tests.tables import Clock, assert_healthy, create, define, in_order, prepare, read, read_deltalake, seeded, write

LATER = 10**15
"""A time after every file was written, by any clock."""

TABLE = define("id BIGINT, v STRING", ["id"], bucket=2, checkpoint_interval=4)


@dataclass
class Database:
    """The claims of one table in memory, as a database has them."""

    row: Claim | None = None
    dropped: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def newest(self) -> Claim | None:
        self._require_table()
        return self.row

    def claim(self, wanted: Claim, after: Claim | None) -> Claim:
        with self.lock:
            self._require_table()
            known = after is not None and self.row is not None and after.file == self.row.file and self.row.published
            if self.row is None or (known and wanted.version > self.row.version):
                self.row = wanted
            return self.row

    def publish(self, claim: Claim) -> Claim | None:
        with self.lock:
            if self.row is not None and self.row.file == claim.file:
                self.row = replace(self.row, published=True)
            return self.row

    def _require_table(self) -> None:
        if self.dropped:
            raise NotFound("the table was dropped", code="table-not-found")


class LastWriterWins:
    """A store without conditional writes: a new file replaces one that is there. It is not on this machine."""

    def __init__(self) -> None:
        self._inner = LocalStorage()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __reduce__(self) -> tuple[type[LastWriterWins], tuple[()]]:
        return LastWriterWins, ()

    def write_new(self, path: str, data: bytes) -> None:
        raise AssertionError(f"{path} was written on a condition, which this store ignores")

    def replace(self, path: str, data: bytes) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._inner.replace(path, data)

    def local_path(self, path: str) -> None:
        return None


@dataclass
class Table:
    """A table whose commits a database holds, and processes that work on it."""

    location: str
    database: Database
    seeds: Iterator[int] = field(default_factory=lambda: iter(range(10**6)))
    clock: Clock = field(default_factory=Clock)

    def process(self, hook: Hook | None = None) -> FileStore:
        """A process that knows nothing yet; its calls go through a hook."""
        ambient = seeded(next(self.seeds), self.clock)
        storage: Storage = LastWriterWins()  # type: ignore[assignment]
        claims: Claims = self.database
        if hook is not None:
            storage, claims = FaultyStorage(storage, hook), FaultyClaims(claims, hook)
        return FileStore(HeldStorage(storage, self.location, claims, ambient.new_id), self.location, ambient)

    def plain(self) -> list[dict[str, Any]]:
        """The rows of a reader that knows nothing of the database; all versions that it sees are whole."""
        reader = deltalake.DeltaTable(self.location)
        names = sorted(path.name for path in Path(self.location, layout.DELTA_LOG).glob("*.json"))
        assert names == [f"{version:020d}.json" for version in range(reader.version() + 1)]
        return read_deltalake(self.location)


@pytest.fixture
def table(folder: Path) -> Table:
    return made(folder / "t")


def made(location: Path, definition: Any = TABLE) -> Table:
    table = Table(str(location), Database())
    process = table.process()
    create(location, definition, process.storage, process.ambient)
    return table


def elsewhere(store: FileStore) -> FileStore:
    """The table as a process has it that got it from another one."""
    return FileStore(pickle.loads(pickle.dumps(store.storage)), store.location, store.ambient)


def rows(v: str, *keys: int) -> list[dict[str, Any]]:
    return [{"id": key, "v": v} for key in keys]


def test_a_table_is_a_delta_table(table: Table) -> None:
    writer = table.process()
    write(writer, rows("a", 1, 2, 3))
    for v in "bcdef":
        write(writer, rows(v, 2))
    assert table.plain() == read(table.process()) == in_order(rows("a", 1, 3) + rows("f", 2))
    assert table.process().delta_log.checkpoints() == [4]
    assert assert_healthy(table.process()).findings == ()
    assert table.database.row is not None and table.database.row.version == 6
    assert not list(Path(table.location, layout.STAGED_COMMITS).iterdir())


@pytest.mark.deep
@pytest.mark.parametrize("rounds", [2])
def test_sixteen_writers_race_for_each_version(table: Table, rounds: int, depth: Depth) -> None:
    """The store lets all of them win; the database does not."""
    count = 16 * depth.times(rounds, deep=10)

    def work(number: int) -> int:
        return write(table.process(), rows(f"{number}", number, 1000)).snapshot.version

    with ThreadPoolExecutor(16) as pool:
        versions = list(pool.map(work, range(count)))
    assert sorted(versions) == list(range(1, count + 1))
    last = versions.index(count)
    expected = [row for number in range(count) for row in rows(f"{number}", number)] + rows(f"{last}", 1000)
    assert table.plain() == read(table.process()) == in_order(expected)
    assert_healthy(table.process())


# ------------------------------------------------------------------------------------------------------- every step


def steps(act: Callable[[FileStore], object]) -> int:
    """How many calls of store and database a commit makes."""
    with memory_folder() as folder:
        count = FailAt(1 << 30, Killed(), after=True)
        act(base(folder / "t").process(count))
        return count.seen


def base(location: Path) -> Table:
    table = made(location)
    write(table.process(), rows("a", 1, 2, 3))
    return table


def commit(store: FileStore, commit_id: str = "mine") -> object:
    return prepare(store, rows("b", 2, 4), commit_id=commit_id).commit()


BEFORE, AFTER = in_order(rows("a", 1, 2, 3)), in_order(rows("a", 1, 3) + rows("b", 2, 4))


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", [Killed, Unavailable])
def test_whatever_is_the_last_step_anybody_goes_on(error: type[BaseException], after: bool, depth: Depth) -> None:
    """A reader sees all of the commit or nothing, a writer finishes it, and the same commit is made once."""
    for number in depth.sample(range(1, steps(commit) + 1), 12):
        for follower in (read_on, write_on, commit_again, clean_up):
            with memory_folder() as folder:
                table = base(folder / "t")
                fault = FailAt(number, error("injected"), after)
                with suppress(Killed, Unavailable):
                    commit(table.process(fault))
                assert table.plain() in (BEFORE, AFTER)
                follower(table)
                assert_healthy(table.process())
                assert table.plain() == read(table.process())


def read_on(table: Table) -> None:
    assert read(table.process()) in (BEFORE, AFTER)


def write_on(table: Table) -> None:
    """Another writer commits: what was claimed before is a version before its own."""
    claimed = table.database.row
    assert claimed is not None
    version = write(table.process(), rows("c", 9)).snapshot.version
    assert version == claimed.version + 1
    expected = AFTER if version == 3 else BEFORE
    assert table.plain() == in_order([*expected, *rows("c", 9)])


def commit_again(table: Table) -> None:
    """The writer's next process repeats the commit, which has its id."""
    old = table.process()
    claimed = table.database.row
    assert claimed is not None
    done = prepare(old, rows("b", 2, 4), commit_id="mine", base=old.state(1)).commit()
    assert done.snapshot.version == 2
    assert done.fresh == (claimed.version == 1)
    assert table.plain() == AFTER


def clean_up(table: Table) -> None:
    """Orphans are removed, and nothing that a claim still needs."""
    store = table.process()
    with suppress(Unavailable):
        remove_orphans(store, find_orphans(store, LATER, lambda: None))
    assert read(store) in (BEFORE, AFTER)
    write(store, rows("a", 1))
    remove_orphans(store, find_orphans(store, LATER, lambda: None))
    assert not list(Path(table.location, layout.STAGED_COMMITS).glob("*"))


def test_files_of_a_claimed_version_are_no_orphans(table: Table) -> None:
    """Its entry is not in the Delta log yet, and a process that cannot ask the database removes nothing."""
    write(table.process(), rows("a", 1, 2, 3))
    with pytest.raises(Killed):
        commit(table.process(FailAt(1, Killed(), after=True, operation="claims.claim")))
    offline = elsewhere(table.process())
    away = table.process(database_away)
    for store, error in ((offline, Unsupported), (away, Unavailable)):
        assert store.delta_log.read_entry(2) is None
        with pytest.raises(error):
            find_orphans(store, LATER, lambda: None)
    found = {left.kind for left in find_orphans(table.process(), LATER, lambda: None)}
    assert found <= {"staged entry"}, "its entry is published now, so the staged one may go"
    assert table.plain() == AFTER


@pytest.mark.parametrize("made", [False, True])
def test_a_database_that_makes_no_claim_is_asked_a_few_times(table: Table, made: bool) -> None:
    """It answers questions, as a full or read-only one does; a claim that it made nevertheless is not lost.

    The writer asked without a pause and without an end.
    """
    write(table.process(), rows("a", 1, 2, 3))
    asked = 0

    def hook(call: Call) -> None:
        nonlocal asked
        if call.operation == "claims.claim" and call.done is made:
            asked += 1
            raise Unavailable("injected: the disk is full")

    if made:
        commit(table.process(hook))  # it finds its entry, which it publishes by reading it
    else:
        with pytest.raises(CommitUnknown, match="look for your commit"):
            commit(table.process(hook))
    assert 1 < asked < 10
    write(table.process(), rows("c", 9))
    assert table.plain() == in_order([*(AFTER if made else BEFORE), *rows("c", 9)])
    assert_healthy(table.process())


# ---------------------------------------------------------------------------------------------------- model and chance


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(2))
def test_any_history_of_writers_that_die_anywhere(seed: int, depth: Depth) -> None:
    """Writers come one after another, and die at any call: a dict has what the versions in their order say."""
    for number in range(depth.times(6, deep=60)):
        with memory_folder() as folder:
            history(folder, random.Random(f"{seed}/{number}"))


def history(folder: Path, dice: random.Random) -> None:
    table = made(folder / "t")
    written: dict[str, list[dict[str, Any]]] = {}
    for number in range(8):
        commit_id, values = f"{number}", rows(f"{number}", *dice.sample(range(6), 2))
        written[commit_id] = values
        fault = FailAt(dice.randrange(1, 60), Killed(), dice.random() < 0.5)
        rival = table.process() if dice.random() < 0.4 else None
        with suppress(Killed):
            prepared = prepare(table.process(fault), values, commit_id=commit_id)
            if rival is not None:
                written[f"{number}r"] = rows(f"{number}r", *dice.sample(range(6), 2))
                prepare(rival, written[f"{number}r"], commit_id=f"{number}r").commit()
            prepared.commit()
        table.plain()
    store = table.process()
    expected: dict[int, dict[str, Any]] = {}
    ids = [snapshot.commit_id for snapshot in reversed(store.snapshots())][1:]
    assert len(set(ids)) == len(ids)
    for commit_id in ids:
        expected |= {row["id"]: row for row in written[str(commit_id)]}
    assert read(store) == table.plain() == in_order(expected.values())
    assert_healthy(store)


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(2))
def test_any_order_of_the_calls_of_writers_and_readers(seed: int, depth: Depth) -> None:
    """Each write that was acknowledged is the version that it got, and no version is missing at any time."""
    for number in range(depth.times(6, deep=150)):
        with memory_folder() as folder, single_threaded():
            interleaved(folder, random.Random(f"{seed}/{number}"))


def interleaved(folder: Path, dice: random.Random) -> None:
    table, turns = made(folder / "t"), Turns()
    acknowledged: dict[int, list[dict[str, Any]]] = {}

    def wait(call: Call) -> None:
        if not call.done and call.operation != "append" and turns.current is not None:
            turns.current.wait()

    def writes(name: str) -> None:
        for number in range(3):
            values = rows(f"{name}{number}", *dice.sample(range(6), 2))
            acknowledged[write(table.process(wait), values).snapshot.version] = values

    def reads() -> None:
        for _ in range(4):
            store = table.process(wait)
            newest = max(acknowledged, default=0)
            assert store.state().version >= newest
            read(store)

    turns.tasks += [Task(work) for work in (lambda: writes("a"), lambda: writes("b"), lambda: writes("c"), reads)]
    while turns.tasks:
        chosen = dice.choice(turns.tasks)
        for _ in range(dice.choice([1, 2, 5, 20, 60])):
            if not chosen.done:
                turns.resume(chosen)
    assert sorted(acknowledged) == list(range(1, 10))
    expected = {row["id"]: row for version in sorted(acknowledged) for row in acknowledged[version]}
    assert table.plain() == read(table.process()) == in_order(expected.values())
    assert_healthy(table.process())


# -------------------------------------------------------------------------------------------------------- slow writers


class Waiting:
    """A hook at which a process stands still before one of its calls, until the test lets it go on."""

    def __init__(self, operation: str, path: str = "") -> None:
        self._operation, self._path = operation, path
        self.stands, self.goes_on = threading.Event(), threading.Event()

    def __call__(self, call: Call) -> None:
        if call.operation == self._operation and self._path in call.path and not call.done and not self.stands.is_set():
            self.stands.set()
            assert self.goes_on.wait(60)


@pytest.mark.parametrize("at", ["claims.claim", "replace", "claims.publish"])
def test_a_writer_that_stands_still_for_long_commits_once_or_not_at_all(folder: Path, at: str) -> None:
    """It goes on when its version, and those around it, have expired."""
    life = {"snapshot_num__retained_min": 1, "snapshot_time__retained": "0 s", "checkpoint_interval": 2}
    table = made(folder / "t", define("id BIGINT, v STRING", ["id"], **life))
    write(table.process(), rows("a", 1))
    waiting = Waiting(at)
    slow = table.process(waiting)
    prepared = prepare(slow, rows("slow", 2), commit_id="slow")
    with ThreadPoolExecutor(1) as pool:
        ends = pool.submit(prepared.commit)
        assert waiting.stands.wait(60)
        other = table.process()
        for number in range(9):
            write(other, rows(f"{number}", 3))
        expire(other)
        assert not Path(table.location, layout.log_entry_path(2)).exists()
        waiting.goes_on.set()
        try:
            version = ends.result(60).snapshot.version
        except Conflict as error:
            version = 0
            assert error.code == "base-expired"
    there = {row["v"] for row in read(table.process()) if row["id"] == 2}
    assert there == ({"slow"} if version else set())
    assert bool(version) == (at != "claims.claim")
    versions = table.process().delta_log.versions()
    assert versions == list(range(versions[0], versions[-1] + 1))
    assert_healthy(table.process())


@pytest.mark.parametrize("first_stands_at", ["claims.publish", "replace"])
def test_a_version_stays_when_the_next_one_is_claimed_and_not_published(table: Table, first_stands_at: str) -> None:
    """Its writer took it for an expired one, because the entry behind it was missing, and removed it."""
    write(table.process(), rows("a", 1, 2, 3))
    first, second = Waiting(first_stands_at, "" if "." in first_stands_at else "_delta_log"), Waiting("replace")
    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(lambda: commit(table.process(first)))]
        assert first.stands.wait(60)
        read(table.process())  # it publishes the first one's version
        ends.append(pool.submit(lambda: write(table.process(second), rows("c", 9))))
        assert second.stands.wait(60)
        first.goes_on.set()
        ends[0].result(60)
        assert read_deltalake(table.location) == AFTER
        second.goes_on.set()
        ends[1].result(60)
    assert table.plain() == read(table.process()) == in_order([*AFTER, *rows("c", 9)])
    assert_healthy(table.process())


def test_a_completion_that_comes_late_disturbs_nothing(table: Table) -> None:
    write(table.process(), rows("a", 1))
    with pytest.raises(Killed):
        commit(table.process(FailAt(1, Killed(), after=True, operation="claims.claim")))
    waiting = Waiting("replace", "_delta_log")
    with ThreadPoolExecutor(1) as pool:
        ends = pool.submit(lambda: read(table.process(waiting)))
        assert waiting.stands.wait(60)
        write(table.process(), rows("c", 9))
        waiting.goes_on.set()
        ends.result(60)
    assert table.plain() == read(table.process())
    assert_healthy(table.process())


# ------------------------------------------------------------------------------------------------ what else may happen


@pytest.mark.parametrize("fails", ["", "replace"])
def test_a_failure_after_the_claim_is_an_unknown_commit_and_the_history_has_it(table: Table, fails: str) -> None:
    write(table.process(), rows("a", 1, 2, 3))
    away = Away(fails)
    with pytest.raises(CommitUnknown):
        commit(table.process(away))
    assert table.plain() == BEFORE
    away.away = False
    assert table.process().snapshots()[0].commit_id == "mine"
    assert table.plain() == AFTER


def database_away(call: Call) -> None:
    """A hook: the database does not answer."""
    if call.operation.startswith("claims."):
        raise Unavailable("injected")


class Away:
    """A hook: once the version is claimed, the store, or one operation of it, fails for ever."""

    def __init__(self, operation: str) -> None:
        self._operation = operation
        self.away = False

    def __call__(self, call: Call) -> None:
        if self.away and not call.operation.startswith("claims.") and self._operation in ("", call.operation):
            raise Unavailable("injected")
        self.away = self.away or (call.operation == "claims.claim" and call.done)


def test_a_reader_needs_no_database(table: Table) -> None:
    write(table.process(), rows("a", 1, 2, 3))
    assert read(table.process(database_away)) == BEFORE
    with pytest.raises(Unavailable):
        commit(table.process(database_away))
    assert table.plain() == BEFORE
    assert not list(Path(table.location, layout.STAGED_COMMITS).glob("*"))


def test_a_process_without_the_database_reads_and_commits_nothing(table: Table) -> None:
    write(table.process(), rows("a", 1, 2, 3))
    for copy in (elsewhere(table.process()), FileStore(LocalStorage(), table.location, seeded())):
        assert read(copy) == BEFORE
        with pytest.raises(Unsupported, match="open the table by its name") as refused:
            commit(copy)
        assert refused.value.code == "catalog-commits"
    assert table.plain() == BEFORE


def test_a_fork_leaves_the_connections_of_its_parent_alone(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    write(table.process(), rows("a", 1, 2, 3))
    asked: list[Call] = []
    store = table.process(asked.append)
    monkeypatch.setattr("filestore.commit.held.os.getpid", lambda: -1)
    assert read(store) == BEFORE
    with pytest.raises(Unsupported, match="open the table by its name"):
        commit(store)
    assert not [call for call in asked if call.operation.startswith("claims.")]


def test_a_changed_protocol_still_says_that_commits_are_held(table: Table) -> None:
    alter(table.process(), [SetOption("snapshot.num-retained.min", "3")])
    assert table.process().state().catalog_commits
    assert FileStore(LocalStorage(), table.location, seeded()).state().catalog_commits


def test_a_table_that_was_dropped_takes_no_commit(table: Table) -> None:
    store = table.process()
    prepared = prepare(store, rows("a", 1))
    table.database.dropped = True
    with pytest.raises(NotFound):
        prepared.commit()
    assert not list(Path(table.location, layout.STAGED_COMMITS).glob("*"))


@pytest.mark.parametrize("lost", [True, False])
def test_a_database_of_an_earlier_time_is_corrected_by_the_store(table: Table, lost: bool) -> None:
    """Its backup was restored: it has no claim of the table, or an old one."""
    writer = table.process()
    for v in "abcd":
        write(writer, rows(v, 1))
    stale = table.process()
    prepared = prepare(stale, rows("z", 1), base=stale.state(1))
    table.database.row = None if lost else Claim(2, layout.staged_commit_path(2, seeded(9).new_id()), published=True)
    assert write(table.process(), rows("e", 1)).snapshot.version == 5
    assert prepared.commit().snapshot.version == 6
    assert table.plain() == rows("z", 1)


@pytest.mark.parametrize("old", [None, 2])
def test_a_database_of_an_earlier_time_gives_no_version_away_twice(table: Table, old: int | None) -> None:
    writer = table.process()
    for v in "abcd":
        write(writer, rows(v, 1))
    table.database.row = (
        None if old is None else Claim(old, layout.staged_commit_path(old, seeded(9).new_id()), published=True)
    )
    # those that exist, and those without one before them; a claim of 2 alone would let 3 be claimed
    for version in (1, 4, 6, 9):
        with pytest.raises(AlreadyExists):
            table.process().storage.write_new(f"{table.location}/{layout.log_entry_path(version)}", b"")
    assert table.plain() == read(table.process()) == rows("d", 1)
    assert not list(Path(table.location, layout.STAGED_COMMITS).glob("*"))


def test_an_entry_that_is_gone_with_its_claim_is_named(table: Table) -> None:
    write(table.process(), rows("a", 1))
    with pytest.raises(Killed):
        commit(table.process(FailAt(1, Killed(), after=True, operation="claims.claim")))
    for path in Path(table.location, layout.STAGED_COMMITS).iterdir():
        path.unlink()
    with pytest.raises(Corrupt, match="restore the file") as refused:
        write(table.process(), rows("b", 1))
    assert refused.value.code == "lost-version"


def test_another_table_at_the_same_place_is_not_overwritten(table: Table) -> None:
    other = Table(table.location, Database(), iter([77, 78]))
    process = other.process()
    with pytest.raises(AlreadyExists):
        create(table.location, TABLE, process.storage, process.ambient)
    assert other.database.row is None
