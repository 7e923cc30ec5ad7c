"""Tags, consumers, expiry and orphans of `Table`, while readers run (fault test 13)."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from compaction.compact import compact_slots, compact_table
from filestore.errors import Conflict, InvalidRequest, NotFound, TableStoreError
from filestore.files.writer import TableFiles
from filestore.operations.fold import fold_slots, fold_table
from filestore.storage.local import LocalStorage
from tablestore import Store, Table
from tablestore.writing.write_job import TaskOutcome, WriteJob
from tests.tables import in_order
from tests.warehouses import assert_whole, changes, orphans, rows, to_arrow
from tests.writers import sorted_batches

LIFE = {
    "bucket": "2",
    "row-group.rows": "1024",
    "checkpoint.interval": "3",
    "snapshot.num-retained.min": "2",
    "snapshot.time-retained": "0 ms",
}
Rows = list[dict[str, Any]]


@pytest.fixture
def table(store: Store) -> Table:
    return store.create_table("shop.t", "id BIGINT, v INT", primary_key=["id"], options=LIFE)


def put(table: Table, *keys: int, value: int = 0, overwrite: bool = False) -> int:
    return table.write(to_arrow(table, [{"id": n, "v": value} for n in keys]), overwrite=overwrite).version


def grow(table: Table, versions: int) -> None:
    for number in range(versions):
        put(table, number % 3, number, value=number)


# ------------------------------------------------------------------------------------------------------------- readers


def test_a_tag_is_read_by_its_name(table: Table) -> None:
    put(table, 1, 2)
    table.create_tag("eod")
    put(table, 3)
    assert [t.name for t in table.tags()] == ["eod"]
    assert in_order(table.scan(tag="eod").to_arrow().to_pylist()) == rows(table, 1)
    with pytest.raises(NotFound, match="no tag 'x'; there are: eod"):
        table.scan(tag="x")
    with pytest.raises(InvalidRequest, match="only one of"):
        table.scan(tag="eod", version=1)
    table.delete_tag("eod")
    assert table.tags() == []


def test_a_scan_that_was_overtaken_by_an_expiry_says_so(table: Table) -> None:
    grow(table, 6)
    late = table.scan(version=3)
    table.compact(full=True)
    grow(table, 6)
    assert table.expire().files
    with pytest.raises(NotFound) as caught:
        late.to_arrow()
    assert caught.value.code == "snapshot-expired"
    with pytest.raises(NotFound, match="hold versions that you need for long with a tag or a consumer"):
        table.scan(version=3)


class Readers:
    """Threads that read old versions until `stop` is set."""

    def __init__(self, store: Store, expected: dict[int, Rows]) -> None:
        self.store = store
        self.expected = expected
        self.wrong: list[object] = []
        self.codes: set[str] = set()
        self.stop = threading.Event()
        work = [(self.with_consumer, n) for n in range(5)] + [(self.without, n) for n in range(2)]
        self.started = threading.Barrier(len(work) + 1)
        self.threads = [threading.Thread(target=self.caught, args=each) for each in work]

    def __enter__(self) -> Readers:
        for thread in self.threads:
            thread.start()
        self.started.wait(300)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(300)

    def caught(self, work: Callable[[int], None], number: int) -> None:
        try:
            work(number)
        except TableStoreError as error:
            self.wrong.append(error)

    def with_consumer(self, number: int) -> None:
        table, version = self.store.table("shop.t"), 5 + number
        with table.consumer(f"reader-{number}").register(version):
            self.started.wait(300)
            while not self.stop.is_set():
                self.look(table, version)

    def without(self, number: int) -> None:
        table = self.store.table("shop.t")
        self.started.wait(300)
        while not self.stop.is_set():
            for version in self.expected:
                try:
                    self.look(table, version)
                except NotFound as error:
                    self.codes.add(error.code)

    def look(self, table: Table, version: int) -> None:
        if (found := rows(table, version)) != self.expected[version]:
            self.wrong.append(found)


@pytest.mark.deep
@pytest.mark.slow
def test_five_readers_of_old_versions_while_they_expire(store: Store, table: Table) -> None:
    """Fault test 13: with a consumer no file is missing; without one the error says that the version has expired."""
    grow(table, 4)
    table.compact(full=True)
    grow(table, 4)
    with Readers(store, {version: rows(table, version) for version in range(1, 10)}) as readers:
        for number in range(12):
            put(table, number, value=number)
            if number % 4 == 3:
                table.compact(full=True)
            table.expire()
            table.remove_orphans(dry_run=False)
        assert min(s.version for s in table.snapshots()) == 5, "the oldest consumer's"
    assert readers.wrong == []
    assert readers.codes == {"snapshot-expired"}
    assert table.consumers() == []
    assert table.expire().files
    with pytest.raises(NotFound, match="has expired"):
        rows(table, 5)
    assert_whole_from(table)


def assert_whole_from(table: Table) -> None:
    assert table.examine().healthy
    assert in_order(changes(table)) == in_order({**row, "_kind": "+I"} for row in rows(table))


def test_system_tables_begin_at_the_first_retained_version(store: Store) -> None:
    """The log's entries begin earlier, at the checkpoint before that version; system tables leave them out."""
    options = LIFE | {"checkpoint.interval": "5", "snapshot.num-retained.min": "1"}
    table = store.create_table("shop.old", "id BIGINT, v INT", primary_key=["id"], options=options)
    for number in range(8):
        put(table, number, overwrite=number % 2 == 1)
    assert table.expire().first == 8
    put(table, 9)
    assert table.filestore.delta_log.versions()[0] == 5
    assert [row["version"] for row in table.system("schemas").to_arrow().to_pylist()] == [8]
    assert [row["version"] for row in table.system("snapshots").to_arrow().to_pylist()] == [10, 9, 8]
    audited = table.system("audit_log").to_arrow().to_pylist()
    assert [(row["rowkind"], row["id"], row["_commit_version"]) for row in audited] == [("+I", 9, 10)]


# ------------------------------------------------------------------------------------------------------- following


def test_a_follower_goes_on_where_the_last_one_with_its_id_stopped(table: Table) -> None:
    put(table, 1, 2)
    first = changes(table, consumer="job")
    assert sorted((r["_kind"], r["id"]) for r in first) == [("+I", 1), ("+I", 2)]
    grow(table, 5)
    table.compact(full=True)
    table.expire()
    rest = changes(table, consumer="job")
    assert sorted(r["id"] for r in rest) == [0, 0, 1, 1, 2, 3, 4]
    assert changes(table, consumer="job") == []
    assert [c.version for c in table.consumers()] == [table.filestore.state().version]
    table.delete_consumer("job")
    assert len(changes(table, consumer="job")) == len(rows(table)), "from the beginning"


def test_a_follower_that_did_not_finish_begins_again(table: Table) -> None:
    put(table, 1)
    put(table, 2, overwrite=True)
    put(table, 3)
    following = table.follow(consumer="job", stop=3)
    next(following)
    following.close()
    assert [c.rows for c in table.consumers()] == [True]
    assert sorted(r["id"] for r in changes(table, consumer="job")) == [2, 3]


@pytest.mark.slow
def test_what_a_follower_has_still_to_read_does_not_expire(table: Table) -> None:
    put(table, 1, 2)
    held, late = table.follow(version=0, consumer="job"), table.follow(version=0)
    assert next(held).num_rows in (1, 2)
    put(table, 7, 8, overwrite=True)  # whose rows are read from files
    grow(table, 8)
    table.compact(full=True)
    table.expire()
    newest = table.filestore.state().version
    held.close()
    found = changes(table, consumer="job", stop=newest)
    assert {("-D", 1), ("-D", 2), ("+I", 7)} <= {(r["_kind"], r["id"]) for r in found}
    table.delete_consumer("job")
    assert table.expire().log_entries
    with pytest.raises(NotFound) as caught:
        list(late)
    assert caught.value.code == "snapshot-expired"
    with pytest.raises(NotFound) as caught:
        table.follow(version=1)
    assert caught.value.code == "snapshot-expired"


def test_two_followers_with_one_id(table: Table) -> None:
    put(table, 1)
    put(table, 2)
    first = table.follow(version=0, consumer="job")
    next(first)
    second = table.follow(version=0, consumer="job")
    next(second)
    with pytest.raises(Conflict, match="took over consumer 'job'"):
        list(first)


# ---------------------------------------------------------------------------------------------------------- maintenance


@pytest.mark.slow
def test_maintenance_does_what_is_due(table: Table) -> None:
    grow(table, 8)
    table.compact(full=True)
    grow(table, 3)
    done = table.maintain()
    assert done.tag is None
    assert done.expiry.files
    assert_whole_from(table)


def age(path: Path, days: float) -> None:
    then = path.stat().st_mtime - days * 86_400
    os.utime(path, (then, then))


def test_orphans_are_listed_first_and_removed_if_they_are_old(table: Table) -> None:
    put(table, 1)
    folder = Path(table.location)
    strays = [
        "bucket-00000/11111111-1111-4111-8111-111111111111.parquet",
        "deletion_vector_11111111-1111-4111-8111-111111111111.bin",
        "_runs/bucket-00000/11111111-1111-4111-8111-111111111111.parquet",
        "_change_data/x.parquet",
        "_delta_log/.00000000000000000009.json.abc.tmp",
    ]
    for name in [*strays, "notes.txt"]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
        age(folder / name, 2)
    young = folder / "bucket-00000" / "22222222-2222-4222-8222-222222222222.parquet"
    young.write_bytes(b"x")
    for path in folder.glob("bucket-*/*.parquet"):
        if path != young and path.stat().st_size > 1:
            age(path, 2)  # so are the table's own
    assert [o.path for o in table.remove_orphans()] == sorted(strays)
    assert len(orphans(table)) == 6, "a dry run"
    with table.filestore.leases.hold("at-work"):
        held = folder / "_log" / "leases" / "at-work"
        age(held, 3)
        assert table.remove_orphans(dry_run=False) == [], "a writer is at work since before they were written"
    held.unlink(missing_ok=True)
    assert [o.path for o in table.remove_orphans(dry_run=False)] == sorted(strays)
    assert (folder / "notes.txt").exists()
    assert len(orphans(table)) == 1
    with pytest.raises(InvalidRequest, match="even_young") as refused:
        table.remove_orphans(timedelta(minutes=59), dry_run=False)
    assert refused.value.code == "young-orphans"
    [gone] = table.remove_orphans(timedelta(0), dry_run=False, even_young=True)
    assert gone.path == f"bucket-00000/{young.name}"
    assert_whole(table, leftovers=False)


@pytest.mark.slow
def test_what_lives_in_an_old_version_is_no_orphan(table: Table) -> None:
    grow(table, 8)
    table.create_tag("keep", 4)
    table.compact(full=True)
    grow(table, 4)
    table.expire()
    expected = rows(table, 4)
    for path in Path(table.location).rglob("*"):
        if path.is_file() and "_log" not in path.parts:
            age(path, 9)
    assert table.remove_orphans(dry_run=False) == []
    assert rows(table, 4) == expected


def test_a_lapsed_consumer_is_an_orphan(table: Table) -> None:
    put(table, 1)
    table.consumer("gone").register(1)
    path = Path(table.location) / "_consumers" / "gone.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"touched_ms": 1}))
    age(path, 9)
    assert table.consumers() == []
    assert [(o.path, o.kind) for o in table.remove_orphans(dry_run=False)] == [
        ("_consumers/gone.json", "lapsed consumer")
    ]
    assert not path.exists()


# ------------------------------------------------------------------------------------------- versions that work is on


def overtaken(table: Table) -> None:
    """Another process replaces all rows, and their versions expire."""
    put(table, 8, 9, value=99, overwrite=True)
    put(table, 7, value=99)
    assert table.expire().files


def test_a_write_whose_version_expires_while_it_looks_up_begins_again(table: Table) -> None:
    """It failed with an error of the storage about a file."""
    put(table, 1, 2, 3)
    ours = sorted_batches(table, to_arrow(table, [{"id": 2, "v": 5}]))
    before = iter((lambda: overtaken(table), lambda: None))

    def run(job: WriteJob) -> list[TaskOutcome]:
        next(before)()
        return [job.run(ours, "0.0")]

    table.writer().write(run)
    assert [(row["id"], row["v"]) for row in rows(table)] == [(2, 5), (7, 99), (8, 99), (9, 99)]
    assert table.examine().problems == ()
    assert orphans(table) == []


@pytest.mark.parametrize("work", [compact_table, fold_table])
def test_a_compaction_whose_version_expires_meanwhile_begins_again(store: Store, work: Callable[..., Any]) -> None:
    options = LIFE | ({"write-mode": "merge-on-read"} if work is fold_table else {})
    table = store.create_table("shop.t", "id BIGINT, v INT", primary_key=["id"], options=options)
    for number in range(3):
        put(table, number, number + 3)

    runs = []

    def run(files: TableFiles, tasks: Sequence[Any]) -> Any:
        runs.append(tasks)
        if len(runs) == 1:
            overtaken(table)
        return (compact_slots if work is compact_table else fold_slots)(files, tasks)

    work(table.filestore, True, run)
    assert runs
    assert [row["id"] for row in rows(table)] == [7, 8, 9]
    assert table.examine().problems == ()


@pytest.mark.parametrize("call", ["link", "replace"])
def test_a_clean_up_of_young_files_takes_the_temporary_file_of_a_commit(
    store: Store, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """It is made again, whatever kind of file is written."""
    table = store.create_table("shop.young", "id BIGINT", primary_key=["id"])
    table.write([{"id": 1}])
    publish, removed = getattr(os, call), []

    def cleaned_first(temporary: Path, target: Path) -> None:
        if not removed:
            os.utime(temporary, (1, 1))  # not of this very millisecond
            cleaner = store.table("shop.young")
            removed.extend(left.path for left in cleaner.remove_orphans(timedelta(0), dry_run=False, even_young=True))
        publish(temporary, target)

    monkeypatch.setattr(os, call, cleaned_first)
    if call == "link":
        table.create_tag("kept")
        assert [tag.name for tag in table.tags()] == ["kept"]
    else:
        LocalStorage().replace(f"{table.location}/_delta_log/_last_checkpoint", b"{}")
        assert Path(table.location, "_delta_log", "_last_checkpoint").read_bytes() == b"{}"
    assert any(path.endswith(".tmp") for path in removed)


def test_a_dropped_table_is_not_made_again_by_its_temporary_files(tmp_path: Path) -> None:
    target = tmp_path / "gone" / "file"
    with pytest.raises(NotFound):
        LocalStorage().replace(str(tmp_path / "gone" / "deeper" / "file"), b"x")
    assert not target.parent.exists()
