"""Every operation that commits, with a failure at every storage call: an error or a death, before or after its effect.

Whatever happens, the table is whole, the same operation succeeds when it is repeated, every file that no version names
is one that `orphans` finds, and a failed attempt has removed what it could.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from compaction.tombstones import clean_tombstones
from filestore.delta.vectors import vector_file
from filestore.errors import NotFound, TableStoreError, Unavailable
from filestore.life.expiry import expire
from filestore.life.tags import create_tag, delete_tag
from filestore.model.files import DeletionVector
from filestore.operations.fold import fold_table
from filestore.storage import LocalStorage
from managed_table.opened import OpenedTable
from tablestore import Table
from tests.depth import Depth, sampled
from tests.faults import FailAt, FaultyStorage, Killed
from tests.folders import memory_folder
from tests.warehouses import Row, assert_whole, open_in_log, orphans, rows, to_arrow, warehouse

Act = Callable[[Table], object]

FAULTS = {
    "error before": (lambda: Unavailable("injected"), False),
    "error after": (lambda: Unavailable("injected"), True),
    "killed before": (Killed, False),
    "killed after": (Killed, True),
}


def put(table: Table, *values: Row, **how: Any) -> None:
    table.write(to_arrow(table, values), **how)


def some(table: Table, low: int, high: int, v: int) -> None:
    put(table, *({"id": i, "day": f"d{i % 2}", "v": v} for i in range(low, high)))


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
    """

    act: Act
    setup: Act = lambda table: (some(table, 0, 40, 0), some(table, 20, 50, 1))
    options: dict[str, str] = field(default_factory=dict)
    key: tuple[str, ...] = ("id",)
    partitioned: bool = False
    logs: tuple[str, ...] = ("none", "embedded")


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


LATER = {"write-mode": "merge-on-read"}
KEPT = {"snapshot.num-retained.min": "1", "snapshot.time-retained": "0 s", "checkpoint.interval": "2"}
OLD = {"partition.expiration-time": "1 d", "partition.timestamp-pattern": "$day"}

OPERATIONS = {
    "upsert": Operation(lambda table: some(table, 30, 60, 2)),
    "delete": Operation(lambda table: put(table, *({"id": i, "_kind": "-D"} for i in range(25)))),
    "upsert with change data": Operation(
        lambda table: some(table, 30, 60, 2), options={"changelog-producer": "lookup"}
    ),
    "upsert to an eventual log": Operation(
        lambda table: some(table, 30, 60, 2), options={"log.consistency": "eventual"}, logs=("embedded",)
    ),
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
        lambda table: put(table, {"id": 1, "day": "2020-01-01", "v": 1}, {"id": 2, "day": "2999-01-01", "v": 1}),
        OLD,
        ("id", "day"),
        partitioned=True,
    ),
    "fold": Operation(lambda table: fold_table(table.filestore, full=True), three_versions, LATER, logs=("none",)),
    "fold of merged values": Operation(
        lambda table: fold_table(table.filestore, full=True),
        three_versions,
        LATER
        | {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "fields.day.aggregate-function": "max"},
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
        lambda table: table.alter("ALTER COLUMN v TYPE BIGINT"),
        options={"schema.evolution-mode": "rewrite"} | LATER,
    ),
    "rollback": Operation(lambda table: table.rollback(1), three_versions),
    "rollback with change data": Operation(
        lambda table: table.rollback(1), three_versions, {"changelog-producer": "lookup"}
    ),
    "rollback over pending runs": Operation(lambda table: table.rollback(2), three_versions, LATER),
}
CASES = [(name, log, fault) for name, how in OPERATIONS.items() for log in how.logs for fault in FAULTS]


@pytest.mark.parametrize(("name", "log", "fault"), sampled(CASES, fast=12, names=3))
@pytest.mark.timeout(1800)
def test_an_operation_that_fails_anywhere(name: str, log: str, fault: str, depth: Depth) -> None:
    operation = OPERATIONS[name]
    make_error, after = FAULTS[fault]
    with made(operation, log) as template, memory_folder() as folder:
        before = rows(template)
        expected, calls = undisturbed(template, operation, folder, after)
        for number in depth.sample(range(1, calls + 1), 4 if depth is Depth.FAST else 6):
            disturbed(
                template, operation, folder / str(number), FailAt(number, make_error(), after), [before, expected]
            )


@contextmanager
def made(operation: Operation, log: str) -> Iterator[Table]:
    """The table before the operation."""
    key = operation.key
    with warehouse() as store:
        table = store.create_table(
            "shop.t",
            f"id INT{' NOT NULL' if key else ''}, day {'STRING NOT NULL' if 'day' in key else 'STRING'}, v INT",
            primary_key=list(key),
            partition_by=["day"] if operation.partitioned else [],
            options={"bucket": "2", "log.system": log, **operation.options},
        )
        operation.setup(table)
        yield table


def opened(template: Table, location: Path, storage: Any) -> Table:
    """The table in another folder, as a process has it that knows nothing yet."""
    identity = replace(template.opened.identity, location=str(location))
    return Table(OpenedTable(identity, storage, template.opened.ambient))


def undisturbed(template: Table, operation: Operation, folder: Path, after: bool) -> tuple[list[Row], int]:
    """The rows after the operation, and how many storage calls it makes."""
    location = folder / "undisturbed"
    shutil.copytree(template.location, location)
    count = FailAt(1 << 30, Unavailable("never"), after)
    operation.act(opened(template, location, FaultyStorage(LocalStorage(), count)))
    return rows(opened(template, location, LocalStorage())), count.seen


def disturbed(template: Table, operation: Operation, location: Path, fault: FailAt, allowed: list[list[Row]]) -> None:
    shutil.copytree(template.location, location)
    failed = Calls(fault)
    storage = FaultyStorage(LocalStorage(), failed)
    try:
        operation.act(opened(template, location, storage))
    except (Killed, TableStoreError):
        assert fault.fired
    table = opened(template, location, LocalStorage())
    assert assert_whole(table) in allowed
    assert unlisted(table) == set()
    if not isinstance(fault.error, Killed) and failed.operation != "delete":
        assert orphans(table) == [], f"left behind after a failed {failed.operation} of {failed.path}"
    operation.act(table)
    assert assert_whole(table) == allowed[-1]
    assert unlisted(table) == set()
    table.recover()  # a repetition that finds nothing left to do, as of a drop, leaves the log to the next writer
    assert open_in_log(table) == []
    table.remove_orphans(timedelta(0), dry_run=False)
    assert orphans(table) == []
    assert assert_whole(table) == allowed[-1]
    shutil.rmtree(location)


class Calls:
    """Says at which call the fault was."""

    def __init__(self, fault: FailAt) -> None:
        self._fault = fault
        self.operation = self.path = ""

    def __call__(self, call: Any) -> None:
        before = self._fault.fired
        try:
            self._fault(call)
        finally:
            if self._fault.fired and not before:
                self.operation, self.path = call.operation, call.path


def unlisted(table: Table) -> set[str]:
    """Files that no log entry names and that `orphans` does not list."""
    listed = {finding.path for finding in table.examine().findings if finding.code == "orphan"}
    stored = {str(path.relative_to(table.location)) for path in Path(table.location).rglob("*") if path.is_file()}
    data = {path for path in stored if not path.startswith(("_delta_log/", "_log/", "_consumers/"))}
    return data - set(_named(table)) - listed


def _named(table: Table) -> Iterator[str]:
    """What log entries name, and what the newest version has from entries that have expired."""
    for file in table.filestore.state().files.values():
        yield file.path
        if file.vector is not None:
            yield vector_file(file.vector)
    log = table.filestore.log
    for entry in (log.commit(version) for version in log.versions()):
        for action in () if entry is None else entry.actions:
            for file in (action[kind] for kind in ("add", "remove", "cdc") if kind in action):
                yield file["path"]
                if vector := file.get("deletionVector"):
                    yield vector_file(DeletionVector(vector["storageType"], vector["pathOrInlineDv"], 0, 0, 0))
            if "domainMetadata" in action:
                yield str(json.loads(action["domainMetadata"]["configuration"]).get("path", ""))
