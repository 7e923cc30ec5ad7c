"""The log of a table is restored from a backup that is older than the table: right or refused, and nothing is lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from compaction.log_trim import trim_log
from filestore.checks.report import Invariant
from filestore.errors import Corrupt, NotFound
from tablestore import Store, Table
from tablestore.following.gaps import truncates
from tests.depth import Depth
from tests.opened import again
from tests.servers.kafka import KafkaBroker
from tests.warehouses import Row, changes, replay, rows, warehouse

EVENTUAL = {"log.consistency": "eventual"}
BOTH = pytest.mark.parametrize("options", [{}, EVENTUAL], ids=["transactional", "eventual"])
STEPS: list[Callable[[Table], object]] = [
    lambda table: table.write([{"id": n, "v": "a"} for n in range(4)]),
    lambda table: table.write([{"id": 0, "v": "b"}]),
    lambda table: table.write([{"id": 1, "_kind": "-D"}, {"id": 5, "v": "c", "_kind": "+U"}]),
    lambda table: table.write([{"id": n, "v": "d"} for n in range(3)], overwrite=True),
    lambda table: table.compact(full=True),
    lambda table: table.rollback(2),
]
WRITES: list[Callable[[Table], object]] = [
    lambda table: table.write([{"id": 9, "v": "new"}]),
    lambda table: table.write([{"id": 2, "_kind": "-D"}]),
    lambda table: table.write([{"id": 9, "v": "new"}], overwrite=True),
    lambda table: table.write([{"id": 9, "v": "new"}], app=("job", 1)),
    lambda table: table.rollback(3),
    lambda table: table.recover(),
]
CARE: list[Callable[[Table], object]] = [
    lambda table: table.compact(full=True),
    lambda table: table.maintain(),
    lambda table: table.remove_orphans(timedelta(0), dry_run=False, even_young=True),
    lambda table: table.create_tag("kept"),
    lambda table: trim_log(table.opened),
    lambda table: table.alter("SET TBLPROPERTIES ('log.retention' = '1 ms')"),
]


@dataclass(frozen=True)
class Restored:
    """A table whose log is that of an earlier version.

    Attributes:
        table: The table, opened anew.
        writer: A process that has written to it, and has compared the log then.
        behind: Whether later versions had records in the log.
    """

    table: Table
    writer: Table
    behind: bool


def log_of(table: Table) -> Path:
    return Path(table.location) / "_log"


@contextmanager
def restored(step: int, options: dict[str, str]) -> Iterator[Restored]:
    """The log is copied before a step, and the copy takes its place after the last one."""
    with warehouse() as store:
        made = store.create_table(
            "shop.t", "id BIGINT, v STRING", primary_key=["id"], options={"bucket": "2", **options}
        )
        assert isinstance(made, Table)
        backup, before = Path(made.location).parent / "backup", made.filestore.state().log.offsets
        for number, do in enumerate(STEPS):
            if number == step:
                shutil.copytree(log_of(made), backup)
                before = made.filestore.state().log.offsets
            do(made)
        shutil.rmtree(log_of(made))
        backup.rename(log_of(made))
        yield Restored(again(made), made, before != made.filestore.state().log.offsets)


def read_on(table: Table, version: int, **how: Any) -> list[Row]:
    """The rows of a reader that had those of a version, and goes on to the newest one."""
    known = [{**row, "_kind": "+I"} for row in rows(table, version)]
    for batch in table.follow(version=version, stop=table.filestore.state().version, **how):
        known = [] if truncates(batch) else known
        known += batch.to_pylist()
    return replay(known, ["id"])


def ends(table: Table) -> dict[int, int]:
    return {bucket: status.end for bucket, status in table.log_status().items()}


def right_or_gap(table: Table) -> None:
    """Each reader from each version, with each way to read."""
    found, newest = rows(table), table.filestore.state().version
    ways: list[dict[str, Any]] = [{}, {"mode": "changelog"}, {"on_log_gap": "rescan"}]
    for version in range(newest + 1):
        for how in ways:
            try:
                assert read_on(table, version, **how) == found, (version, how)
            except NotFound as error:
                assert error.code == "log-gap", (version, how)
    reads: list[Callable[[], list[Row]]] = [lambda: replay(changes(table), ["id"])]
    if table.definition.options["log.consistency"] == "eventual":
        reads.append(lambda: sorted(table.scan(fresh=True).to_pylist(), key=lambda row: int(row["id"])))
    for read in reads:
        try:
            assert read() == found
        except NotFound as error:
            assert error.code == "log-gap"


@BOTH
def test_a_log_that_is_older_than_the_table_is_a_lost_one(options: dict[str, str], depth: Depth) -> None:
    for step in depth.sample(range(len(STEPS)), 1):
        with restored(step, options) as made:
            table, found, version = made.table, rows(made.table), made.table.filestore.state().version
            assert made.behind
            report = table.examine()
            assert not report.healthy and [f.code for f in report.problems] == [Invariant.LOG_DAMAGED]
            right_or_gap(table)
            ended = ends(table)
            for write in WRITES:
                for writer in (again(table), made.writer):
                    with pytest.raises(Corrupt, match=r"older than the table.*`tablestore new-log`") as caught:
                        write(writer)
                    assert caught.value.code == "log-behind"
            assert (rows(again(table)), table.filestore.state().version) == (found, version)
            assert ends(table) == ended, "they would hide what is lost"
            for care in CARE:
                care(again(table))
            assert rows(table) == found
            right_or_gap(table)
            begun = table.new_log()
            assert begun is not None and table.new_log() is None
            for writer in (again(table), made.writer):
                writer.write([{"id": 7, "v": "later"}])
            assert read_on(table, begun.version - 1, on_log_gap="rescan") == rows(table)
            right_or_gap(table)
            assert [f for f in table.examine().findings if f.code is not Invariant.ORPHAN] == []


@pytest.mark.deep
@pytest.mark.kafka
@pytest.mark.slow
def test_brokers_that_are_restored_from_a_backup(store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The topics have their ids, and end before what versions cover."""
    monkeypatch.setattr("tablestore.recovering.recovery._COMPARE_AGAIN_MS", 0)  # a restart may be fast
    broker = KafkaBroker(folder / "broker").start()
    kafka = {"log.system": "kafka", "log.kafka.bootstrap.servers": broker.bootstrap}
    tables = []
    for number, options in enumerate([{}, EVENTUAL]):
        made = store.create_table(
            f"shop.t{number}", "id BIGINT, v STRING", primary_key=["id"], options={**kafka, **options}
        )
        assert isinstance(made, Table)
        STEPS[0](made)
        tables.append(made)
    broker.stop()
    shutil.copytree(broker.folder, folder / "backup")
    broker.start()
    for made in tables:
        STEPS[1](made)
        STEPS[2](made)
    broker.stop()
    shutil.rmtree(broker.folder)
    (folder / "backup").rename(broker.folder)
    broker.start()
    for made in tables:
        found, version = rows(made), made.filestore.state().version
        for writer in (again(made), made):
            with pytest.raises(Corrupt) as caught:
                writer.write([{"id": 9, "v": "new"}])
            assert caught.value.code == "log-behind"
        assert (rows(made), made.filestore.state().version) == (found, version)
        assert [f.code for f in made.examine().problems] == [Invariant.LOG_DAMAGED]
        right_or_gap(made)
        begun = made.new_log()
        assert begun is not None and made.new_log() is None
        for writer in (again(made), made):
            writer.write([{"id": 7, "v": "later"}])
        assert read_on(made, begun.version - 1, on_log_gap="rescan") == rows(made)
        right_or_gap(made)
        assert [f for f in made.examine().findings if f.code is not Invariant.ORPHAN] == []
    broker.kill()
