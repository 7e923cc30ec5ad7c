"""The doctor finds each broken invariant, and nothing in a whole table (FORMAT.md section 12)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from filestore import layout
from filestore.delta.state import TableState
from filestore.doctor import Invariant, Severity, examine
from filestore.errors import NotFound, Unavailable
from filestore.model.partition_set import NO_PARTITIONS
from filestore.model.snapshot import Operation
from filestore.storage.local import LocalStorage
from filestore.table import FileStore
from tests.depth import Depth, sampled
from tests.faults import FailAt, FaultyStorage
from tests.filestore.surgery import DAMAGES, Damage, on_add, on_entry
from tests.folders import memory_folder
from tests.tables import Clock, assert_healthy, create, define, paths, prepare, reopen, seeded, write

COLUMNS = "id BIGINT, p STRING, need STRING NOT NULL, v DOUBLE"


@pytest.fixture
def store(folder: Path) -> FileStore:
    return filled(folder / "t", "none")


def filled(folder: Path, changelog: str) -> FileStore:
    definition = define(COLUMNS, ["id", "p"], ["p"], bucket=2, checkpoint_interval=2, changelog__producer=changelog)
    made = create(folder, definition, ambient=seeded(3))
    for version in range(5):
        rows = range(100 * version, 100 * version + 150)
        write(made, [{"id": n, "p": "x" if n % 3 else "y", "need": "a", "v": 1.0 * version} for n in rows])
    report = examine(made)
    assert report.healthy
    assert not report.findings
    return made


@pytest.fixture(scope="module")
def whole() -> Iterator[dict[str, FileStore]]:
    """Tables to copy and to damage, by their changelog's producer."""
    with memory_folder() as folder:
        yield {changelog: filled(folder / changelog, changelog) for changelog in ("none", "lookup")}


@pytest.mark.few(12)
@pytest.mark.parametrize(("code", "damage"), sampled(DAMAGES.values(), 4, names=2), ids=list(DAMAGES))
def test_damage_is_found(whole: dict[str, FileStore], folder: Path, code: Invariant, damage: Damage) -> None:
    template = whole["lookup" if code.startswith("change-") else "none"]
    shutil.copytree(template.location, folder / "t")
    store = FileStore.open(LocalStorage(), str(folder / "t"), seeded(4))
    damage(store)
    report = examine(reopen_blind(store))
    found = {finding.code for finding in report.findings}
    assert code in found, [f"{f.code}: {f.message}" for f in report.findings]
    if code in {Invariant.ORPHAN, Invariant.FOREIGN_FILE, Invariant.DEAD_FILE, Invariant.NO_CHECKSUMS}:
        assert report.healthy
        assert {f.code for f in report.findings} == {code}
    else:
        assert not report.healthy
        if code in {Invariant.VERSION_GAP, Invariant.LOG_ENTRY, Invariant.CHECKPOINT}:
            assert Invariant.ORPHAN not in found, "an entry that cannot be read may name any file"


@pytest.mark.parametrize(
    ("damage", "code", "words"),
    [
        (
            lambda store: [unlink(store, layout.log_entry_path(0)), *(unlink_checkpoint(store, n) for n in (2, 4))],
            Invariant.VERSION_GAP,
            "the oldest entry is of version 1, and there is no checkpoint: entries were lost",
        ),
        (
            lambda store: [unlink(store, layout.log_entry_path(0)), spoil_checkpoint(store, 2)],
            Invariant.CHECKPOINT,
            "the checkpoint of version 2 cannot be read: ",
        ),
        (
            on_entry(0, lambda actions: actions[1]["protocol"]["readerFeatures"].append("geometry")),
            Invariant.LOG_ENTRY,
            "the table needs the Delta feature 'geometry', which this version of Tablestore does not know: use a later",
        ),
        (
            on_add(lambda add: add.update(partitionValues=add["partitionValues"] | {"q": "z"})),
            Invariant.FILE_ACTION,
            "has partition values {'p': ",
        ),
        (
            on_add(lambda add: add.update(deletionVector="none")),
            Invariant.LOG_ENTRY,
            "cannot be read: ",
        ),
    ],
    ids=["no checkpoint", "spoilt first checkpoint", "unknown feature", "partition value too many", "vector"],
)
def test_the_doctor_says_what_is_wrong_with_the_log(
    whole: dict[str, FileStore], folder: Path, damage: Damage, code: Invariant, words: str
) -> None:
    shutil.copytree(whole["none"].location, folder / "t")
    store = FileStore.open(LocalStorage(), str(folder / "t"), seeded(4))
    damage(store)
    messages = [f.message for f in examine(reopen_blind(store)).findings if f.code is code]
    assert any(words in message for message in messages), messages


def unlink(store: FileStore, path: str) -> None:
    (Path(store.location) / path).unlink()


def unlink_checkpoint(store: FileStore, version: int) -> None:
    unlink(store, layout.checkpoint_path(version))


def spoil_checkpoint(store: FileStore, version: int) -> None:
    (Path(store.location) / layout.checkpoint_path(version)).write_bytes(b"PAR1xxxxPAR1")


def reopen_blind(store: FileStore) -> FileStore:
    """A store that has not tried to read the damaged table."""
    return FileStore(LocalStorage(), store.location, store.ambient)


def test_every_invariant_has_a_damage() -> None:
    elsewhere = {Invariant.PENDING_RUN, Invariant.TOMBSTONES}  # test_pending_runs.py
    elsewhere |= {Invariant.ABORTED_TRANSACTION, Invariant.LOG_DAMAGED, Invariant.LOG_AHEAD}  # test_examination.py
    elsewhere |= {Invariant.LOG_UNUSABLE, Invariant.LOG_SILENT}  # test_examination.py
    elsewhere |= {Invariant.LITERAL_SECRET}  # test_secrets.py
    elsewhere |= {Invariant.VIEW_RESULT, Invariant.VIEW_UNCHECKED}  # test_maintained_join.py
    elsewhere |= {Invariant.CHANGE_ROW}  # test_change_data.py
    assert {code for code, _ in DAMAGES.values()} | elsewhere == set(Invariant)


@pytest.mark.slow
def test_orphans_are_named_with_size_and_age(store: FileStore) -> None:
    for name in ("bucket-00000/x.parquet", "deletion_vector_x.bin", "_delta_log/.0.json.ab.tmp"):
        path = Path(store.location) / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"1234")
    future = seeded(1, Clock(2 * 10**12 * 1000))
    report = examine(FileStore(LocalStorage(), store.location, future))
    messages = sorted(finding.message.split(" (")[0] for finding in report.orphans)
    assert messages == [
        "data file bucket-00000/x.parquet",
        "deletion vector deletion_vector_x.bin",
        "temporary file _delta_log/.0.json.ab.tmp",
    ]
    assert all("(4 bytes, " in f.message and "days old" in f.message for f in report.orphans)
    assert {f.severity for f in report.orphans} == {Severity.ORPHAN}


def test_the_embedded_log_is_not_the_doctors_business(store: FileStore) -> None:
    (Path(store.location) / "_log").mkdir()
    (Path(store.location) / "_log" / "0.db").write_bytes(b"x")
    assert not examine(store).findings


def test_an_old_version_is_examined_on_its_own_files(store: FileStore) -> None:
    only_new = paths(store.state()) - paths(store.state(2))
    for path in only_new:
        (Path(store.location) / path).unlink()
    assert examine(reopen(store), version=2).healthy
    assert not examine(reopen(store)).healthy


@pytest.mark.parametrize("version", [-1, 6])
def test_a_version_that_is_not_there(store: FileStore, version: int) -> None:
    with pytest.raises(NotFound, match="versions 0 to 5"):
        examine(store, version)


def test_no_table(folder: Path) -> None:
    with pytest.raises(NotFound, match="there is no table"):
        examine(FileStore(LocalStorage(), str(folder), seeded()))


def test_a_key_in_two_files_is_found_among_many_files(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT, v INT", ["id"], target__file__size="1 b", row__group_rows=1024))
    write(store, [{"id": n, "v": 1} for n in range(20_000)])
    base = store.state()
    write(store, [{"id": n, "v": 2} for n in range(0, 20_000, 7)])
    assert_healthy(store)
    write_blindly(store, base, 12_345)
    (problem,) = examine(store).problems
    assert problem.code is Invariant.UNIQUE_KEY
    assert "[12345]" in problem.message


def test_a_key_that_ends_a_file_and_begins_another_is_found(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT, v INT", ["id"]))
    write(store, [{"id": n, "v": 1} for n in range(10)])
    write_blindly(store, store.state(), 9)
    (problem,) = examine(store).problems
    assert problem.code is Invariant.UNIQUE_KEY
    assert "[9]" in problem.message


def write_blindly(store: FileStore, base: TableState, key: int) -> None:
    """A writer that does not look its keys up."""
    blind = prepare(store, [{"id": key, "v": 3}], overwrite=True, base=base)
    blind.proposal = replace(
        blind.proposal,
        operation=Operation.WRITE,
        files=replace(blind.proposal.files, replaces=NO_PARTITIONS),
        base_version=store.state().version,
    )
    blind.base = store.state()
    blind.commit()


@pytest.mark.slow
def test_an_outage_of_any_single_request_is_raised_and_not_reported(store: FileStore, depth: Depth) -> None:
    counted = FaultyStorage(LocalStorage())
    table = reopen(store, counted)
    counted.calls.clear()
    examine(table)
    requests = sum(not call.done for call in counted.calls)
    assert requests > 20
    for number in depth.sample(range(1, requests + 1), 30):
        storage = FaultyStorage(LocalStorage())
        table = reopen(store, storage)
        storage.hook = FailAt(number, Unavailable("out for a moment"))
        with pytest.raises(Unavailable, match="out for a moment"):
            examine(table)
