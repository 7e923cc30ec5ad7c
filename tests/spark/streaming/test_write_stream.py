"""`write_stream`: each micro-batch is one commit, exactly once, whatever is repeated or dies."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from filestore.errors import Unavailable
from filestore.table import FileStore
from tablestore import Store, Table
from tablestore.spark import SparkStore
from tests.servers.kafka import KafkaBroker
from tests.warehouses import assert_whole, rows

ORDERS = "id BIGINT, name STRING"
NOW = {"availableNow": True}


@pytest.fixture
def orders(store: Store) -> Table:
    return store.create_table("shop.orders", ORDERS, primary_key=["id"], options={"bucket": "2"})


@pytest.fixture
def inbox(folder: Path) -> Iterator[Path]:
    path = folder / "inbox"
    path.mkdir()
    yield path


def drop_in(inbox: Path, number: int, *found: dict[str, Any]) -> None:
    """One more input file: one more micro-batch."""
    draft = inbox.parent / "draft"
    draft.write_text("".join(json.dumps(row) + "\n" for row in found))
    os.utime(draft, (1_700_000_000 + number,) * 2)  # Spark takes the oldest first
    draft.rename(inbox / f"{number:05d}.json")


def files(lake: SparkStore, inbox: Path) -> DataFrame:
    return lake.spark.readStream.schema(f"{ORDERS}, _kind STRING").option("maxFilesPerTrigger", "1").json(str(inbox))


def run(lake: SparkStore, inbox: Path, folder: Path) -> None:
    stream = lake.write_stream("shop.orders", files(lake, inbox), checkpoint=str(folder / "checkpoint"), trigger=NOW)
    stream.awaitTermination()


def row(i: int, name: str, kind: str = "+U") -> dict[str, Any]:
    return {"id": i, "name": name, "_kind": kind}


def test_a_batch_is_a_commit_and_a_repeated_one_is_none(
    lake: SparkStore, orders: Table, inbox: Path, folder: Path
) -> None:
    drop_in(inbox, 0, row(1, "a"), row(2, "a"))
    drop_in(inbox, 1, row(2, "b"), row(1, "", "-D"))
    run(lake, inbox, folder)
    assert orders.filestore.state().version == 2
    assert rows(orders) == [{"id": 2, "name": "b"}]
    # as if the driver had died after its commit and before Spark noted it
    (folder / "checkpoint" / "commits" / "1").unlink()
    (folder / "checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    drop_in(inbox, 2, row(3, "c"))
    run(lake, inbox, folder)
    assert orders.filestore.state().version == 3
    assert [r["id"] for r in assert_whole(orders, leftovers=False)] == [2, 3]
    [app] = [a for a in orders.filestore.state().app_versions if a.startswith("spark.")]
    assert orders.filestore.state().app_versions[app] == 2


def test_another_query_is_another_app(lake: SparkStore, orders: Table, inbox: Path, folder: Path) -> None:
    drop_in(inbox, 0, row(1, "a"))
    run(lake, inbox, folder)
    lake.write_stream(
        "shop.orders", files(lake, inbox), checkpoint=str(folder / "other"), trigger=NOW
    ).awaitTermination()
    assert orders.filestore.state().version == 2


def test_a_query_that_fails_at_its_commit_goes_on_where_it_was(
    lake: SparkStore, orders: Table, inbox: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop_in(inbox, 0, row(1, "a"))
    run(lake, inbox, folder)
    drop_in(inbox, 1, row(2, "a"))

    def full(*_: Any) -> Any:
        raise Unavailable("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(FileStore, "commit_version", full)
        with pytest.raises(StreamingQueryException, match="disk full"):
            run(lake, inbox, folder)
    assert orders.filestore.state().version == 1
    run(lake, inbox, folder)
    assert [r["id"] for r in assert_whole(orders)] == [1, 2]


@pytest.mark.deep
def test_a_table_is_copied_by_a_stream_from_kafka_to_another(
    lake: SparkStore, store: Store, kafka_broker: KafkaBroker, folder: Path
) -> None:
    """Snapshot, changes, deletes and an overwrite, over restarts."""
    options = {"bucket": "2", "log.system": "kafka", "log.kafka.bootstrap.servers": kafka_broker.bootstrap}
    source = store.create_table("shop.source", ORDERS, primary_key=["id"], options=options)
    copy = store.create_table("shop.copy", ORDERS, primary_key=["id"], options=options | {"bucket": "3"})

    def follow() -> None:
        stream = lake.read_stream("shop.source", max_rows_per_batch=150)
        lake.write_stream("shop.copy", stream, checkpoint=str(folder / "checkpoint"), trigger=NOW).awaitTermination()

    source.write(pa.table({"id": range(100), "name": ["a"] * 100}))
    follow()
    assert rows(copy) == rows(source)
    for i in range(4):
        source.write(pa.table({"id": range(i * 10, i * 10 + 60), "name": [f"b{i}"] * 60}))
        source.write(pa.table({"id": [i, 50 + i], "_kind": ["-D", "-D"]}))
    follow()
    assert rows(copy) == rows(source)
    source.write(pa.table({"id": range(95, 120), "name": ["c"] * 25}), overwrite=True)
    source.write(pa.table({"id": [95, 200], "_kind": ["-D", "+I"], "name": ["", "d"]}))
    follow()
    assert assert_whole(copy, leftovers=False) == rows(source)
