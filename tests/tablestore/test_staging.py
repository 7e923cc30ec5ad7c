"""Staged runs: sorted pieces of a write, read back as the one sorted stream that a fold wants."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tablestore.spark.staging
from filestore.chunks import BUCKET_COLUMN
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.writer import TableFiles
from tablestore import Store, Table
from tablestore.spark.staging import merged, remove, stage
from tablestore.transaction import WriteJob
from tests.warehouses import assert_whole, orphans, to_arrow

SHAPES: dict[str, dict[str, Any]] = {
    "one-key": {"primary_key": ["id"]},
    "composite": {"primary_key": ["name", "id"], "partition_by": []},
    "partitioned": {"primary_key": ["day", "id"], "partition_by": ["day"]},
    "append": {"partition_by": ["day"]},
    "append-unpartitioned": {},
}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tablestore.spark.staging, "_RUN_ROWS", 50)
    monkeypatch.setattr(tablestore.spark.staging, "_GROUP_ROWS", 7)


def rows_of(dice: random.Random, count: int, nulls: bool) -> Iterator[dict[str, Any]]:
    for i in range(count):
        day = None if nulls and dice.random() < 0.2 else dice.randrange(3)
        yield {"id": dice.randrange(60), "name": dice.choice("aäb"), "day": day, "n": i, "tags": [i, None]}


@pytest.mark.parametrize("shape", SHAPES)
def test_runs_of_many_tasks_are_one_sorted_stream(store: Store, shape: str) -> None:
    dice = random.Random(7)
    columns = "id BIGINT, name STRING, day INT, n INT, tags ARRAY<INT>"
    table: Table = store.create_table("shop.t", columns, options={"bucket": "3"}, **SHAPES[shape])
    files: TableFiles = table.filestore.files(table.filestore.state())
    everything: list[dict[str, Any]] = []
    runs: list[str] = []
    for task in range(4):
        batches = [
            list(rows_of(dice, dice.choice([0, 3, 90, 200]), not table.definition.primary_key)) for _ in range(2)
        ]
        everything += [row for batch in batches for row in batch]
        runs += stage(files, (to_arrow(table, batch) for batch in batches if batch), task)
    assert len(runs) > 4
    found = [row for batch in merged(files, runs) for row in batch.to_pylist()]
    assert len(found) == len(everything)
    order = [*table.definition.partition_by, BUCKET_COLUMN, *table.definition.sort_key]
    places = [tuple((row[c] is not None, row[c]) for c in order) for row in found]
    assert places == sorted(places)
    assert len({row[ORDINAL_COLUMN] for row in found}) == len(found)

    table.writer().write(lambda job: [fold(job, files, runs)])
    remove(files, runs)
    assert orphans(table) == []
    after = assert_whole(table)
    if table.definition.primary_key:
        last = {tuple(row[k] for k in table.definition.primary_key): row["n"] for row in everything}
        assert {tuple(row[k] for k in table.definition.primary_key): row["n"] for row in after} == last
    else:
        assert len(after) == len(everything)


def fold(job: WriteJob, files: TableFiles, runs: list[str]) -> Any:
    return job.run(merged(files, runs), "0.0")


def test_no_rows_are_no_runs(store: Store) -> None:
    table = store.create_table("shop.t", "id BIGINT", primary_key=["id"])
    files = table.filestore.files(table.filestore.state())
    assert stage(files, [], 0) == ()
    assert list(merged(files, [])) == []


def test_after_an_error_nothing_stays(store: Store) -> None:
    table = store.create_table("shop.t", "id BIGINT", primary_key=["id"])
    files = table.filestore.files(table.filestore.state())

    def batches() -> Iterator[Any]:
        for _ in range(3):
            yield to_arrow(table, [{"id": i} for i in range(60)])
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        stage(files, batches(), 0)
    assert orphans(table) == []
    assert not list(Path(table.location).rglob("staged-*"))
