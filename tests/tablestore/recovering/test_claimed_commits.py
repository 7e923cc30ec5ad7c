"""A writer dies between claiming its version in the catalog's database and publishing it, and others come after it.

The claim has decided: the rows are the table's, and their log transaction is committed. Whoever cannot ask the database
must not take that for the answer that nothing is claimed.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

import tablestore
from filestore.ambient import Ambient
from filestore.commit.held import HeldStorage
from filestore.errors import CommitUnknown, Unavailable
from tablestore import Table
from tests.bothlogs import both_logs
from tests.depth import Depth
from tests.faults import Call, FailAt, FaultyClaims, FaultyStorage, Hook, Killed
from tests.folders import memory_folder
from tests.opened import again
from tests.tables import Clock, assert_healthy, seeded
from tests.warehouses import assert_whole, changes, replay, rows

HOUR_MS = 3_600_000
RETAINED = {"snapshot.num-retained.min": "1", "snapshot.time-retained": "1 h"}
BEFORE, CLAIMED = [{"id": 1, "v": "a"}], [{"id": 1, "v": "b"}, {"id": 2, "v": "b"}]


@dataclass(slots=True)
class Once(FailAt):
    """One of the database's calls fails."""

    def __call__(self, call: Call) -> None:
        if call.operation.startswith("claims."):
            FailAt.__call__(self, call)


@dataclass(slots=True)
class Away(Once):
    """The database is away from one of its calls on."""

    def __call__(self, call: Call) -> None:
        if self.fired and call.operation.startswith("claims."):
            raise self.error
        Once.__call__(self, call)


def through(table: Table, hook: Hook, ambient: Ambient | None = None) -> Table:
    """The table in a process whose calls of database and storage go through a hook."""
    held = table.opened.storage
    assert isinstance(held, HeldStorage)
    assert held._database is not None
    storage, claims = FaultyStorage(held.inner, hook), FaultyClaims(held._database, hook)
    return again(table, storage=HeldStorage(storage, held.location, claims, held._new_id), ambient=ambient)


@contextmanager
def made(options: dict[str, str]) -> Iterator[Table]:
    """A table whose commits a database holds."""
    with memory_folder() as folder, tablestore.connect(str(folder), commits="catalog") as store:
        store.create_database("shop")
        store.create_table("shop.t", "id BIGINT, v STRING", primary_key=["id"], options=options)
        yield store.table("shop.t")


@contextmanager
def claimed(options: dict[str, str]) -> Iterator[Table]:
    """A table whose second write is claimed and not published."""
    with made(options) as table:
        table.write(BEFORE)
        with pytest.raises(Killed):
            through(table, FailAt(1, Killed(), after=True, operation="claims.claim")).write(CLAIMED)
        yield table


@pytest.mark.few(2)
@both_logs
@pytest.mark.parametrize("fault", [Once, Away])
@pytest.mark.parametrize("how", ["recover", "write"])
def test_recovery_ends_nothing_that_is_claimed(log_options: dict[str, str], fault: type[Once], how: str) -> None:
    """The database is away at each of the calls of a recovery, or of a write, once or from then on."""
    for number in itertools.count(1):
        with claimed(log_options) as table:
            away = fault(number, Unavailable("injected"))
            with suppress(Unavailable):
                if how == "write":
                    through(table, away).write([{"id": 3, "v": "c"}])
                else:
                    assert through(table, away).recover().aborted == ()
            assert table.recover().republished == ()
            later = [{"id": 3, "v": "c"}] if table.filestore.state().version == 3 else []
            assert assert_whole(table) == replay(changes(table, version=0), ["id"]) == [*CLAIMED, *later]
        if not away.fired:
            break


OPERATIONS: dict[str, Callable[[Table], object]] = {
    "rollback": lambda table: table.rollback(1),
    "expire": lambda table: table.expire(),
    "remove orphans": lambda table: table.remove_orphans(timedelta(0), dry_run=False, even_young=True),
    "compact": lambda table: table.compact(full=True),
    "tag": lambda table: table.create_tag("now"),
    "alter": lambda table: table.alter("ADD COLUMN w INT"),
    "examine": lambda table: table.examine(),
}


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("fault", [Once, Away])
def test_nothing_loses_what_is_claimed(name: str, fault: type[FailAt], depth: Depth) -> None:
    """The database is away at each of the calls of an operation: its rows and its log are those of the claim after."""
    for number in depth.counting(3):
        with claimed(RETAINED) as table:
            away = fault(number, Unavailable("injected"))
            with suppress(Unavailable):
                OPERATIONS[name](through(table, away))
            table.recover()
            assert_whole(table)
            found = {snapshot.version: snapshot for snapshot in table.snapshots()}
            assert rows(table, 2) == CLAIMED
            assert found[2].transactions
        if not away.fired:
            break


def test_a_history_without_the_database_is_refused() -> None:
    """Whoever looks for a commit whose outcome is unknown would write the rows once more."""
    with claimed({}) as table:
        away = through(table, Away(1, Unavailable("injected")))
        assert rows(away) == BEFORE
        for asks in (away.snapshots, away.examine):
            with pytest.raises(Unavailable, match="injected"):
                asks()
        assert [snapshot.version for snapshot in table.snapshots()] == [2, 1, 0]


@pytest.mark.parametrize("released", [False, True])
def test_an_expiry_removes_no_file_that_a_claimed_rollback_restores(released: bool) -> None:
    """The rollback holds its version until its outcome is known; where that is released, the expiry asks or fails."""
    clock = Clock()
    with made({"log.system": "none", "snapshot.num-retained.min": "1"}) as table:
        clock.ms = table.filestore.state().timestamp_ms + HOUR_MS
        writer = again(table, ambient=seeded(1, clock))
        writer.write(BEFORE)
        writer.write([{"id": 3, "v": "c"}], overwrite=True)
        clock.ms += 25 * HOUR_MS

        stands, goes_on = threading.Event(), threading.Event()

        def expiring(call: Call) -> None:
            """The expiry has chosen version 1, and stands still before its commit, which will be version 3."""
            if call.operation == "claims.claim" and not call.done:
                stands.set()
                assert goes_on.wait(60)

        def rolling_back(call: Call) -> None:
            """The rollback holds version 1 by now. Its commit is behind the expiry's: it is claimed, and no more."""
            if call.operation == "claims.claim" and not call.done:
                goes_on.set()
                assert expiry.result(60).first == 2
            if call.operation == "replace" and f"{4:020}.json" in call.path:
                raise Unavailable("injected")

        with ThreadPoolExecutor(1) as pool:
            expiry = pool.submit(through(table, expiring, seeded(2, clock)).expire)
            assert stands.wait(60)
            with pytest.raises(CommitUnknown):
                through(table, rolling_back, seeded(3, clock)).rollback(1)
        if released:
            for file in Path(table.location, "_consumers").iterdir():  # to ask for consumers would publish the version
                file.unlink()
        with suppress(Unavailable):
            through(table, Away(1, Unavailable("injected")), seeded(4, clock)).expire()
        assert rows(again(table, ambient=seeded(5, clock))) == BEFORE
        assert_healthy(table.filestore)
