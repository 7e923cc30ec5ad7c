"""Spark's Python workers keep what look-ups read for the tasks of later writes, without a file that outlives them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from filestore.files.writer import TableFiles
from tablestore import Store, Table
from tablestore.spark import SparkStore
from tests.depth import sampled
from tests.warehouses import assert_whole, rows

BATCHES = 8


def held(lake: SparkStore, table: Table) -> list[dict[str, object]]:
    """What each worker that answers holds of the table."""
    files = table.filestore.table_files(table.filestore.state())
    reported = lake.spark.range(4, numPartitions=4).mapInArrow(_telling(files), "pid long, bytes long, folder string")
    return [row.asDict() for row in reported.collect()]


def _telling(files: TableFiles) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def tell(_: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        cache = files.cache
        assert cache is not None
        yield pa.RecordBatch.from_pylist([{"pid": os.getpid(), "bytes": cache.disk_bytes, "folder": cache.folder}])

    return tell


@pytest.mark.deep
@pytest.mark.parametrize("engine", sampled(["partial-update", "deduplicate"], 2, test=2))
def test_tasks_share_what_their_worker_keeps(lake: SparkStore, store: Store, engine: str) -> None:
    options = {
        "bucket": "1",
        "changelog-producer": "lookup",
        "merge-engine": engine,
        "lookup.cache-max-memory-size": "1 b",  # all columns go to the disk
    }
    name = f"shop.kept_{engine.replace('-', '_')}"
    if engine == "partial-update":
        options["log.system"] = "none"
    table = store.create_table(name, "id BIGINT, v BIGINT, t STRING", primary_key=["id"], options=options)
    lake.write(name, lake.spark.range(500).selectExpr("id", "0L AS v", "'old' AS t"))
    lake.write(name, lake.spark.range(1).selectExpr("id", "1L AS v", "'old' AS t"))
    assert not any(worker["bytes"] for worker in held(lake, table)), "one look-up keeps nothing"
    for number in range(BATCHES):  # each worker gets some of the tasks
        lake.write(name, lake.spark.range(0, 500, 7).selectExpr("id", f"{number + 2}L AS v", "'new' AS t"))
    workers = held(lake, table)
    keeping = [worker for worker in workers if worker["bytes"]]
    assert keeping
    for worker in keeping:
        folder = str(worker["folder"])
        maps = Path(f"/proc/{worker['pid']}/maps")
        mapped = [line for line in maps.read_text().splitlines() if folder in line] if maps.exists() else [" (deleted)"]
        assert mapped
        assert all(line.endswith(" (deleted)") for line in mapped), "no file of them has a name"
    expected = {n: (0, "old") for n in range(500)} | {0: (1, "old")}
    expected |= {n: (BATCHES + 1, "new") for n in range(0, 500, 7)}
    assert {row["id"]: (row["v"], row["t"]) for row in rows(table)} == expected
    assert_whole(table)
