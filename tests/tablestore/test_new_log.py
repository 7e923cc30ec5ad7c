"""A new log begins at a version, after the table's log was lost."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compaction.log_trim import trim_log
from filestore.checks.report import Invariant
from filestore.errors import (
    AlreadyExists,
    Corrupt,
    InvalidRequest,
    NotFound,
    TableStoreError,
    Unavailable,
    Unsupported,
)
from filestore.model.snapshot import Operation
from log.kafka.topic import TopicClient
from log.table.embedded import folder as folder_module
from log.table.systems import open_log
from tablestore import Store, Table
from tablestore.following.gaps import truncates
from tests.bothlogs import both_logs
from tests.depth import Depth
from tests.faults import Killed
from tests.opened import again
from tests.servers.kafka import KafkaBroker
from tests.tablestore.recovering.test_claimed_commits import CLAIMED, Away, Once, claimed, through
from tests.warehouses import Row, changes, replay, rows
from tests.writers import put

EVENTUAL = {"log.consistency": "eventual"}


@pytest.fixture
def table(store: Store, log_options: dict[str, str]) -> Table:
    return make(store, log_options)


def make(store: Store, options: dict[str, str]) -> Table:
    made = store.create_table(
        "shop.t", "id BIGINT, name STRING", primary_key=["id"], options={"bucket": "2", **options}
    )
    assert isinstance(made, Table)
    put(made, 1, 2)
    put(made, 2, 3, name="b")
    return made


def lose(table: Table) -> None:
    """The topic is deleted, or the folder."""
    config = table.opened.log_config()
    assert config is not None
    if config.system == "kafka":
        with open_log(config, table.opened.ambient) as log:
            log.drop()
    else:
        shutil.rmtree(config.location)


def read_on(table: Table, version: int) -> list[Row]:
    """The rows of a reader that had those of a version, and goes on to the newest one."""
    known = [{**row, "_kind": "+I"} for row in rows(table, version)]
    for batch in table.follow(version=version, on_log_gap="rescan", stop=table.filestore.state().version):
        known = [] if truncates(batch) else known
        known += batch.to_pylist()
    return replay(known, ["id"])


def unended(table: Table, *ids: int) -> None:
    """A writer dies right behind its entry."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tablestore.recovering.recovery.Recovery.commit_transactions", lambda *_: None)
        put(again(table), *ids)


@both_logs
@pytest.mark.few(2)
@pytest.mark.parametrize("options", [{}, EVENTUAL], ids=["transactional", "eventual"])
def test_a_lost_log_is_replaced_and_everybody_goes_on_or_gets_a_gap(
    store: Store, log_options: dict[str, str], options: dict[str, str]
) -> None:
    table = make(store, {**log_options, **options})
    assert table.new_log() is None, "nothing is lost"
    other = again(table)  # another process, which has compared the log
    put(other, 4)
    unended(table, 5)
    at = table.filestore.state().version
    lose(table)
    for writer in (other, again(table)):
        with pytest.raises(NotFound, match=r"`tablestore new-log shop\.t`"):
            put(writer, 6)
    made = again(table).new_log()
    assert made is not None and (made.version, made.operation) == (at + 1, Operation.ALTER)
    assert table.new_log() is None, "it can be repeated"
    put(other, 6)
    put(table, 1, name="c")
    assert table.recover().republished == ()
    assert [f for f in table.examine().findings if f.code is not Invariant.ORPHAN] == []
    found, newest = rows(table), at + 3
    assert [row["id"] for row in found] == [1, 2, 3, 4, 5, 6] and table.filestore.state().version == newest
    for version in range(newest + 1):
        assert read_on(table, version) == found
        exact = [r for b in table.follow(version=version, mode="changelog", stop=newest) for r in b.to_pylist()]
        assert replay([{**row, "_kind": "+I"} for row in rows(table, version)] + exact, ["id"]) == found
    with pytest.raises(NotFound, match=r'begins with version 5.*scan="full"') as caught:
        changes(table, version=1)
    assert caught.value.code == "log-gap"
    assert [row["id"] for row in changes(table, version=at + 1)] == [6, 1]


@both_logs
@pytest.mark.few(2)
@pytest.mark.parametrize("options", [{}, EVENTUAL], ids=["transactional", "eventual"])
def test_a_reader_that_runs_meanwhile(store: Store, log_options: dict[str, str], options: dict[str, str]) -> None:
    """One that goes by versions and has read them all goes on; one of an eventual log begins again."""
    table = make(store, {**log_options, **options})
    last = {"version": 2}
    following = again(table).follow(on_log_gap="rescan", stop=lambda: following.progress.version >= last["version"])
    known: list[Row] = []

    def read() -> list[Row]:
        nonlocal known
        for batch in following:
            known = ([] if truncates(batch) else known) + batch.to_pylist()
            if replay(known, ["id"]) == rows(table):
                break
        return replay(known, ["id"])

    last["version"] = 99
    assert read() == rows(table)
    put(table, 6)
    assert read() == rows(table), "it has the log open"
    lose(table)
    assert table.new_log() is not None
    put(table, 7)
    assert read() == rows(table)
    assert following.progress.rescans == (1 if options else 0)
    following.close()


@both_logs
def test_the_log_of_another_making_is_taken(table: Table) -> None:
    """Whoever made it died before the commit, or made it by hand."""
    lose(table)
    config = table.opened.log_config()
    assert config is not None
    with open_log(config, table.opened.ambient) as log:
        log.create()
        identity = log.identity()
    with pytest.raises(Corrupt, match="`tablestore new-log`") as caught:
        put(again(table), 4)
    assert caught.value.code == "log-replaced"
    assert [f.code for f in table.examine().findings] == [Invariant.LOG_DAMAGED]
    assert table.new_log() is not None
    assert table.filestore.state().log.identity == identity
    put(again(table), 4)
    assert table.examine().findings == ()


def test_what_is_left_of_an_embedded_log_is_kept(table: Table) -> None:
    folder = Path(table.location) / "_log"
    (folder / "bucket-00000.sqlite").write_bytes(b"no database" * 1000)
    assert table.new_log() is not None
    put(table, 4)
    assert table.examine().findings == ()
    [kept] = folder.glob("lost-*")
    assert json.loads((kept / "log.json").read_text())["buckets"] == 2
    assert (kept / "bucket-00000.sqlite").read_bytes().startswith(b"no database")


def test_a_log_in_the_draft_of_an_earlier_version_is_kept(table: Table) -> None:
    """A new log of 2026-11-28 was made beside the former one, which was moved into it before it got its place."""
    folder = Path(table.location) / "_log"
    draft = folder.with_name("_log.abc.tmp")
    draft.mkdir()
    before = (folder / "log.json").read_bytes()
    folder.rename(draft / "lost-7")
    assert table.new_log() is not None
    assert (folder / "lost-7" / "log.json").read_bytes() == before
    assert not draft.exists()


@pytest.mark.parametrize("when", ["written", "renamed"])
def test_a_draft_that_another_process_removes_is_made_again(
    table: Table, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both make a new log; the one that ends first removes what killed processes have left."""
    lose(table)
    name = "_write_durably" if when == "written" else "_renamed"
    step, calls = getattr(folder_module, name), []

    def late(draft: Path, *rest: Any) -> Any:
        if not calls:
            calls.append(draft)
            for found in Path(table.location).glob("_log.*.tmp"):
                shutil.rmtree(found)
        return step(draft, *rest)

    monkeypatch.setattr(folder_module, name, late)
    assert table.new_log() is not None
    assert calls
    put(table, 4)
    assert table.examine().findings == ()
    assert [path.name for path in Path(table.location).glob("_log*")] == ["_log"]


@pytest.mark.parametrize("damage", ["gone", "no database", "no identity", "older"])
def test_whoever_makes_a_new_log_is_killed_at_any_step(store: Store, damage: str, depth: Depth) -> None:
    """The next call goes on, nothing is left beside the log, and what was left of the former one is kept."""
    died = 0
    for number in depth.counting(2):
        table = make(store, {})
        folder = Path(table.location) / "_log"
        if damage == "older":
            shutil.copytree(folder, folder.with_name("backup"))
            put(table, 3)
            shutil.rmtree(folder)
            folder.with_name("backup").rename(folder)
        elif damage == "gone":
            shutil.rmtree(folder)
        else:
            (folder / ("bucket-00000.sqlite" if damage == "no database" else "log.json")).write_bytes(b"damaged" * 1000)
        kept = {path.name: path.read_bytes() for path in folder.glob("*.*")}
        with KilledAt(number) as killed, suppress(Killed):
            again(table).new_log()
        table = again(table)
        table.new_log()
        put(table, 4)
        assert table.examine().findings == ()
        assert [path.name for path in folder.parent.glob("_log*")] == ["_log"]
        lost = {path.name: path.read_bytes() for path in folder.glob("lost-*/*.*")}
        assert {name: lost[name] for name in kept} == kept
        store.drop_table("shop.t")
        died += killed.fired
        if not killed.fired:
            break
    assert died


class KilledAt:
    """The process is killed before its n-th change of a folder, or behind it."""

    def __init__(self, number: int) -> None:
        self.fired = False
        self._left = number
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> KilledAt:
        for owner, name in [(Path, "rename"), (Path, "mkdir"), (shutil, "rmtree")]:
            self._patch.setattr(owner, name, self._counted(getattr(owner, name)))
        return self

    def __exit__(self, *error: object) -> None:
        self._patch.undo()

    def _counted(self, do: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **named: Any) -> Any:
            if self.fired:
                raise Killed("it is dead")
            self._count()
            made = do(*args, **named)
            self._count()
            return made

        return counted

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.fired = True
            raise Killed("it is killed")


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize("log_options", ["kafka"], indirect=True)
@pytest.mark.parametrize("wrong", [1, 2])
def test_a_log_that_one_broker_does_not_know_yet_is_not_replaced(
    table: Table, wrong: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker has started a moment ago, and its metadata are late."""
    describe, asked = TopicClient.describe, []

    def late(client: TopicClient, **how: Any) -> Any:
        asked.append(1)
        return None if len(asked) <= wrong else describe(client, **how)

    before = table.filestore.state().log
    monkeypatch.setattr(TopicClient, "describe", late)
    assert table.new_log() is None
    assert table.filestore.state().log == before
    assert sorted(row["id"] for row in changes(table, version=0)) == [1, 2, 2, 3]


def test_the_log_of_another_table_is_not_taken(store: Store, table: Table) -> None:
    other = store.create_table("shop.other", "id BIGINT", primary_key=["id"], options={"bucket": "2"})
    assert isinstance(other, Table)
    lose(table)
    shutil.copytree(Path(other.location) / "_log", Path(table.location) / "_log")
    with pytest.raises(AlreadyExists) as caught:
        table.new_log()
    assert caught.value.code == "log-exists"


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize("log_options", ["kafka"], indirect=True)
def test_a_topic_with_another_number_of_partitions_is_a_problem_and_is_not_taken(table: Table) -> None:
    """As a broker makes it that creates topics by itself."""
    lose(table)
    config = table.opened.log_config()
    assert config is not None
    with open_log(replace(config, buckets=1), table.opened.ambient) as log:
        log.create()
        assert not table.examine().healthy
        with pytest.raises(AlreadyExists, match=r"1 partitions, not 2.*delete it"):
            table.new_log()
        log.drop()
    assert table.new_log() is not None
    put(table, 4)
    assert table.examine().findings == ()


def test_a_log_that_does_not_answer_is_not_replaced(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(_: object) -> None:
        raise Unavailable("no broker answers")

    monkeypatch.setattr("log.table.embedded.store.EmbeddedLog.check_writable", silent)
    with pytest.raises(Unavailable):
        table.new_log()
    assert table.filestore.state().version == 2


def test_a_table_without_a_log_has_none_to_begin(store: Store) -> None:
    made = store.create_table("shop.n", "id BIGINT", options={"log.system": "none"})
    assert isinstance(made, Table)
    with pytest.raises(Unsupported) as caught:
        made.new_log()
    assert caught.value.code == "no-log"


@pytest.mark.parametrize("fault", [Once, Away])
def test_a_claimed_version_comes_before_the_new_log(fault: type[Once], depth: Depth) -> None:
    """The database that holds the commits is away at each of its calls."""
    for number in depth.counting(3):
        with claimed({}) as table:
            lose(table)
            away = fault(number, Unavailable("injected"))
            with suppress(Unavailable):
                through(table, away).new_log()
            table.new_log()
            assert table.filestore.state().log.begins == 3, "version 2 was claimed"
            put_one = [{"id": 3, "v": "c"}]
            table.write(put_one)
            assert rows(table) == [*CLAIMED, *put_one]
            assert [f for f in table.examine().findings if f.code is not Invariant.ORPHAN] == []
        if not away.fired:
            break


def test_a_tag_of_a_version_whose_records_were_lost_keeps_those_of_later_ones(store: Store) -> None:
    table = make(store, {"log.retention": "1 ms"})
    table.create_tag("kept", 1)
    lose(table)
    table.new_log()
    put(table, 4)
    trim_log(table.opened)
    assert [row["id"] for row in changes(table, version=3)] == [4]


def test_the_audit_log_begins_with_the_log(table: Table) -> None:
    lose(table)
    table.new_log()
    put(table, 4)
    assert table.system("audit_log").to_arrow().num_rows == 1
    with pytest.raises(TableStoreError) as caught:
        table.system("audit_log", from_version=0).to_arrow()
    assert caught.value.code == "log-gap"


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("options", [{}, EVENTUAL], ids=["transactional", "eventual"])
def test_a_new_log_on_other_brokers(
    store: Store, kafka_broker: KafkaBroker, folder: Path, options: dict[str, str]
) -> None:
    """The cluster is lost, and another one takes its place under other addresses. Whoever is at work goes on there."""
    former = KafkaBroker(folder / "former").start()
    quick = {"log.kafka.properties.socket.timeout.ms": "2000", "log.kafka.properties.message.timeout.ms": "2000"}
    table = make(store, {"log.system": "kafka", "log.kafka.bootstrap.servers": former.bootstrap, **quick, **options})
    known: list[Row] = []
    following = again(table).follow(on_log_gap="rescan", stop=threading.Event())

    def read_until_equal() -> None:
        nonlocal known
        for batch in following:
            known = ([] if truncates(batch) else known) + batch.to_pylist()
            if replay(known, ["id"]) == rows(table):
                return

    read_until_equal()
    put(table, 4)
    read_until_equal()
    moved = {"log.kafka.bootstrap.servers": kafka_broker.bootstrap}
    with pytest.raises(InvalidRequest, match="ALTER TABLE") as refused:
        table.new_log(moved)
    assert refused.value.code == "log-not-lost", "its log is there"
    former.kill()
    with pytest.raises(Unavailable):
        table.new_log()
    for wrong, code in [
        ({"bucket": "3"}, "not-of-the-log"),
        ({"log.kafka.topic": "x", **moved}, "fixed-option"),
        ({"log.kafka.properties.linger.ms": "many", **moved}, "log-settings"),
        ({"log.kafka.properties.sasl.password": "hidden", **moved}, "literal-secret"),
    ]:
        with pytest.raises(InvalidRequest) as caught:
            table.new_log(wrong)
        assert caught.value.code == code
    assert table.filestore.state().version == 3
    assert table.new_log(moved) is not None
    assert table.filestore.state().log.begins == 4
    assert table.new_log(moved) is None, "it can be repeated"
    for writer, id_ in [(table, 7), (again(table), 8)]:
        put(writer, id_)
    read_until_equal()
    following.close()
    assert read_on(table, 3) == rows(table)
    assert table.examine().findings == ()
    with open_log(table.opened.required_log(), table.opened.ambient) as log:
        log.drop()
