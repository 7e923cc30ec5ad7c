"""The compactor: each duty that is due is done once, by one process, even if others die meanwhile."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tablestore
from catalog_service.client import Catalog, LeaseRequest, connect
from catalog_service.server import serving
from compaction.choice import sorted_runs
from compaction.compact import plan_compaction
from compaction.compactor import Compactor, Outcome
from compaction.duties import COMPACTION, DUTIES, FOLD, TOMBSTONES, Duty, LeaseCheck
from compaction.lease import leased
from filestore.ambient import system_ambient
from filestore.delta.state import TableState
from filestore.errors import Conflict, NotFound, Unavailable
from filestore.model.snapshot import Operation
from filestore.storage.local import LocalStorage
from filestore.storage.locations import Storages
from managed_table.opened import OpenedTable
from tablestore import Store, Table
from tests.depth import Depth, sampled
from tests.faults import Call, FailAt, FaultyStorage, OneStorage
from tests.processes import PROCESSES
from tests.servers.postgres import PostgresServer
from tests.waiting import until

AMBIENT = system_ambient()
OPTIONS = {"log.system": "none", "num-sorted-run.compaction-trigger": "3"}


@pytest.fixture(params=sampled(["http", "embedded"], 2, test=2))
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "embedded":
        yield str(tmp_path / "warehouse")
    else:
        with serving(str(tmp_path / "warehouse")) as url:
            yield url


@pytest.fixture
def store(target: str) -> Iterator[Store]:
    with tablestore.connect(target) as store:
        store.create_database("shop")
        yield store


@pytest.fixture
def catalog(target: str) -> Iterator[Catalog]:
    with connect(target) as catalog:
        yield catalog


def worn(store: Store, name: str = "shop.orders", writes: int = 4) -> Table:
    """A table with so many runs."""
    table = store.create_table(name, "id BIGINT, v BIGINT", primary_key=["id"], options=OPTIONS)
    for v in range(writes):
        wear(table, v)
    return table


def wear(table: Table, v: int) -> None:
    import polars as pl

    table.write(pl.DataFrame({"id": range(v, 100), "v": [v] * (100 - v)}))


def due(table: Table) -> bool:
    return bool(plan_compaction(table.filestore.state()))


def compactor(catalog: Catalog, lease_s: float = 60, storage: Any = None, databases: tuple[str, ...] = ()) -> Compactor:
    return Compactor(catalog, OneStorage(storage or LocalStorage()), AMBIENT, databases, lease_s)


# ------------------------------------------------------------------------------------------------ alone


def test_it_compacts_what_needs_it_and_nothing_else(store: Store, catalog: Catalog) -> None:
    table, fresh = worn(store), worn(store, "shop.fresh", 1)
    before = table.scan().to_polars().sort("id")
    worker = compactor(catalog)
    (outcome,) = worker.run(COMPACTION)
    assert (outcome.table, outcome.duty, outcome.failed) == ("shop.orders", "compaction", False)
    assert outcome.done == "version 5: 3 files became 1"
    assert len(table.files()) == 2
    assert fresh.filestore.state().version == 1
    assert table.scan().to_polars().sort("id").equals(before)
    assert list(worker.run(COMPACTION)) == []
    for v in range(3):
        wear(table, v)
    assert [o.table for o in worker.run(COMPACTION)] == ["shop.orders"], "it sees what was written since"
    assert not table.examine().problems


def test_it_folds_pending_runs(store: Store, catalog: Catalog) -> None:
    options = OPTIONS | {"write-mode": "merge-on-read"}
    table = store.create_table("shop.orders", "id BIGINT, v BIGINT", primary_key=["id"], options=options)
    for v in range(3):
        wear(table, v)
    assert table.filestore.state().pending
    worker = compactor(catalog)
    (outcome,) = worker.run(FOLD)
    assert (outcome.duty, outcome.done) == ("fold", "version 4: 100 rows folded")
    assert not table.filestore.state().pending
    assert list(worker.run(FOLD)) == []


def test_it_forgets_old_deletes(store: Store, catalog: Catalog) -> None:
    options = OPTIONS | {"sequence.field": "v", "sequence.tombstone-retention": "1 d"}
    table = store.create_table("shop.orders", "id BIGINT, v BIGINT", primary_key=["id"], options=options)
    for n in range(3):
        table.write([{"id": n, "v": n, "_kind": "-D"}])
    worker = compactor(catalog)
    (outcome,) = worker.run(TOMBSTONES)
    assert (outcome.duty, outcome.done) == ("tombstones", "version 4: tombstones merged or forgotten")
    assert list(worker.run(TOMBSTONES)) == []


def test_a_duty_that_another_process_has_done_reports_nothing(store: Store, catalog: Catalog) -> None:
    table = worn(store, writes=1).opened
    for duty in (FOLD, TOMBSTONES, COMPACTION):
        assert duty.perform(table, lambda: None) is None


def test_leases_are_given_back(store: Store, catalog: Catalog) -> None:
    worn(store)
    assert len(list(compactor(catalog).run(COMPACTION))) == 1
    assert catalog.acquire_lease("shop", "orders", LeaseRequest(owner="me", seconds=1)).owner == "me"


def test_topics_have_nothing_to_keep(store: Store, catalog: Catalog) -> None:
    options = {"connector": "kafka", "format": "json", "topic": "t", "properties.bootstrap.servers": "127.0.0.1:1"}
    store.create_kafka_table("shop.topic", "id BIGINT", options=options | {"topic.check": "false"})
    assert [list(compactor(catalog).run(duty)) for duty in DUTIES] == [[] for _ in DUTIES]


def test_only_the_databases_that_were_named(store: Store, catalog: Catalog) -> None:
    store.create_database("bank")
    table, other = worn(store), worn(store, "bank.accounts")
    assert [o.table for o in compactor(catalog, databases=("bank",)).run(COMPACTION)] == ["bank.accounts"]
    assert due(table)
    assert not due(other)
    with pytest.raises(NotFound, match="nowhere"):
        list(compactor(catalog, databases=("nowhere",)).run(COMPACTION))


def test_what_is_leased_is_passed_by(store: Store, catalog: Catalog) -> None:
    table, other = worn(store), worn(store, "shop.others")
    catalog.acquire_lease("shop", "orders", LeaseRequest(owner="somebody", seconds=60))
    assert [o.table for o in compactor(catalog).run(COMPACTION)] == ["shop.others"]
    assert due(table)
    assert not due(other)


@pytest.mark.slow
def test_one_table_that_fails_does_not_hold_up_the_next(store: Store, catalog: Catalog) -> None:
    broken, table = worn(store, "shop.a_broken"), worn(store)
    merged = plan_compaction(broken.filestore.state())[0].files[0]
    Path(broken.location, merged.path).unlink()
    outcomes = {o.table: o for o in compactor(catalog).run(COMPACTION)}
    assert outcomes["shop.a_broken"].failed, "a missing data file is not a dropped table"
    assert outcomes["shop.orders"].error is None
    assert not due(table)
    assert catalog.acquire_lease("shop", "a_broken", LeaseRequest(owner="me", seconds=1)).owner == "me"


@pytest.mark.slow
def test_tables_that_are_dropped_or_made_again_meanwhile(store: Store, catalog: Catalog) -> None:
    worn(store)
    worker = compactor(catalog)
    assert len(list(worker.run(COMPACTION))) == 1
    store.drop_table("shop.orders")
    assert list(worker.run(COMPACTION)) == []
    again = worn(store)
    assert len(list(worker.run(COMPACTION))) == 1
    assert not due(again)

    def drop_first(state: TableState, now_ms: int) -> bool:
        store.drop_table("shop.orders", if_exists=True)
        return True

    assert list(worker.run(replace(COMPACTION, due=drop_first))) == []


def test_it_stops_between_tables(store: Store, catalog: Catalog) -> None:
    worn(store, "shop.a")
    second = worn(store, "shop.b")
    worker = compactor(catalog)
    outcomes = worker.run(COMPACTION)
    assert next(outcomes).table == "shop.a"
    worker.stopping.set()
    assert list(outcomes) == []
    assert due(second)


def test_a_lost_race_is_no_failure(store: Store, catalog: Catalog) -> None:
    worn(store)

    def lose(opened: OpenedTable, check_lease: LeaseCheck) -> str:
        raise Conflict("another was faster")

    (outcome,) = compactor(catalog).run(replace(COMPACTION, perform=lose))
    assert outcome.error is not None
    assert not outcome.failed


def test_what_another_did_before_the_lease_was_granted_is_not_done_again(store: Store, catalog: Catalog) -> None:
    worn(store)
    due_then, performed = iter([True, False]), list[OpenedTable]()

    def perform(opened: OpenedTable, check_lease: LeaseCheck) -> str:
        performed.append(opened)
        return "done"

    duty = replace(COMPACTION, due=lambda state, now_ms: next(due_then), perform=perform)
    assert list(compactor(catalog).run(duty)) == []
    assert not performed
    assert next(due_then, None) is None, "it was checked twice"


def test_every_duty_has_a_name_of_its_own() -> None:
    assert COMPACTION in DUTIES
    assert len({duty.name for duty in DUTIES}) == len(DUTIES)
    assert all(duty.every_s > 0 for duty in DUTIES)


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_compactor_whose_storage_fails_tries_again(tmp_path: Path, after: bool, depth: Depth) -> None:
    """At every storage call of a round: the table stays whole, and the next round succeeds."""
    with tablestore.connect(str(tmp_path / "warehouse")) as store, connect(str(tmp_path / "warehouse")) as catalog:
        store.create_database("shop")
        for number in depth.counting(7):
            table = worn(store)
            before = table.scan().to_polars().sort("id")
            fault = FailAt(number, Unavailable("injected"), after=after)
            storage = FaultyStorage(LocalStorage(), fault)
            worker = compactor(catalog, storage=storage)
            first = list(worker.run(COMPACTION))
            assert [o.failed for o in first if o.done is None] == [True] * sum(o.error is not None for o in first)
            list(worker.run(COMPACTION))
            assert not due(table)
            assert len([s for s in table.snapshots() if s.operation is Operation.COMPACT]) == 1
            assert table.scan().to_polars().sort("id").equals(before)
            assert not table.examine().problems
            store.drop_table("shop.orders")
            if not fault.fired:
                break


# ------------------------------------------------------------------------------------------------ the lease


@pytest.mark.deep  # it takes its time; a takeover waits for a heart, too
@pytest.mark.slow
def test_the_heartbeat_outlives_the_time_that_was_asked_for(store: Store, catalog: Catalog) -> None:
    worn(store, writes=1)
    with leased(catalog, "shop", "orders", LeaseRequest(owner="a", seconds=8), AMBIENT) as lease:
        begin = AMBIENT.now_ms()
        while AMBIENT.now_ms() < begin + 9_000:  # longer; a busy machine may stop the heart for four seconds
            lease.check()
            with pytest.raises(Conflict, match="held by a"):
                catalog.acquire_lease("shop", "orders", LeaseRequest(owner="b", seconds=60))
            threading.Event().wait(0.1)
    assert catalog.acquire_lease("shop", "orders", LeaseRequest(owner="b", seconds=60)).owner == "b"


@pytest.mark.slow
def test_a_catalog_that_is_away_costs_the_lease_in_the_end(store: Store, catalog: Catalog) -> None:
    worn(store, writes=1)
    away = threading.Event()

    class Away:
        def __getattr__(self, name: str) -> Any:
            if away.is_set():
                raise Unavailable("the catalog is away")
            return getattr(catalog, name)

    with leased(Away(), "shop", "orders", LeaseRequest(owner="a", seconds=2), AMBIENT) as lease:
        lease.check()
        away.set()
        until(lambda: _code(lease.check) == "lease-lost", what="the loss")


def test_a_lease_that_another_took_is_noticed_before_the_commit(store: Store, catalog: Catalog) -> None:
    """As for a process that slept: the work is thrown away, the files too."""
    table = worn(store)
    files = set(Path(table.location).rglob("*.parquet"))
    lost = threading.Event()

    def steal(call: Call) -> None:
        if call.operation == "open_write" and not lost.is_set():
            info = catalog.get_table("shop", "orders")
            _hand_over(catalog, info.table_id)
            lost.set()
            until(lambda: any(t.name.startswith("lease of") and not t.is_alive() for t in threads), what="the beat")

    threads: list[threading.Thread] = []

    def perform(opened: OpenedTable, check_lease: LeaseCheck) -> str | None:
        threads.extend(t for t in threading.enumerate() if t.name.startswith("lease of"))
        return COMPACTION.perform(opened, check_lease)

    worker = compactor(catalog, lease_s=0.9, storage=FaultyStorage(LocalStorage(), steal))
    (outcome,) = worker.run(replace(COMPACTION, perform=perform))
    assert lost.is_set()
    assert outcome.error is not None
    assert outcome.error.code == "lease-lost"
    assert set(Path(table.location).rglob("*.parquet")) == files
    assert due(table)


def _hand_over(catalog: Catalog, table_id: str) -> None:
    """Somebody else has the lease, as after an expiry."""
    from catalog_service.database.engine import default_database_url, open_engine, writing
    from catalog_service.database.schema import LEASES

    location = Path(catalog.get_table("shop", "orders").location)
    engine = open_engine(default_database_url(str(location.parent.parent)))
    with writing(engine) as connection:
        connection.execute(LEASES.update().where(LEASES.c.table_id == table_id).values(owner="thief"))
    engine.dispose()


def _code(call: Callable[[], object]) -> str | None:
    try:
        call()
    except Conflict as error:
        return error.code
    return None


# ------------------------------------------------------------------------------------------------ processes


@pytest.mark.slow
def test_of_two_compactors_the_living_one_takes_over(
    store: Store, catalog: Catalog, target: str, tmp_path: Path
) -> None:
    """One is killed (as by ``kill -9``) in the middle of a merge. Until its lease runs out nobody takes its work."""
    table = worn(store)
    before = table.scan().to_polars().sort("id")
    victim = PROCESSES.Process(target=_hang, args=(target, str(tmp_path / "merging"), 6.0))
    victim.start()
    try:
        until(lambda: (tmp_path / "merging").exists(), what="the merge")
        other = compactor(catalog, lease_s=6.0)
        assert list(other.run(COMPACTION)) == []
        held = AMBIENT.now_ms()
        while AMBIENT.now_ms() < held + 7_000:  # its heart beats: longer than the lease
            assert list(other.run(COMPACTION)) == []
            threading.Event().wait(0.1)
    finally:
        victim.kill()
        victim.join(300)
    assert victim.exitcode == -signal.SIGKILL
    until(lambda: list(other.run(COMPACTION)), what="the takeover")
    assert not due(table)
    assert table.scan().to_polars().sort("id").equals(before)
    assert not table.examine().problems


@pytest.mark.slow
def test_a_compactor_that_was_stopped_for_long_commits_nothing(
    store: Store, catalog: Catalog, target: str, tmp_path: Path
) -> None:
    """SIGSTOP, another does the work, SIGCONT: the first one finds its lease lost."""
    table = worn(store)
    reported = PROCESSES.Queue()
    sleeper = PROCESSES.Process(target=_sleep, args=(target, str(tmp_path), reported))
    sleeper.start()
    until(lambda: (tmp_path / "merging").exists(), what="the merge")
    os.kill(sleeper.pid, signal.SIGSTOP)
    try:
        other = compactor(catalog, lease_s=60)
        until(lambda: list(other.run(COMPACTION)), what="the takeover")
        version = table.filestore.state().version
    finally:
        (tmp_path / "go on").touch()
        os.kill(sleeper.pid, signal.SIGCONT)
    assert reported.get(timeout=300) == ["lease-lost"]
    sleeper.join(300)
    assert table.filestore.state().version == version
    assert not table.examine().problems


def _hang(target: str, mark: str, lease_s: float) -> None:
    def hook(call: Call) -> None:
        if call.operation == "open_write":
            Path(mark).touch()
            threading.Event().wait()

    with connect(target) as catalog:
        list(compactor(catalog, lease_s, FaultyStorage(LocalStorage(), hook)).run(COMPACTION))


def _sleep(target: str, folder: str, reported: Any) -> None:
    def hook(call: Call) -> None:
        if call.operation == "open_write":
            Path(folder, "merging").touch()
            until(lambda: Path(folder, "go on").exists())

    with connect(target) as catalog:
        worker = compactor(catalog, 1.0, FaultyStorage(LocalStorage(), hook))
        reported.put([o.error.code if o.error else o.done for o in worker.run(COMPACTION)])


@pytest.mark.deep
@pytest.mark.slow
def test_two_compactors_never_do_the_same_work_at_once(target: str, store: Store) -> None:
    _compact_while_writing(store, [(target, 0), (target, 0)])


@pytest.mark.deep
@pytest.mark.slow
def test_compactors_of_two_hosts_share_postgresql(tmp_path: Path) -> None:
    """Each host has a service of its own, the database is common, and the clock of one is an hour late."""
    warehouse = str(tmp_path / "warehouse")
    with (
        PostgresServer() as server,
        serving(warehouse, database=server.url) as one,
        serving(warehouse, database=server.url) as two,
        tablestore.connect(one) as store,
    ):
        store.create_database("shop")
        _compact_while_writing(store, [(one, 0), (two, -3600)])


def _compact_while_writing(store: Store, hosts: list[tuple[str, int]]) -> None:
    """Runs a compactor at each catalog with a clock that is wrong by so many seconds: none does another's work."""
    tables = [worn(store, f"shop.t{n}") for n in range(3)]
    ended, reported = PROCESSES.Event(), PROCESSES.Queue()
    workers = [PROCESSES.Process(target=_compete, args=(*host, ended, reported)) for host in hosts]
    for worker in workers:
        worker.start()
    for v in range(12):
        for table in tables:
            wear(table, v)
    until(lambda: not any(due(t) for t in tables), what="the compactions")
    ended.set()
    spans = [reported.get(timeout=300) for _ in workers]
    for worker in workers:
        worker.join(300)
        assert worker.exitcode == 0
    assert [outcome for each in spans for outcome in each["outcomes"] if outcome] == [], "a conflict, or worse"
    work = sorted(span for each in spans for span in each["work"])
    assert len(work) >= 6
    for table in tables:
        mine = [(begin, end) for begin, end, location in work if location == table.location]
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(mine)), "at the same time"
        assert not table.examine().problems
        assert len(sorted_runs(table.files(), table.definition)) < 3


def _compete(target: str, skew_s: int, ended: Any, reported: Any) -> None:
    work: list[tuple[float, float, str]] = []
    errors: list[str | None] = []

    def perform(opened: OpenedTable, check_lease: LeaseCheck) -> str | None:
        begin = time.monotonic()  # one clock for all processes of a machine
        done = COMPACTION.perform(opened, check_lease)
        work.append((begin, time.monotonic(), opened.identity.location))
        return done

    duty = Duty("compaction", 1.0, COMPACTION.due, perform)
    ambient = replace(AMBIENT, now_ms=lambda: AMBIENT.now_ms() + 1000 * skew_s)
    with connect(target) as catalog:
        worker = Compactor(catalog, Storages(), ambient, (), 60)
        while not ended.is_set():
            errors += [_reported(outcome) for outcome in worker.run(duty)]
    reported.put({"work": work, "outcomes": errors})


def _reported(outcome: Outcome) -> str | None:
    return None if outcome.error is None else f"{outcome.table}: {outcome.error}"
