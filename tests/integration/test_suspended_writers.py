"""Writers to S3 and Kafka that are stopped past their time, and woken: fenced, or committed exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import tablestore
from filestore.layout import LEASES, join
from filestore.model.snapshot import Operation
from tablestore import Table
from tests.depth import Depth, sampled
from tests.integration.foreign import ForeignConsumer
from tests.integration.suspended_writers import POINTS, suspended
from tests.opened import again
from tests.servers.kafka import KafkaBroker
from tests.servers.s3 import S3Endpoint
from tests.waiting import until
from tests.warehouses import changes, replay, rows

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(900)]

DDL = "id BIGINT, v STRING, PRIMARY KEY (id) NOT ENFORCED"
MODES = {
    "transactions": {},
    "plain": {"log.kafka.transactions": "false"},
    "eventual": {"log.consistency": "eventual"},
}


@pytest.fixture
def connecting(
    moto: S3Endpoint, kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """The arguments of `tablestore.connect` for a warehouse of its own, in which tables have a log by default."""
    moto.set_environment(monkeypatch)
    return {
        "target": f"s3://{moto.new_bucket()}/lake",
        "database": f"sqlite:///{tmp_path}/catalog.db",
        "storage_options": {"endpoint": moto.endpoint, "region": moto.region},
        "brokers": kafka_broker.bootstrap,
    }


@pytest.fixture
def store(connecting: dict[str, Any]) -> Iterator[tablestore.Store]:
    with tablestore.connect(**connecting) as opened:
        opened.create_database("shop")
        yield opened


def create(store: tablestore.Store, mode: str = "transactions") -> Table:
    options = {"bucket": "2", "log.lease-timeout": "1 s", **MODES[mode]}
    made = store.create_table("shop.t", DDL, options=options)
    assert isinstance(made, Table) and made.definition.options["log.system"] == "kafka"
    made.write([{"id": n, "v": "first"} for n in range(6)])
    return made


GIVEN_UP = list(POINTS)[1:7]
"""Between its lease and its entry. Before it nobody knows of the writer; behind it, it has committed."""

WRITTEN = [{"id": n, "v": "writer"} for n in range(4)]


def check(table: Table, outcome: str | None, mode: str = "transactions") -> None:
    """Files, log, followers and other consumers agree; what was acknowledged is there once, and nothing else.

    Args:
        table: The table.
        outcome: The id of a writer's commit, or the code of its error; None if it was killed, which leaves files.
        mode: One of `MODES`.
    """
    table.recover()
    versions = [s.version for s in table.snapshots() if s.commit_id == outcome]
    assert versions or outcome in (None, "fenced"), outcome
    assert len(versions) <= 1
    report = table.examine()
    assert report.healthy and (outcome is None or not report.orphans), report.findings
    found = rows(table)
    assert [r["v"] for r in found[:4]] in (["writer"] * 4, ["first"] * 4, ["later"] * 4)
    assert replay(changes(table, version=0), ["id"]) == replay(changes(table), ["id"]) == found
    assert not table.opened.storage.list_tagged(join(table.location, LEASES))
    if mode == "transactions":
        with ForeignConsumer(table) as consumer:
            consumer.catch_up()


@pytest.mark.parametrize("point", sampled(POINTS, fast=11, test=11))
def test_a_writer_is_given_up_and_goes_on(
    store: tablestore.Store, connecting: dict[str, Any], moto: S3Endpoint, point: str
) -> None:
    table = create(store)
    with suspended(connecting, moto.environment(), WRITTEN, point) as writer:
        again(table).recover()
        outcome = writer.goes_on()
    check(table, outcome)
    fences = [s for s in table.snapshots() if s.operation is Operation.FENCE]
    assert (outcome == "fenced") == (point in GIVEN_UP), outcome
    assert len(fences) == 1 if point in GIVEN_UP else len(fences) <= 1


@pytest.mark.deep
@pytest.mark.parametrize("mode", sampled(["eventual", "transactions", "plain"], fast=3, test=3))
def test_the_next_writers_come_while_it_stands_still(
    store: tablestore.Store, connecting: dict[str, Any], moto: S3Endpoint, mode: str, depth: Depth
) -> None:
    """One of them finds its lease dead, as it writes again and again."""
    table = create(store, mode)
    for point in depth.sample(["once they are prepared", "behind its records", "behind its entry"], 2):
        with suspended(connecting, moto.environment(), WRITTEN, point) as writer:
            other = again(table)

            def finds_it(other: Table = other) -> bool:
                other.write([{"id": n, "v": "later"} for n in range(4)])
                return not other.opened.storage.list_tagged(join(other.location, LEASES))

            until(finds_it)
            outcome = writer.goes_on()
        assert mode != "eventual" or point != "once they are prepared" or outcome == "fenced"
        check(table, outcome, mode)


@pytest.mark.deep
@pytest.mark.parametrize("point", sampled(["once they are prepared", "behind its entry", "behind its lease"], 3, 3))
def test_a_writer_that_was_killed_is_recovered(
    store: tablestore.Store, connecting: dict[str, Any], moto: S3Endpoint, point: str
) -> None:
    table = create(store)
    with suspended(connecting, moto.environment(), WRITTEN, point) as writer:
        writer.dies()
    check(again(table), None)
    assert rows(table)[0]["v"] == ("writer" if point == "behind its entry" else "first")


@pytest.mark.deep
def test_a_compactor_recovers_in_its_second_look(
    store: tablestore.Store, connecting: dict[str, Any], moto: S3Endpoint
) -> None:
    table = create(store)
    with suspended(connecting, moto.environment(), WRITTEN, "once they are prepared") as writer:
        writer.dies()
    watching = again(table).writer()
    until(lambda: watching.recover(wait=False).aborted)
    check(table, None)


@pytest.mark.deep
def test_orphans_of_a_writer_at_work_stay(
    store: tablestore.Store, connecting: dict[str, Any], moto: S3Endpoint
) -> None:
    table = create(store)
    with suspended(connecting, moto.environment(), WRITTEN, "once they are prepared") as writer:
        assert again(table).remove_orphans(older_than=timedelta(0), dry_run=False, even_young=True) == []
        outcome = writer.goes_on()
    check(table, outcome)
    assert outcome != "fenced"
