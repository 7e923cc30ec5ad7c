"""Compactors recover what dead writers left while no writer runs, and `log_status` shows the log's offsets."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from compaction.compactor import Compactor
from filestore.ambient import system_ambient
from filestore.errors import Corrupt
from filestore.storage.locations import Storages
from log.table.systems import open_log
from tablestore import Store, Table
from tablestore.cli import app
from tablestore.logcare.duty import LOG
from tablestore.logcare.status import BucketLog
from tests.integration.test_eventual_log import die, put
from tests.logorder import applied
from tests.opened import again
from tests.servers.kafka import KafkaBroker, quiet
from tests.warehouses import open_in_log, rows


@pytest.fixture(params=["transactional", "eventual"])
def dead(store: Store, request: pytest.FixtureRequest) -> Table:
    """A table in whose log a dead writer's records are."""
    options = {"bucket": "1", "log.consistency": request.param}
    table = store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=["id"], options=options)
    put(table, 1, 2)
    die(table, 2, 3)
    return table


def compactor(store: Store) -> Compactor:
    return Compactor(store._catalog, Storages(), system_ambient())


def test_the_log_says_where_it_stands(dead: Table) -> None:
    eventual = dead.definition.options["log.consistency"] == "eventual"
    (waits,) = dead.log_status()[0].waits_for
    assert dead.log_status() == {0: BucketLog(start=0, covered=2, stable=2, end=4, waits_for=(waits,))}
    assert (waits.bucket, waits.start, waits.is_of(dead.opened.identity.table_id)) == (0, 2, True)
    assert waits.since_ms is not None
    assert waits.since_ms > dead.snapshots(1)[0].timestamp.timestamp() * 1000 - 1
    assert "it ends with that writer, or by recover" in waits.described(dead.opened.identity.table_id, "log")
    assert dead.log_status()[0].held_back == 2
    dead.recover()
    assert dead.log_status() == {0: BucketLog(0, 6 if eventual else 2, 6 if eventual else 4, 6 if eventual else 4)}
    assert dead.log_status()[0].held_back == 0


@pytest.mark.kafka
@pytest.mark.parametrize("transactions", ["true", "false"])
def test_an_open_transaction_of_another_program_is_reported(
    store: Store, kafka_broker: KafkaBroker, caplog: pytest.LogCaptureFixture, transactions: str
) -> None:
    """Readers with read_committed wait for it, and neither a writer nor a recovery of the table may end it."""
    options = {
        "log.system": "kafka",
        "log.kafka.bootstrap.servers": kafka_broker.bootstrap,
        "log.kafka.transactions": transactions,
    }
    table = store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=["id"], options=options)
    put(table, 1)
    config = table.opened.log_config()
    assert config is not None
    before_ms = system_ambient().now_ms()
    other = f"other-{uuid.uuid4()}"
    producer = Producer({**quiet(kafka_broker.bootstrap), "transactional.id": other})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(str(config.topic), b"{}", partition=0)
    producer.flush(30)
    put(table, 2)
    (found,) = table.recover().foreign
    assert (found.bucket, found.id) == (0, other)
    assert found.producer_id >= 0
    assert found.since_ms is not None
    assert before_ms - 60_000 <= found.since_ms <= system_ambient().now_ms() + 60_000
    assert other in caplog.text
    assert f"--partition 0 --start-offset {found.start}" in caplog.text
    status = table.log_status()[0]
    assert status.waits_for == (found,)
    assert status.stable == found.start < status.end
    shown = CliRunner(env={"TABLESTORE_CATALOG": store.target}).invoke(
        app, ["describe", "shop.orders", "--format", "json"]
    )
    (sentence,) = json.loads(shown.stdout)["log_waits_for"]
    assert f"for transaction {other}, which another program has begun" in sentence
    producer.abort_transaction(30)
    assert table.recover().foreign == ()
    assert table.log_status()[0].waits_for == ()


def test_a_table_without_a_log_has_nothing_to_repair(store: Store) -> None:
    table = store.create_table("shop.orders", "id BIGINT", options={"log.system": "none"})
    assert table.log_status() == {}
    assert table.recover().aborted == ()


def test_the_compactor_repairs_logs(dead: Table, store: Store) -> None:
    eventual = dead.definition.options["log.consistency"] == "eventual"
    (outcome,) = compactor(store).run(LOG)
    done = "1 repaired" if eventual else "1 aborted"
    assert (outcome.table, outcome.failed) == ("shop.orders", False)
    assert done in (outcome.done or "")
    assert open_in_log(dead) == []
    if eventual:
        assert applied(dead) == rows(dead)
    assert list(compactor(store).run(LOG)) == [], "it is done"


def test_nobody_takes_another_log_for_the_tables(store: Store) -> None:
    """The log's folder is replaced by one that was made later: its offsets mean other records."""
    table = store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=["id"])
    put(table, 1)
    config = table.opened.log_config()
    assert config is not None
    shutil.rmtree(Path(config.location))
    with open_log(config, system_ambient()) as log:
        log.create()
    fresh = again(table)
    for use in (
        lambda: put(fresh, 2),
        fresh.recover,
        fresh.log_status,
        lambda: list(fresh.follow(stop=0)),
        lambda: fresh.system("audit_log"),
        lambda: fresh.rollback(0),
    ):
        with pytest.raises(Corrupt) as caught:
            use()
        assert caught.value.code == "log-replaced"
