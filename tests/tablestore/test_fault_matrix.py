"""Every operation that commits, with a failure at the calls of the storage and of the log, one after the other.

A failure is an error before or after the call's effect, an error after which nothing can be removed, or a death after
the effect: a death before a call leaves what a death after the call before it leaves. A call that only reads has no
effect. Some operations lose a race against a rival on the way.

Whatever happens, the table is whole, the same operation succeeds when it is repeated, every file that no version names
is one that `orphans` finds, and a failed attempt has removed what it could.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import tablestore.recovering.recovery
from compaction.tombstones import clean_tombstones
from filestore.ambient import Ambient, system_ambient
from filestore.delta.vectors import vector_file
from filestore.errors import CommitUnknown, NotFound, TableStoreError, Unavailable
from filestore.life.expiry import expire
from filestore.life.tags import create_tag, delete_tag
from filestore.model.files import DeletionVector
from filestore.operations.fold import fold_table
from filestore.storage.interface import Storage
from filestore.storage.local import LocalStorage
from log.table.systems import open_log
from managed_table.opened import OpenedTable
from tablestore import Table
from tests.depth import Depth
from tests.faults import Call, FailAt, FaultyStorage, Killed, faulty_logs
from tests.folders import memory_folder
from tests.opened import again
from tests.tables import Clock, assert_healthy, seeded
from tests.warehouses import Row, assert_same_rows, open_in_log, rows, to_arrow, warehouse

Act = Callable[[Table], object]


@dataclass(slots=True)
class Failure(FailAt):
    """Notes which call fails; then, if nothing can be removed any more, every deletion fails, too.

    Only calls that have an effect fail after it.
    """

    keeps: bool = False
    failed: str = ""

    def __call__(self, call: Call) -> None:
        if self.fired and self.keeps and call.operation == "delete" and not call.done:
            raise Unavailable("injected: nothing can be removed")
        if self.after and call.only_reads and not self.fired:
            return
        before = self.fired
        try:
            FailAt.__call__(self, call)
        finally:
            if self.fired and not before:
                self.failed = f"{call.operation} {call.path}"

    @property
    def leaves_files(self) -> bool:
        """Whether the attempt cannot remove what it has written."""
        return self.keeps or isinstance(self.error, Killed) or self.failed.startswith("delete ")


@dataclass(frozen=True)
class Fault:
    """A kind of failure.

    Attributes:
        error: What it raises.
        after: Whether the call has its effect first.
        keeps: Whether nothing can be removed afterwards.
    """

    error: Callable[[], BaseException]
    after: bool
    keeps: bool = False

    @property
    def kills(self) -> bool:
        """Whether the process is dead from then on."""
        return self.error is Killed

    def at(self, number: int) -> Failure:
        return Failure(number, self.error(), self.after, keeps=self.keeps)


def unavailable() -> Unavailable:
    return Unavailable("injected")


FAULTS = {
    "error before": Fault(unavailable, after=False),
    "error after": Fault(unavailable, after=True),
    "error, then no clean-up": Fault(unavailable, after=False, keeps=True),
    "killed": Fault(Killed, after=True),
}


def put(table: Table, *values: Row, **how: Any) -> None:
    table.write(to_arrow(table, values), **how)


def some(table: Table, low: int, high: int, v: int, **how: Any) -> None:
    put(table, *({"id": i, "day": f"d{i % 2}", "v": v} for i in range(low, high)), **how)


def delete(table: Table, low: int, high: int) -> None:
    put(table, *({"id": i, "day": f"d{i % 2}", "_kind": "-D"} for i in range(low, high)))


@dataclass(frozen=True)
class Operation:
    """What is done to a table, and how it was made.

    Attributes:
        act: The operation; a repetition after a success must change no row.
        setup: Puts the rows that it works on.
        options: Of the table.
        key: Its primary key.
        partitioned: By ``day``.
        logs: The log systems that the operation can differ by.
        rival: What another process commits right before the operation's first commit.
        log_is_whole: Whether the log still has the records of all versions.
    """

    act: Act
    setup: Act = lambda table: (some(table, 0, 40, 0), some(table, 20, 50, 1))
    options: dict[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ("id",)
    partitioned: bool = False
    logs: tuple[str, ...] = ("none", "embedded")
    rival: Act | None = None
    log_is_whole: bool = True


def three_versions(table: Table) -> None:
    for v in range(3):
        some(table, 10 * v, 10 * v + 20, v)


def deletes(table: Table) -> None:
    three_versions(table)
    for i in range(4):
        put(table, {"id": i, "v": 9, "_kind": "-D"})


def tagged(table: Table) -> None:
    three_versions(table)
    create_tag(table.filestore, "kept", 1)


def untag(table: Table) -> None:
    try:
        delete_tag(table.filestore, "kept")
    except NotFound as error:
        assert error.code == "no-such-tag"


def dying_writers(table: Table) -> None:
    """One dies before its commit, and one after it; both leave an open log transaction."""
    three_versions(table)
    for at in (False, True):
        storage = FaultyStorage(LocalStorage(), FailAt(1, Killed(), at, "write_new", "_delta_log/"))
        with pytest.raises(Killed):
            some(again(table, storage=storage), 15, 25, 8)


def lost_records(table: Table) -> None:
    """The log loses a transaction of a version before it was ended."""
    three_versions(table)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tablestore.recovering.recovery.Recovery, "commit_transactions", lambda *_: None)
        some(again(table), 15, 35, 8)
    config = table.opened.log_config()
    assert config is not None
    with open_log(config, system_ambient()) as opened:
        assert opened.abort_unnamed(lambda ids: ids)


def lost_log(table: Table) -> None:
    """The log is gone, with the records of all versions."""
    three_versions(table)
    shutil.rmtree(Path(table.location) / "_log")


def half_folded(table: Table) -> None:
    three_versions(table)
    table.compact(full=True)
    some(table, 20, 50, 4)


def without_a_column(table: Table) -> None:
    if "day" in table.schema.names:
        table.alter("DROP COLUMN day")


def old_partition(table: Table) -> None:
    """Partitions expire from now on: if they did before, the first write would have dropped them."""
    put(table, {"id": 1, "day": "2020-01-01", "v": 1}, {"id": 2, "day": "2999-01-01", "v": 1})
    table.alter("SET partition.expiration-time = '1 d'")


LATER = {"write-mode": "merge-on-read"}
KEPT = {"snapshot.num-retained.min": "1", "snapshot.time-retained": "0 s", "checkpoint.interval": "2"}
EVENTUAL = {"log.consistency": "eventual"}
SUMS = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "fields.day.aggregate-function": "max"}

OPERATIONS = {
    "upsert": Operation(lambda table: some(table, 30, 60, 2)),
    "delete": Operation(lambda table: put(table, *({"id": i, "_kind": "-D"} for i in range(25)))),
    "upsert with change data": Operation(
        lambda table: some(table, 30, 60, 2), options={"changelog-producer": "lookup"}
    ),
    "upsert to an eventual log": Operation(lambda table: some(table, 30, 60, 2), options=EVENTUAL, logs=("embedded",)),
    "insert without a key": Operation(
        lambda table: put(table, {"id": 1, "v": 1}, app=("job", 1)), lambda table: some(table, 0, 20, 0), key=()
    ),
    "upsert of pending runs": Operation(lambda table: some(table, 30, 60, 2), options=LATER),
    "overwrite": Operation(lambda table: put(table, {"id": 1, "v": 1}, overwrite=True)),
    "overwrite with change data": Operation(
        lambda table: put(table, {"id": 1, "v": 1}, overwrite=True), options={"changelog-producer": "lookup"}
    ),
    "overwrite of some partitions": Operation(
        lambda table: put(table, {"id": 1, "day": "d1", "v": 1}, overwrite="dynamic"),
        key=("id", "day"),
        partitioned=True,
    ),
    "drop of a partition": Operation(
        lambda table: table.drop_partitions([{"day": "d1"}]), key=("id", "day"), partitioned=True
    ),
    "expiry of partitions": Operation(
        lambda table: table.expire_partitions(),
        old_partition,
        {"partition.timestamp-pattern": "$day"},
        ("id", "day"),
        partitioned=True,
    ),
    "fold": Operation(lambda table: fold_table(table.filestore, full=True), three_versions, LATER, logs=("none",)),
    "fold of merged values": Operation(
        lambda table: fold_table(table.filestore, full=True),
        three_versions,
        LATER | SUMS,
        logs=("none",),
    ),
    "compaction": Operation(lambda table: table.compact(full=True), three_versions, logs=("none",)),
    "clean-up of tombstones": Operation(
        lambda table: clean_tombstones(table.filestore),
        deletes,
        {"sequence.field": "v", "num-sorted-run.compaction-trigger": "3"},
        logs=("none",),
    ),
    "tag": Operation(lambda table: create_tag(table.filestore, "now", 1), logs=("none",)),
    "removal of a tag": Operation(untag, tagged, logs=("none",)),
    "expiry of versions": Operation(lambda table: expire(table.filestore), three_versions, KEPT, logs=("none",)),
    "change of an option": Operation(lambda table: table.alter("SET snapshot.num-retained.min = 3")),
    "change of a column": Operation(
        lambda table: table.alter("ALTER COLUMN v TYPE BIGINT"), options={"schema.evolution-mode": "rewrite"}
    ),
    "change of a column over pending runs": Operation(
        without_a_column, half_folded, {"schema.evolution-mode": "rewrite"} | LATER
    ),
    "rollback": Operation(lambda table: table.rollback(1), three_versions),
    "rollback with change data": Operation(
        lambda table: table.rollback(1), three_versions, {"changelog-producer": "lookup"}
    ),
    "rollback over pending runs": Operation(lambda table: table.rollback(2), three_versions, LATER),
    "compaction of a merge-on-read table": Operation(
        lambda table: table.compact(full=True), three_versions, LATER, logs=("none",)
    ),
    "compaction in a writer": Operation(
        lambda table: (some(table, 30, 60, 2), table.in_writer.close()),
        three_versions,
        {"compaction.in-writer": "true", "num-sorted-run.compaction-trigger": "2"},
    ),
    "overwrite in an eventual log": Operation(
        lambda table: put(table, {"id": 1, "v": 1}, overwrite=True), options=EVENTUAL, logs=("embedded",)
    ),
    "rollback in an eventual log": Operation(
        lambda table: table.rollback(1), three_versions, EVENTUAL, logs=("embedded",)
    ),
    "recovery": Operation(lambda table: table.recover(), dying_writers, logs=("embedded",)),
    "recovery of an eventual log": Operation(
        lambda table: table.recover(), dying_writers, EVENTUAL, logs=("embedded",)
    ),
    "write after dead writers": Operation(lambda table: some(table, 30, 60, 2), dying_writers, logs=("embedded",)),
    "republication": Operation(lambda table: table.recover(), lost_records, logs=("embedded",), log_is_whole=False),
    "new log": Operation(
        lambda table: table.new_log(), lost_log, logs=("embedded",), log_is_whole=False, options=EVENTUAL
    ),
    "new log in a race": Operation(
        lambda table: table.new_log(),
        lost_log,
        logs=("embedded",),
        log_is_whole=False,
        rival=lambda table: table.new_log(),
    ),
    "write after a republication": Operation(
        lambda table: some(table, 30, 60, 2), lost_records, logs=("embedded",), log_is_whole=False
    ),
    # ------------------------------------------------------------------------------------------------- lost races
    "upsert in a race": Operation(lambda table: some(table, 30, 60, 2), rival=lambda table: some(table, 45, 70, 3)),
    "upsert to an eventual log in a race": Operation(
        lambda table: some(table, 30, 60, 2),
        options=EVENTUAL,
        logs=("embedded",),
        rival=lambda table: some(table, 45, 70, 3),
    ),
    "upsert with change data in a race": Operation(
        lambda table: some(table, 30, 60, 2),
        options={"changelog-producer": "lookup"},
        rival=lambda table: some(table, 45, 70, 3),
    ),
    "upsert of summed values in a race": Operation(
        lambda table: some(table, 30, 60, 2, app=("job", 1)),
        options=SUMS,
        rival=lambda table: some(table, 45, 70, 3),
    ),
    "insert in a race with itself": Operation(
        lambda table: put(table, {"id": 1, "v": 1}, app=("job", 1)),
        lambda table: some(table, 0, 20, 0),
        key=(),
        rival=lambda table: put(table, {"id": 1, "v": 1}, app=("job", 1)),
    ),
    "upsert against a change of the table": Operation(
        lambda table: some(table, 30, 60, 2), rival=lambda table: table.alter("SET snapshot.num-retained.min = 3")
    ),
    "overwrite with change data in a race": Operation(
        lambda table: put(table, {"id": 1, "v": 1}, overwrite=True),
        options={"changelog-producer": "lookup"},
        rival=lambda table: some(table, 45, 70, 3),
    ),
    "drop of a partition in a race": Operation(
        lambda table: table.drop_partitions([{"day": "d1"}]),
        options={"changelog-producer": "lookup"},
        key=("id", "day"),
        partitioned=True,
        rival=lambda table: some(table, 45, 70, 3),
    ),
    "fold against another fold": Operation(
        lambda table: fold_table(table.filestore, full=True),
        three_versions,
        LATER,
        logs=("none",),
        rival=lambda table: fold_table(table.filestore, full=True),
    ),
    "compaction in a race": Operation(
        lambda table: table.compact(full=True), three_versions, logs=("none",), rival=lambda table: delete(table, 5, 15)
    ),
    "clean-up of tombstones against another": Operation(
        lambda table: clean_tombstones(table.filestore),
        deletes,
        {"sequence.field": "v", "num-sorted-run.compaction-trigger": "3"},
        logs=("none",),
        rival=lambda table: clean_tombstones(table.filestore),
    ),
    "tag in a race": Operation(
        lambda table: create_tag(table.filestore, "now", 1),
        logs=("none",),
        rival=lambda table: create_tag(table.filestore, "other", 1),
    ),
    "expiry of versions in a race": Operation(
        lambda table: expire(table.filestore),
        three_versions,
        KEPT,
        logs=("none",),
        rival=lambda table: some(table, 5, 9, 5),
    ),
    "change of a column in a race": Operation(
        lambda table: table.alter("ALTER COLUMN v TYPE BIGINT"),
        options={"schema.evolution-mode": "rewrite"},
        rival=lambda table: (some(table, 45, 70, 3), delete(table, 0, 5)),
    ),
    "change of a column against another change": Operation(
        lambda table: table.alter("ALTER COLUMN v TYPE BIGINT"),
        options={"schema.evolution-mode": "rewrite"},
        rival=lambda table: table.alter("SET snapshot.num-retained.min = 3"),
    ),
    "rollback in a race": Operation(
        lambda table: table.rollback(1), three_versions, rival=lambda table: some(table, 45, 70, 3)
    ),
    "rollback with change data in a race": Operation(
        lambda table: table.rollback(1),
        three_versions,
        {"changelog-producer": "lookup"},
        rival=lambda table: some(table, 45, 70, 3),
    ),
    "rollback over pending runs in a race": Operation(
        lambda table: table.rollback(2), three_versions, LATER, rival=lambda table: some(table, 45, 70, 3)
    ),
}
CASES = [(name, log, fault) for name, how in OPERATIONS.items() for log in how.logs for fault in FAULTS]


def chosen() -> list[Any]:
    """All cases. ``make test`` runs one of each operation, the faults in turn, and ``make test-fast`` two of these."""
    found = []
    for place, name in enumerate(OPERATIONS):
        cases = [case for case in CASES if case[0] == name]
        mine = place % len(cases)
        for number, case in enumerate(cases):
            marks = [pytest.mark.slow] * (number != mine or place not in (0, 20)) + [pytest.mark.deep] * (
                number != mine
            )
            found.append(pytest.param(*case, marks=marks))
    return found


@pytest.mark.few(4)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "log", "fault"), chosen())
@pytest.mark.timeout(1800)
def test_an_operation_that_fails_anywhere(name: str, log: str, fault: str, depth: Depth) -> None:
    with made(OPERATIONS[name], log) as template, memory_folder() as folder:
        matrix = Matrix(OPERATIONS[name], template, folder, FAULTS[fault])
        calls = range(1, matrix.calls() + 1)
        chosen = depth.sample(calls, 3 if depth is Depth.FAST else 4, deep=6 if FAULTS[fault].keeps else 2)
        for place, number in enumerate(chosen):
            matrix.fail_at(number, by_all=depth is not Depth.DEEP or place % 4 == 0)


@contextmanager
def made(operation: Operation, log: str) -> Iterator[Table]:
    """The table before the operation."""
    key = operation.key
    with warehouse() as store:
        store.create_table(
            "shop.t",
            f"id INT{' NOT NULL' if key else ''}, day {'STRING NOT NULL' if 'day' in key else 'STRING'}, v INT",
            primary_key=list(key),
            partition_by=["day"] if operation.partitioned else [],
            options={"bucket": "2", "log.system": log, **operation.options},
        )
        table = store.table("shop.t")
        operation.setup(table)
        table.in_writer.close()  # a copy in the middle of a compaction lacks files that it names
        yield table


@dataclass(frozen=True)
class Seen:
    """A folder's state that was checked, with all that may be done from there."""

    rows: list[Row]
    orphans: list[str]


class Rival:
    """Another process commits right before the operation's first commit."""

    def __init__(self, run: Callable[[], object], fault: Failure) -> None:
        self._run = run
        self._fault = fault
        self._running = False
        self.ran = False

    def __call__(self, call: Call) -> None:
        if self._running:
            return  # its own calls
        if not self.ran and not call.done and call.operation == "write_new" and "_delta_log/" in call.path:
            self._running = True
            self._run()
            self._running, self.ran = False, True
        self._fault(call)


class Matrix:
    """Runs an operation with a fault at one call after the other.

    Clock and ids are the same in each run. So many faults leave the same files, byte by byte, as most errors of reads
    do. What follows from there is the same, too, and is checked for the first of them only.
    """

    def __init__(self, operation: Operation, template: Table, folder: Path, fault: Fault) -> None:
        self._operation = operation
        self._template = template
        self._folder = folder
        self._fault = fault
        self._now_ms = system_ambient().now_ms()
        self._before = rows(template)
        self._orphans = {f.path for f in template.examine().findings if f.code == "orphan"}
        self._seen: dict[Any, Seen] = {}
        self._allowed: list[list[Row]] = []

    def calls(self) -> int:
        """Runs the operation without a fault, and returns how many calls it makes."""
        location = self._copy("undisturbed")
        count = self._fault.at(1 << 30)
        self._act(location, count)
        expected = rows(self._opened(location))
        rivals = [] if self._operation.rival is None else [self._rows_after_the_rival()]
        self._allowed = [self._before, *rivals, expected]
        return count.seen

    def _rows_after_the_rival(self) -> list[Row]:
        assert self._operation.rival is not None
        table = self._opened(self._copy("rival"))
        self._operation.rival(table)
        return rows(table)

    def fail_at(self, number: int, *, by_all: bool) -> None:
        """Runs the operation with a fault at that call, and then once more without.

        Args:
            number: The number of the call, from 1.
            by_all: Whether all readers read the table, the log's among them, and the doctor examines it before it is
                recovered; otherwise ours alone does until then, and ours and the log's at the end.
        """
        location = self._copy(str(number))
        fault = self._fault.at(number)
        rival_ran, unknown = self._act(location, fault)
        key = contents(location), rival_ran, unknown
        if key not in self._seen:
            self._seen[key] = self._checked(location, rival_ran, unknown=unknown, by_all=by_all)
        if not fault.leaves_files and not unknown:
            left = set(self._seen[key].orphans) - self._orphans
            assert left == set(), f"left behind after a failed {fault.failed}"
        shutil.rmtree(location)

    def _act(self, location: Path, fault: Failure) -> tuple[bool, bool]:
        """Runs the operation; returns whether its rival has committed, and whether the outcome of a commit is unknown.

        That may be a commit on which the operation builds, such as a fold: the error says that the operation itself
        has changed nothing, but the files of the fold stay.
        """
        unknown = False
        rival = Rival(lambda: self._rival(location), fault)
        storage = FaultyStorage(LocalStorage(), fault if self._operation.rival is None else rival)
        try:
            with faulty_logs(storage):
                self._operation.act(self._opened(location, storage, self._ambient(1)))
        except (Killed, TableStoreError) as error:
            assert fault.fired
            unknown = isinstance(error, CommitUnknown) or isinstance(error.__cause__, CommitUnknown)
        return rival.ran, unknown

    def _checked(self, location: Path, rival_ran: bool, *, unknown: bool, by_all: bool) -> Seen:
        strays = "log.consistency" in self._operation.options and (unknown or self._fault.kills)
        found = self._whole(location, log=by_all and not strays, others=by_all)
        if self._operation.rival is not None and not rival_ran:
            self._rival(location)
        self._operation.act(self._opened(location, ambient=self._ambient(2)))
        table = self._opened(location)
        found_again = self._whole(location, log=True, others=True).rows if by_all else rows(table)
        assert found_again == self._allowed[-1]
        table.recover()  # a repetition that finds nothing left to do, as of a drop, leaves the log to the next writer
        assert open_in_log(table) == []
        table.remove_orphans(timedelta(0), dry_run=False, even_young=True)
        assert self._whole(location, log=True, others=by_all) == Seen(self._allowed[-1], [])
        return found

    def _whole(self, location: Path, *, log: bool, others: bool) -> Seen:
        """The doctor finds no problem, readers see the same allowed rows, and `orphans` lists what nothing names.

        Args:
            location: The table.
            log: Whether the log is read. An eventual log may have records of a dead writer, or of one whose outcome is
                unknown, that nobody has repaired yet.
            others: Whether polars and delta-rs read the table.
        """
        table = self._opened(location)
        found = assert_same_rows(table, log=log and self._operation.log_is_whole, others=others)
        report = assert_healthy(table.filestore)
        assert found in self._allowed
        listed = {finding.path for finding in report.findings if finding.code == "orphan"}
        stored = {str(path.relative_to(location)) for path in location.rglob("*") if path.is_file()}
        data = {path for path in stored if not path.startswith(("_delta_log/", "_log/", "_consumers/"))}
        assert data - set(_named(table)) - listed == set()
        return Seen(found, sorted(listed))

    def _rival(self, location: Path) -> None:
        assert self._operation.rival is not None
        self._operation.rival(self._opened(location, ambient=self._ambient(3)))

    def _copy(self, name: str) -> Path:
        location = self._folder / name
        shutil.copytree(self._template.location, location)
        return location

    def _opened(self, location: Path, storage: Storage | None = None, ambient: Ambient | None = None) -> Table:
        """The table in that folder, as a process has it that knows nothing yet."""
        identity = replace(self._template.opened.identity, location=str(location))
        return Table(OpenedTable(identity, storage or LocalStorage(), ambient or system_ambient()))

    def _ambient(self, seed: int) -> Ambient:
        return seeded(seed, Clock(self._now_ms))


def contents(location: Path) -> frozenset[tuple[str, Any]]:
    """All files, byte by byte, and the rows of SQLite's files, which have no bytes of their own for a state."""
    found: set[tuple[str, Any]] = set()
    for path in location.rglob("*"):
        name = str(path.relative_to(location))
        if path.suffix == ".sqlite":
            with closing(sqlite3.connect(path)) as connection:
                found.add((name, hash(tuple(connection.iterdump()))))
        elif path.is_file() and not name.endswith(("-wal", "-shm")):
            found.add((name, path.read_bytes()))
    return frozenset(found)


def _named(table: Table) -> Iterator[str]:
    """What log entries name, and what the newest version has from entries that have expired."""
    for file in table.filestore.state().files:
        yield file.path
        if file.vector is not None:
            yield vector_file(file.vector)
    log = table.filestore.delta_log
    for entry in (log.read_entry(version) for version in log.versions()):
        for action in () if entry is None else entry.actions:
            for file in (action[kind] for kind in ("add", "remove", "cdc") if kind in action):
                yield file["path"]
                if vector := file.get("deletionVector"):
                    yield vector_file(DeletionVector(vector["storageType"], vector["pathOrInlineDv"], 0, 0, 0))
            if "domainMetadata" in action:
                yield str(json.loads(action["domainMetadata"]["configuration"]).get("path", ""))
