"""The doctor asks the log, too: for versions whose transactions it has aborted."""

from __future__ import annotations

import shutil
import sqlite3
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

import tablestore
from filestore.checks.report import Invariant, Severity
from filestore.errors import Corrupt, InvalidRequest, NotFound, Unavailable
from log.table.embedded.store import EmbeddedLog
from log.table.systems import open_log
from tablestore import Store, Table
from tests.bothlogs import both_logs
from tests.warehouses import open_in_log, rows
from tests.writers import put


@pytest.fixture
def table(store: Store, log_options: dict[str, str]) -> Table:
    made = store.create_table("shop.t", "id BIGINT, name STRING", primary_key=["id"], options=log_options)
    put(made, 1)
    return made


def unended(table: Table, *ids: int) -> None:
    """A writer dies right behind its entry."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tablestore.recovering.recovery.Recovery.commit_transactions", lambda *_: None)
        put(table, *ids)


@both_logs
def test_a_transaction_of_a_version_that_the_log_has_aborted(table: Table) -> None:
    unended(table, 2)
    assert table.examine().findings == (), "it is open, and will be committed"
    config = table.opened.log_config()
    assert config is not None
    with open_log(config, table.opened.ambient) as log:
        [aborted] = log.abort_unnamed(lambda ids: ids)
    report = table.examine()
    assert [(f.code, f.severity) for f in report.findings] == [(Invariant.ABORTED_TRANSACTION, Severity.PROBLEM)]
    assert f"version 2 names log transaction {aborted}" in report.findings[0].message
    assert not report.healthy
    table.recover()
    assert table.examine().findings == (), "it was published again"


def examined_elsewhere(table: Table) -> list[Invariant]:
    """What a doctor finds that has not read the table before."""
    location = Path(table.location)
    with tablestore.connect(location.parent.parent) as again:
        return [f.code for f in again.examine("shop.t").findings]


@both_logs
def test_a_committed_record_behind_the_newest_version_says_that_its_entry_is_lost(table: Table) -> None:
    put(table, 2)
    put(table, 3)
    (newest,) = Path(table.location, "_delta_log").glob("*3.json")
    entry = newest.read_bytes()
    newest.unlink()
    location = Path(table.location)
    with tablestore.connect(location.parent.parent) as again:
        report = again.examine("shop.t")
        assert [(f.code, f.severity) for f in report.problems] == [(Invariant.LOG_AHEAD, Severity.PROBLEM)]
        assert "the entry of version 3 is lost" in report.problems[0].message and report.version == 2
        newest.write_bytes(entry)
        assert again.examine("shop.t").findings == ()
    newest.unlink()
    with tablestore.connect(location.parent.parent) as again:
        lost = again.table("shop.t")
        assert isinstance(lost, Table)
        put(lost, 3)
        assert [row["id"] for row in rows(lost)] == [1, 2, 3]
        assert lost.examine().problems == (), "its rows were written again, and all of its records are covered"


@both_logs
def test_what_dead_writers_left_in_the_log_is_no_version(table: Table) -> None:
    config = table.opened.log_config()
    assert config is not None
    with open_log(config, table.opened.ambient) as log:
        for number in range(2):
            writer = log.begin(f"{config.table_id}/{uuid.uuid4()}/0.0")
            writer.append(0, pa.table({"id": [number], "name": ["x"], "_kind": ["+I"]}))
            prepared = writer.prepare()
            assert prepared is not None
            if number == 0:
                log.end([prepared], commit=False)
        assert examined_elsewhere(table) == []
    table.recover()
    assert examined_elsewhere(table) == []


def test_a_version_that_is_committed_meanwhile_is_not_lost(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    look = EmbeddedLog.committed_behind

    def writes_first(log: EmbeddedLog, offsets: Mapping[int, int]) -> dict[int, int]:
        put(table, 2)
        found = look(log, offsets)
        assert found
        return found

    monkeypatch.setattr(EmbeddedLog, "committed_behind", writes_first)
    assert examined_elsewhere(table) == []


def test_retention_is_no_abort(table: Table) -> None:
    put(table, 2)
    config = table.opened.log_config()
    assert config is not None
    with open_log(config, table.opened.ambient) as log:
        log.trim(log.end_offsets())
    assert table.examine().findings == ()
    assert open_in_log(table) == []


@pytest.mark.parametrize("damage", ["a record batch", "its identity", "its file"])
def test_a_damaged_log_is_a_problem(store: Store, damage: str) -> None:
    table = store.create_table("shop.t", "id BIGINT, name STRING", primary_key=["id"])
    put(table, 1)
    put(table, 2)
    store.close()
    folder = Path(table.location) / "_log"
    if damage == "a record batch":
        with closing(sqlite3.connect(folder / "bucket-00000.sqlite")) as file, file:
            file.execute("UPDATE segments SET payload = substr(payload, 2) WHERE base_offset = 1")
    elif damage == "its identity":
        (folder / "log.json").write_text((folder / "log.json").read_text().replace('"log_id": "', '"log_id": "0'))
    else:
        (folder / "bucket-00000.sqlite").write_bytes(b"no database" * 1000)
    with tablestore.connect(Path(table.location).parent.parent) as again:
        report = again.examine("shop.t")
    assert [(f.code, f.severity) for f in report.findings] == [(Invariant.LOG_DAMAGED, Severity.PROBLEM)]
    assert not report.healthy


def lose_log(table: Table, lost: str) -> None:
    """Removes the log, or a part of it, as an operator's mistake does."""
    config = table.opened.log_config()
    assert config is not None
    if config.system == "kafka":
        with open_log(config, table.opened.ambient) as log:
            log.drop()
    elif lost == "all":
        shutil.rmtree(Path(table.location) / "_log")
    else:
        (Path(table.location) / "_log" / lost).unlink()


@pytest.mark.parametrize(
    ("log_options", "lost"),
    [
        ("embedded", "all"),
        ("embedded", "log.json"),
        ("embedded", "bucket-00000.sqlite"),
        pytest.param("kafka", "all", marks=[pytest.mark.kafka, pytest.mark.slow]),
    ],
    indirect=["log_options"],
)
def test_a_log_without_which_no_write_succeeds_is_a_problem_and_both_name_the_command(
    store: Store, table: Table, lost: str
) -> None:
    lose_log(table, lost)
    remedy = "`tablestore new-log shop.t`"
    report = table.examine()
    assert [(f.code, f.severity) for f in report.findings] == [(Invariant.LOG_UNUSABLE, Severity.PROBLEM)]
    assert remedy in report.findings[0].message and not report.healthy
    again = store.table("shop.t")  # another writer, which has not looked for the log yet
    assert isinstance(again, Table)
    new = pa.table({"id": [2], "name": ["b"]})
    writes: list[Callable[[], object]] = [
        lambda: again.write(new),
        lambda: again.write(new, overwrite=True),
        lambda: again.rollback(0),
        again.recover,
    ]
    if lost != "log.json":  # a writer that has looked for it needs it no more
        writes.append(lambda: put(table, 2))
    for write in writes:
        with pytest.raises(NotFound) as caught:
            write()
        assert caught.value.code == "log-not-found" and remedy in caught.value.message
    assert [row["id"] for row in rows(again)] == [1], "files are read without the log"


def test_a_right_that_only_another_user_has_is_a_note(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: EmbeddedLog) -> None:
        raise InvalidRequest("WRITE is not allowed", code="log-not-authorized")

    monkeypatch.setattr(EmbeddedLog, "check_writable", refuse)
    assert [(f.code, f.severity) for f in table.examine().findings] == [(Invariant.LOG_SILENT, Severity.NOTE)]


def test_a_log_that_does_not_answer_is_a_note(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> None:
        raise Unavailable("no broker answers", code="log-unavailable")

    monkeypatch.setattr("tablestore.logcare.examination.open_log", silent)
    report = table.examine()
    assert [(f.code, f.severity) for f in report.findings] == [(Invariant.LOG_SILENT, Severity.NOTE)]
    assert "no broker answers" in report.findings[0].message and report.healthy


def test_a_table_without_a_log_has_nothing_to_ask(store: Store) -> None:
    made = store.create_table("shop.n", "id BIGINT", options={"log.system": "none"})
    assert isinstance(made, Table)
    assert made.examine().findings == ()


def _folder_for(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)
    path.mkdir()


IN_THE_WAY: dict[str, Callable[[Path], object]] = {
    "a folder for log.json": lambda log: _folder_for(log / "log.json"),
    "a folder for a partition": lambda log: _folder_for(log / "bucket-00000.sqlite"),
    "a file for the log": lambda log: (shutil.rmtree(log), log.write_text("x")),
    "a file for the leases": lambda log: (shutil.rmtree(log / "leases", ignore_errors=True), (log / "leases").touch()),
}


def test_an_aborted_transaction_is_found_by_a_user_who_may_not_read_the_log(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    unended(table, 2)
    config = table.opened.log_config()
    assert config is not None
    with open_log(config, table.opened.ambient) as log:
        log.abort_unnamed(lambda ids: ids)

    def refuse(*_: object) -> None:
        raise InvalidRequest("READ is not allowed", code="log-not-authorized")

    monkeypatch.setattr(EmbeddedLog, "committed_behind", refuse)
    found = [(f.code, f.message) for f in table.examine().findings]
    assert [code for code, _ in found] == [Invariant.ABORTED_TRANSACTION, Invariant.LOG_SILENT]
    assert found[1][1] == "the log was not asked for committed records that no version covers: READ is not allowed"


@pytest.mark.parametrize("what", IN_THE_WAY)
def test_what_stands_in_the_place_of_the_log_is_a_problem(table: Table, store: Store, what: str) -> None:
    """Each write fails because of it, and each call says which file it is."""
    put(table, 1)
    IN_THE_WAY[what](Path(table.location, "_log"))
    again = store.table("shop.t")
    assert not again.examine().healthy
    for call in (lambda: put(again, 2), again.recover):
        with pytest.raises((Corrupt, Unavailable), match=f"{table.location}/_log"):
            call()
    assert [row["id"] for row in rows(again)] == [1]


@pytest.mark.parametrize("code", ["disk-full", "storage-error", "no-permission", "read-only", "log-unavailable"])
def test_an_embedded_log_that_fails_by_itself_is_a_problem_and_what_may_pass_is_a_note(
    table: Table, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    def refuse(_: EmbeddedLog) -> None:
        raise Unavailable("cannot open it", code=code)

    monkeypatch.setattr(EmbeddedLog, "check_writable", refuse)
    stays = code in ("disk-full", "storage-error")
    wanted = (Invariant.LOG_UNUSABLE, Severity.PROBLEM) if stays else (Invariant.LOG_SILENT, Severity.NOTE)
    assert [(f.code, f.severity) for f in table.examine().findings] == [wanted]
