"""Log transactions of a committed snapshot that the log lost are published again, once, for foreign readers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import tablestore.recovering.recovery
from filestore.ambient import system_ambient
from filestore.errors import NotFound, Unavailable
from filestore.model.snapshot import Operation, Snapshot
from filestore.storage.local import LocalStorage
from log.table.systems import open_log
from tablestore import Store, Table
from tests.faults import FailAt, FaultyStorage
from tests.integration.foreign import ForeignConsumer
from tests.opened import again
from tests.servers.kafka import KafkaBroker
from tests.tables import assert_healthy
from tests.waiting import until
from tests.warehouses import assert_whole, changes, replay, rows

KEY = ["id"]


def make(store: Store, broker: KafkaBroker, key: list[str] | None = None, **more: str) -> Table:
    options = {"bucket": "2", "log.system": "kafka", "log.kafka.bootstrap.servers": broker.bootstrap, **more}
    return store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=key or [], options=options)


@pytest.fixture
def table(store: Store, kafka_broker: KafkaBroker) -> Table:
    return make(store, kafka_broker, KEY)


@pytest.fixture
def foreign(table: Table) -> Iterator[ForeignConsumer]:
    with ForeignConsumer(table) as consumer:
        yield consumer


def put(table: Table, *ids: int, name: str = "a", **how: Any) -> Snapshot:
    return table.write(pa.table({"id": ids, "name": [name] * len(ids)}), **how)


def on(table: Table, storage: Any = None) -> Table:
    """Opens the table as another process does."""
    return again(table, storage=storage or LocalStorage())


def put_and_lose(table: Table, *ids: int, name: str = "a", trim: bool = False, **how: Any) -> Snapshot:
    """A writer dies after its snapshot, and the broker aborts its transaction, or retention deletes its records."""
    writer = on(table)
    writer.recover()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tablestore.recovering.recovery.Recovery, "commit_transactions", lambda *_: None)
        snapshot = put(writer, *ids, name=name, **how)
    config = table.opened.log_config()
    assert config is not None
    with open_log(config, system_ambient()) as log:
        if trim:
            log.trim(log.end_offsets())
        else:
            assert len(log.abort_unnamed(lambda ids: ids)) == 1
    return snapshot


def republished(table: Table) -> list[Snapshot]:
    return [s for s in table.snapshots() if s.operation is Operation.REPUBLISH]


def delivers(foreign: ForeignConsumer, commit_id: str, *ids: int) -> bool:
    """Waits until the consumer has so many records of a commit, and polls again; returns whether these are the ids."""

    def found() -> list[int]:
        foreign.poll()
        values = [v for v in foreign.values if v["source"]["commit"] == commit_id]
        return sorted((v["after"] or v["before"])["id"] for v in values)

    until(lambda: len(found()) >= len(ids))
    return found() == list(ids)


@pytest.mark.few(1)
@pytest.mark.parametrize("healer", ["the next write", "recover"])
def test_an_aborted_transaction_is_published_again_under_its_commit_id(
    table: Table, foreign: ForeignConsumer, healer: str
) -> None:
    put(table, 1)
    lost = put_and_lose(table, 2, 3)
    if healer == "recover":
        assert on(table).recover().republished == tuple(t.id for t in lost.transactions)
    else:
        put(on(table), 4)
    assert delivers(foreign, lost.commit_id, 2, 3)
    assert replay(foreign.changes(), KEY) == assert_whole(table)
    assert len(changes(table, version=0)) == len(rows(table)), "our readers read each change once"
    (snapshot,) = republished(table)
    assert list(snapshot.republished) == [t.id for t in lost.transactions]
    on(table).recover()
    put(on(table), 5)
    assert len(republished(table)) == 1, "it is done once"
    assert delivers(foreign, lost.commit_id, 2, 3)


def test_what_retention_took_before_it_was_committed_is_published_from_files(
    table: Table, foreign: ForeignConsumer
) -> None:
    put(table, 1, 2)
    foreign.catch_up()
    lost = put_and_lose(table, 2, 3, name="b", trim=True)
    on(table).recover()
    assert delivers(foreign, lost.commit_id, 2, 3)
    assert replay(foreign.changes(), KEY) == rows(table)
    assert_healthy(table.filestore)
    with pytest.raises(NotFound, match="has a gap"):
        changes(table, version=lost.version - 1)


def test_what_retention_takes_after_it_was_committed_is_not_lost(table: Table, foreign: ForeignConsumer) -> None:
    put(table, 1)
    foreign.catch_up()
    config = table.opened.log_config()
    assert config is not None
    with open_log(config, system_ambient()) as log:
        log.trim(log.end_offsets())
    assert on(table).recover().republished == ()
    assert republished(table) == []


@pytest.mark.few(1)
@pytest.mark.parametrize("trim", [False, True], ids=["aborted", "trimmed"])
def test_who_applies_the_topic_in_its_order_ends_with_the_newest_rows(
    table: Table, foreign: ForeignConsumer, trim: bool
) -> None:
    put(table, 1, 2, 3, 4)
    foreign.catch_up()
    lost = put_and_lose(table, 1, 2, 3, name="b", trim=trim)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tablestore.recovering.recovery.Recovery, "before_write", lambda *_: None)
        put(on(table), 2, name="c")
        on(table).write(pa.table({"id": [3], "_kind": ["-D"]}))
    on(table).recover()
    # files do not show which keys later commits changed, so all keys are published again
    assert delivers(foreign, lost.commit_id, *([1, 1, 2, 2, 3, 3] if trim else [1, 2, 2, 3, 3]))
    assert replay(foreign.changes(), KEY) == rows(table)
    assert [row["name"] for row in rows(table)] == ["b", "c", "a"]


@pytest.mark.few(1)
@pytest.mark.parametrize("trim", [False, True], ids=["aborted", "trimmed"])
def test_who_counts_the_rows_of_complete_changes_ends_with_the_newest_rows(
    store: Store, kafka_broker: KafkaBroker, trim: bool
) -> None:
    table = make(store, kafka_broker, KEY, **{"changelog-producer": "lookup"})
    put(table, 1, 2, 3, 4)
    with ForeignConsumer(table) as foreign:
        foreign.catch_up()
        lost = put_and_lose(table, 1, 2, 3, name="b", trim=trim)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tablestore.recovering.recovery.Recovery, "before_write", lambda *_: None)
            put(on(table), 2, name="c")
            on(table).write(pa.table({"id": [3], "_kind": ["-D"]}))
        on(table).recover()
        reported = [1, 1, *([1, 1] if trim else []), 2, 2, 2, 2, 3, 3, 3, 3]
        assert delivers(foreign, lost.commit_id, *reported)
        assert replay(foreign.changes(), KEY) == rows(table)
        counted: Counter[tuple[int, str]] = Counter()
        for change in foreign.changes():
            counted[change["id"], change["name"]] += -1 if change["_kind"] == "-D" else 1
        assert +counted == Counter((row["id"], row["name"]) for row in rows(table))
        assert not -counted


def test_an_overwrite_is_published_again(table: Table, foreign: ForeignConsumer) -> None:
    put(table, 1)
    lost = put_and_lose(table, 2, overwrite=True)
    on(table).recover()
    until(lambda: foreign.poll() or len(foreign.values) >= 3)
    reported = [v for v in foreign.values if v["source"]["commit"] == lost.commit_id]
    assert [v["message"] for v in reported] == [{"control": "overwrite"}] * 2


@pytest.mark.few(1)
@pytest.mark.parametrize("trim", [False, True], ids=["aborted", "trimmed"])
def test_rows_without_a_key_are_published_once(store: Store, kafka_broker: KafkaBroker, trim: bool) -> None:
    table = make(store, kafka_broker)
    put(table, 1, 1)
    with ForeignConsumer(table) as foreign:
        foreign.catch_up()
        lost = put_and_lose(table, 1, 2, 2, trim=trim)
        put(on(table), 3)
        assert delivers(foreign, lost.commit_id, 1, 2, 2)
        assert len(foreign.values) == 6


@pytest.mark.few(1)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_death_amid_publishing_again_leaves_it_to_the_next(
    table: Table, foreign: ForeignConsumer, after: bool
) -> None:
    lost = put_and_lose(table, 1, 2)
    fault = FailAt(1, Unavailable("gone"), operation="write_new", path=".json", after=after)
    try:
        on(table, FaultyStorage(LocalStorage(), fault)).recover()
    except Unavailable:
        assert not after
    assert fault.fired
    on(table).recover()
    put(on(table), 3)
    assert delivers(foreign, lost.commit_id, 1, 2)
    assert len(republished(table)) == 1
    assert replay(foreign.changes(), KEY) == assert_whole(table)


def test_a_version_that_expired_cannot_be_published_again_and_says_so(table: Table, foreign: ForeignConsumer) -> None:
    put_and_lose(table, 1, trim=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tablestore.recovering.republish, "_commit_of", lambda *_: None)
        on(table).recover()
    (snapshot,) = republished(table)
    assert list(snapshot.republished.values()) == [None]
    assert "could not be published again" in snapshot.notes[0]
    assert_healthy(table.filestore)
    put(table, 2)
    until(lambda: foreign.poll() or bool(foreign.values))
    assert [v["after"]["id"] for v in foreign.values] == [2]


def test_two_that_come_at_once_publish_it_once(table: Table, foreign: ForeignConsumer) -> None:
    lost = put_and_lose(table, 1, 2)
    threads = [threading.Thread(target=on(table).recover) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert len(republished(table)) == 1
    put(on(table), 3)
    assert delivers(foreign, lost.commit_id, 1, 2)
