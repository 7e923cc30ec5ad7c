"""Found while reviewing the commit protocol: errors that hid an outcome, and what failed attempts left behind."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import filestore.commit.protocol
import managed_table.log_change
import tablestore.recovering.recovery
from filestore.ambient import system_ambient
from filestore.commit.proposal import Proposal
from filestore.delta.state import TableState
from filestore.errors import AlreadyExists, CommitUnknown, Conflict, InvalidRequest, Unavailable
from filestore.model.snapshot import Operation
from filestore.retention.rules import RETENTION_DOMAIN, first_retained
from filestore.storage.local import LocalStorage
from filestore.storage.refusals import NO_ANSWER
from log.table.embedded.segments import Segments
from log.table.embedded.store import EmbeddedLog
from log.table.systems import open_log
from tablestore import Store, Table
from tests.faults import Call, FailAt, FaultyStorage, Undeletable
from tests.logspy import LogSpy
from tests.opened import again
from tests.warehouses import assert_whole, open_in_log, orphans, rows, warehouse

ENTRY = "_delta_log/"


@pytest.fixture
def store() -> Iterator[Store]:
    with warehouse() as made:
        yield made


def make(store: Store, **options: str) -> Table:
    options = {"bucket": "2", **options}
    store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=["id"], options=options)
    return store.table("shop.orders")


def put(table: Table, *ids: int, name: str = "a") -> int:
    return table.write(pa.table({"id": ids, "name": [name] * len(ids)})).version


def put_and_lose(table: Table, *ids: int) -> None:
    """A writer dies after its commit, and the log loses its records."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tablestore.recovering.recovery.Recovery, "commit_transactions", lambda *_: None)
        put(again(table), *ids)
    config = table.opened.log_config()
    assert config is not None
    with open_log(config, system_ambient()) as opened:
        assert opened.abort_unnamed(lambda ids: ids)


def unknown_once(storage: FaultyStorage, path: str = ENTRY) -> None:
    """The reply to the next commit is lost, and its entry cannot be read."""
    lost, unread = FailAt(1, Unavailable("reset"), True, "write_new", path), FailAt(1, Unavailable("still down"))

    def hook(call: Call) -> None:
        lost(call)
        if lost.fired and call.operation == "read":
            unread(call)

    storage.hook = hook


def races(storage: FaultyStorage, other_wins: Any) -> None:
    """Another process commits right before the next commit."""

    def hook(call: Call) -> None:
        if call.operation == "write_new" and ENTRY in call.path and not call.done:
            storage.hook = lambda _: None
            other_wins()

    storage.hook = hook


class LateStorage(FaultyStorage):
    """The request for the first commit has no answer, and arrives when the test says so."""

    arrives: Callable[[], None] | None = None

    def write_new(self, path: str, data: bytes) -> None:
        if ENTRY in path and self.arrives is None:
            self.arrives = lambda: self.inner.write_new(path, data)
            raise Unavailable("injected: no answer", code=NO_ANSWER)
        super().write_new(path, data)


# ----------------------------------------------------------------------------------------- outcomes that were hidden


def test_an_entry_that_arrives_late_names_files_that_are_there(store: Store) -> None:
    """The writer had looked for it and found nothing. It had removed its files, which the version then named."""
    table = make(store)
    put(table, 1)
    storage = LateStorage(LocalStorage())
    with pytest.raises(CommitUnknown, match="may still arrive"):
        put(again(table, storage=storage), 2, 3)
    assert [row["id"] for row in rows(table)] == [1]
    assert storage.arrives is not None
    storage.arrives()
    assert [row["id"] for row in rows(table)] == [1, 2, 3]
    table.recover()
    assert_whole(table)


def test_an_entry_that_arrives_after_another_commit_changes_nothing(store: Store) -> None:
    table = make(store)
    put(table, 1)
    storage = LateStorage(LocalStorage())
    with pytest.raises(CommitUnknown):
        put(again(table, storage=storage), 2, 3)
    put(table, 4)
    assert storage.arrives is not None
    with pytest.raises(AlreadyExists):
        storage.arrives()
    table.recover()
    assert [row["id"] for row in rows(table)] == [1, 4]
    assert_whole(table)
    assert table.remove_orphans(timedelta(0), dry_run=False, even_young=True)
    assert_whole(table, leftovers=False)


def test_an_unknown_republication_before_a_write_leaves_the_write_undone(store: Store) -> None:
    """Its caller read `CommitUnknown`, and looked in the history for a commit that had not even begun."""
    table = make(store)
    put(table, 1)
    put_and_lose(table, 2, 3)
    storage = FaultyStorage(LocalStorage())
    unknown_once(storage)
    writer = again(table, storage=storage)
    with pytest.raises(Unavailable, match="changed nothing and can be repeated") as caught:
        put(writer, 4)
    assert not isinstance(caught.value, CommitUnknown)
    assert [row["id"] for row in rows(table)] == [1, 2, 3]
    put(writer, 4)
    assert [s.operation for s in table.snapshots()].count(Operation.REPUBLISH) == 1
    table.recover()
    assert open_in_log(table) == []
    assert [row["id"] for row in rows(table)] == [1, 2, 3, 4]


def test_a_log_that_cannot_be_closed_after_the_commit_fails_no_write(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = make(store)
    put(table, 1)

    really = EmbeddedLog.close

    def close(self: EmbeddedLog) -> None:
        really(self)
        raise Unavailable("the connection does not close", code="log-unavailable")

    monkeypatch.setattr(EmbeddedLog, "close", close)
    assert put(table, 2) == 2
    assert table.rollback(1).version == 3
    monkeypatch.undo()
    assert "the connection does not close" in caplog.text
    assert [row["id"] for row in assert_whole(table)] == [1]


def test_a_lease_that_cannot_be_removed_after_the_commit_fails_no_write(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It raised an error of the operating system, for a write that was committed."""
    table = make(store)
    put(table, 1)
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.parent.name == "leases":
            raise PermissionError(13, "Permission denied", str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    assert put(table, 2) == 2
    monkeypatch.undo()
    assert "cannot remove" in caplog.text
    assert len(table.filestore.leases.abandoned()) == 1
    put(again(table), 3)
    assert table.filestore.leases.abandoned() == [], "the next writer removes it"


def test_a_log_transaction_that_cannot_be_aborted_hides_no_error(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = make(store)
    put(table, 1)

    def refuse(*_: Any, **__: Any) -> None:
        raise Unavailable("the log is busy", code="log-unavailable")

    monkeypatch.setattr(Segments, "abort", refuse)
    many, last = list(range(200_000)), "+X"
    with pytest.raises(InvalidRequest):
        table.write(pa.table({"id": many, "name": ["x"] * len(many), "_kind": ["+I"] * (len(many) - 1) + [last]}))
    monkeypatch.undo()
    put(again(table), 2)
    assert open_in_log(table) == []
    assert [row["id"] for row in assert_whole(table)] == [1, 2]


def test_a_repair_that_fails_after_a_failed_write_is_logged(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = make(store, **{"log.consistency": "eventual"})
    put(table, 1)
    spy = LogSpy.installed(monkeypatch)
    spy.failing["end_offsets"] = Unavailable("no offsets", code="log-unavailable")
    with caplog.at_level(logging.WARNING), pytest.raises(Unavailable, match="no offsets"):
        put(table, 2)
    assert "records of a failed write stay in the log" in caplog.text


# -------------------------------------------------------------------------------------------- what was left behind


def test_a_file_that_cannot_be_removed_keeps_no_other_file(store: Store) -> None:
    table = make(store, **{"log.system": "none"})
    put(table, *range(100))
    storage = FaultyStorage(LocalStorage())
    refused = FailAt(1, Unavailable("503"), operation="write_new", path=ENTRY)
    stays = Undeletable()

    def hook(call: Call) -> None:
        refused(call)
        stays(call)

    storage.hook = hook
    with pytest.raises(Unavailable, match="503"):
        put(again(table, storage=storage), *range(50, 150))
    assert stays.file
    assert len(orphans(table)) == 1


@pytest.mark.parametrize("change", ["rewrite", "rollback"])
def test_files_that_an_attempt_keeps_for_the_next_one_go_if_there_is_none(
    store: Store, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt loses against another process, and the storage fails before the second one begins."""
    table = make(store, **{"schema.evolution-mode": "rewrite", "write-mode": "merge-on-read", "log.system": "none"})
    put(table, 1, 2)
    put(table, 2, 3)
    table.compact(full=True)
    storage = FaultyStorage(LocalStorage())

    def fail_between_attempts(*_: object) -> None:
        storage.hook = FailAt(1, Unavailable("down"), operation="read")

    monkeypatch.setattr(filestore.commit.protocol, "_pause", fail_between_attempts)
    mine = again(table, storage=storage)
    races(storage, lambda: table.alter("SET snapshot.num-retained.min = 7"))
    with pytest.raises(Unavailable, match="down"):
        mine.alter("DROP COLUMN name") if change == "rewrite" else mine.rollback(2)
    assert orphans(table) == []
    assert_whole(table)


# ---------------------------------------------------------------------------------------------------- log retention


class Server:
    """A log's server, as far as it keeps records for a time."""

    def __init__(self) -> None:
        self.kept_ms: int | None = None
        self.fails_after: Exception | None = None

    def __call__(self, *_: Any) -> Server:
        return self

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        """Has nothing to close."""

    def keep_for(self, milliseconds: int | None) -> None:
        self.kept_ms = milliseconds
        error, self.fails_after = self.fails_after, None
        if error is not None:
            raise error


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr(managed_table.log_change, "open_log", made)
    return made


DAY_MS = 86_400_000


def test_two_processes_that_set_one_retention_leave_it_set(store: Store, server: Server) -> None:
    """The slower one took its change back, began again, found nothing to do, and left the former retention."""
    table = make(store, **{"log.retention": "1 d"})
    storage = FaultyStorage(LocalStorage())
    races(storage, lambda: table.alter("SET log.retention = '2 d'"))
    again(table, storage=storage).alter("SET log.retention = '2 d'")
    assert server.kept_ms == 2 * DAY_MS == again(table).definition.options.milliseconds("log.retention")


def test_a_failed_change_of_retention_restores_what_the_table_says_now(store: Store, server: Server) -> None:
    table = make(store, **{"log.retention": "1 d"})
    storage = FaultyStorage(LocalStorage())

    def other_wins() -> None:
        table.alter("SET log.retention = '3 d'", "DROP COLUMN name")

    races(storage, other_wins)
    with pytest.raises(Exception, match="name"):
        again(table, storage=storage).alter("SET log.retention = '2 d'", "ALTER COLUMN name COMMENT 'x'")
    assert server.kept_ms == 3 * DAY_MS


def test_a_retention_that_may_be_changed_is_taken_back(store: Store, server: Server) -> None:
    table = make(store, **{"log.retention": "1 d"})
    server.fails_after = Unavailable("the reply was lost", code="log-unavailable")
    with pytest.raises(Unavailable, match="reply"):
        table.alter("SET log.retention = '2 d'")
    assert server.kept_ms == DAY_MS


# ----------------------------------------------------------------------------------------- races that are lost for good


@pytest.mark.parametrize("operation", ["create_tag", "delete_tag", "expire"])
def test_a_change_of_metadata_that_always_loses_has_lost_too_many_races(store: Store, operation: str) -> None:
    """It ended with the code of its last conflict, so a caller had to know two codes of one outcome."""
    soon = {"snapshot.num-retained.min": "1", "snapshot.time-retained": "0 s"}
    table = make(store, **{"commit.max-retries": "2", **soon})
    for number in range(3):
        put(table, number)
    table.create_tag("first", 1)
    rival, storage, lost = again(table).filestore, FaultyStorage(LocalStorage()), list[int]()

    def propose(base: TableState) -> Proposal:
        domains = {RETENTION_DOMAIN: {"first": first_retained(base)}}
        return Proposal(Operation.EXPIRE, rival.ambient.new_id(), base.version, domains=domains)

    def rival_is_first(call: Call) -> None:
        if call.operation == "write_new" and ENTRY in call.path and not call.done:
            committed = rival.commit_metadata(propose)
            assert committed is not None
            lost.append(committed.snapshot.version)

    loser = again(table, storage=storage)
    storage.hook = rival_is_first
    with pytest.raises(Conflict, match=r"first again and again; .* or raise commit\.max-retries") as caught:
        {
            "create_tag": lambda: loser.create_tag("second", 2),
            "delete_tag": lambda: loser.delete_tag("first"),
            "expire": loser.expire,
        }[operation]()
    assert caught.value.code == "too-many-races"
    assert len(lost) == 3
    assert [tag.name for tag in table.tags()] == ["first"]
    assert first_retained(table.filestore.state()) == 0
