"""Fault test 8: the log written and the snapshot not, and the snapshot written and the log's transaction aborted.

``transactional`` shows neither half to anyone: no records without their snapshot, and no snapshot that some readers get
and others never will. ``eventual`` shows records early, and comes to what the files say. (More of it:
test_log_and_snapshot.py, test_republish.py, test_eventual_log.py; by deaths at every point: test_log_deaths.py.)
"""

from __future__ import annotations

from typing import Any

import pytest

import tablestore.recovering.recovery
from filestore.ambient import system_ambient
from filestore.model.snapshot import Operation
from log.table.systems import open_log
from tablestore import Store, Table
from tests.integration.foreign import ForeignConsumer
from tests.integration.test_eventual_log import delete, die, on, put
from tests.logorder import applied
from tests.waiting import until
from tests.warehouses import assert_whole, changes, replay, rows

pytestmark = pytest.mark.slow

KEY = ["id"]
SYSTEMS = ["embedded", pytest.param("kafka", marks=pytest.mark.kafka)]
HEALERS = ["the next write", "recover"]


def make(store: Store, request: pytest.FixtureRequest, system: str, consistency: str) -> Table:
    options = {"bucket": "2", "log.system": system, "log.consistency": consistency}
    if system == "kafka":
        options["log.kafka.bootstrap.servers"] = request.getfixturevalue("kafka_broker").bootstrap
    return store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=KEY, options=options)


def heal(table: Table, healer: str) -> None:
    if healer == "recover":
        on(table).recover()
    else:
        put(on(table), 9)


def followed(table: Table) -> list[dict[str, Any]]:
    return replay(changes(table, version=0), KEY)


@pytest.mark.few(1)
@pytest.mark.parametrize("healer", HEALERS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_transactional_shows_no_record_without_its_snapshot(
    store: Store, request: pytest.FixtureRequest, system: str, healer: str
) -> None:
    table = make(store, request, system, "transactional")
    put(table, 1, 2, 3)
    before = rows(table)
    die(table, 2, 3, 4)
    assert rows(table) == table.scan(fresh=True).to_arrow().sort_by("id").to_pylist() == followed(table) == before
    heal(table, healer)
    delete(table, 1)
    assert followed(table) == assert_whole(table)
    assert "never" not in {row["name"] for row in changes(table, version=0)}
    if system == "kafka":
        with ForeignConsumer(table) as foreign:
            foreign.catch_up()
            assert replay(foreign.changes(), KEY) == rows(table)
            assert "never" not in {row["name"] for row in foreign.changes()}


@pytest.mark.few(1)
@pytest.mark.parametrize("healer", HEALERS)
def test_transactional_publishes_again_what_the_broker_aborted_of_a_snapshot(
    store: Store, request: pytest.FixtureRequest, kafka_broker: Any, healer: str
) -> None:
    """The snapshot decides: whoever goes by it misses nothing, and the others get it once it is published again."""
    table = make(store, request, "kafka", "transactional")
    put(table, 1)
    with pytest.MonkeyPatch.context() as patch:
        writer = on(table)
        writer.recover()
        patch.setattr(tablestore.recovering.recovery.Recovery, "commit_transactions", lambda *_: None)
        put(writer, 2, 3, name="lost")
    config = table.opened.log_config()
    assert config is not None
    with open_log(config, system_ambient()) as log:
        assert len(log.abort_unnamed(lambda ids: ids)) == 1
    assert followed(table) == rows(table)
    with ForeignConsumer(table) as foreign:
        until(lambda: foreign.poll() or bool(foreign.values))
        assert [row["id"] for row in foreign.changes()] == [1]
        heal(table, healer)
        wanted = 4 if healer == "the next write" else 3
        until(lambda: foreign.poll() or len(foreign.values) >= wanted)
        assert sorted(row["id"] for row in foreign.changes()) == [1, 2, 3, 9][:wanted], "each once"
        assert replay(foreign.changes(), KEY) == assert_whole(table)
    assert [s.operation for s in table.snapshots()].count(Operation.REPUBLISH) == 1


@pytest.mark.few(2)
@pytest.mark.parametrize("healer", HEALERS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_eventual_comes_to_what_the_files_say(
    store: Store, request: pytest.FixtureRequest, system: str, healer: str
) -> None:
    table = make(store, request, system, "eventual")
    put(table, 1, 2, 3)
    delete(table, 3)
    die(table, 2, 3, 4)
    early = table.scan(fresh=True).to_arrow().sort_by("id").to_pylist()
    assert {row["id"]: row["name"] for row in early} == {1: "a", 2: "never", 3: "never", 4: "never"}
    assert applied(table) == early != rows(table), "the log is ahead of the files"
    heal(table, healer)
    assert applied(table) == followed(table) == table.scan(fresh=True).to_arrow().sort_by("id").to_pylist()
    assert applied(table) == assert_whole(table)
