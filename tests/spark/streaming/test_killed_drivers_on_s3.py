"""A driver writes a table in S3 with its log in Kafka, follows it by a stream, and dies; a new one goes on.

Each run has a checkpoint in S3 and a JVM of its own. What the stream writes has no key, so that a change that arrived
twice would be there twice.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tablestore
from tablestore import Store, Table
from tests.depth import Depth
from tests.integration.crashing import after
from tests.integration.foreign import ForeignConsumer
from tests.integration.test_killed_writers import by_value
from tests.servers.kafka import KafkaBroker
from tests.servers.s3 import S3Endpoint
from tests.servers.spark import ROOT
from tests.spark.streaming.dying_copy import SEED
from tests.spark.streaming.dying_query import DIED
from tests.tables import assert_healthy
from tests.warehouses import assert_whole, changes, replay, rows

pytestmark = [
    pytest.mark.deep(rarely=4),
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.s3,
    pytest.mark.timeout(1800),
]


@pytest.fixture
def store(
    moto: S3Endpoint, kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Store]:
    moto.set_environment(monkeypatch)
    with tablestore.connect(
        f"s3://{moto.new_bucket()}/lake",
        database=f"sqlite:///{tmp_path}/catalog.db",
        storage_options={"endpoint": moto.endpoint, "region": moto.region},
        brokers=kafka_broker.bootstrap,
    ) as opened:
        opened.create_database("shop")
        yield opened


def create(store: Store, name: str, columns: str, *key: str) -> Table:
    options = {"bucket": "2", "log.lease-timeout": "1 s"}
    table = store.create_table(name, columns, primary_key=key, options=options)
    assert isinstance(table, Table)
    assert table.definition.options["log.system"] == "kafka"
    return table


def run(store: Store, moto: S3Endpoint, tmp_path: Path, number: int, call: int, behind: str = "") -> int | None:
    """Runs the program; returns how many calls its driver made, None if it died."""
    command = [sys.executable, "-m", "tests.spark.streaming.dying_copy", store.target]
    command += [f"sqlite:///{tmp_path}/catalog.db", moto.endpoint, moto.region, str(number), str(call), behind]
    done = subprocess.run(command, timeout=900, check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode in (0, DIED), done.stderr[-3000:]
    return None if done.returncode else int(done.stdout.split()[-1])


def test_deaths_of_a_driver(store: Store, moto: S3Endpoint, tmp_path: Path, depth: Depth) -> None:
    rounds = depth.times(1, deep=3)
    source = create(store, "shop.source", "id BIGINT, batch BIGINT", "id")
    seen = create(store, "shop.seen", "id BIGINT, batch BIGINT, kind STRING")
    calls = run(store, moto, tmp_path, 0, 0)
    assert calls is not None
    # it dies between our commit and Spark's; then its life is cut into equal parts, and it dies once in each of them
    parts = [range(1 + calls * part // rounds, 1 + calls * (part + 1) // rounds) for part in range(rounds)]
    deaths = [(0, "seen"), *((random.choice(part), "") for part in parts)]
    died = 0
    for number, death in enumerate(deaths, 1):
        where = f"round {number}, death {death} of {calls}"
        died += run(store, moto, tmp_path, number, *death) is None
        assert rows(source) in [by_value(after(SEED, range(n))) for n in (number, number + 1)], where
        assert counted(rows(seen)) <= counted(logged(source)), where
        for table in (source, seen):
            assert_healthy(table.filestore)
        assert run(store, moto, tmp_path, number, 0) is not None, where
        assert rows(source) == by_value(after(SEED, range(number + 1))), where
        assert counted(rows(seen)) == counted(logged(source)), where
    assert died > rounds // 2
    for table in (source, seen):
        table.recover()
        with ForeignConsumer(table) as foreign:
            foreign.catch_up()
        assert_whole(table)
    assert replay(changes(source, version=0), ["id"]) == rows(source)


def logged(table: Table) -> list[dict[str, Any]]:
    """All changes that the table ever had, with the columns that the stream writes."""
    return [{"id": row["id"], "batch": row["batch"], "kind": row["_kind"]} for row in changes(table, version=0)]


def counted(found: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in found)
