"""How a writing task of Spark sorts: in memory, or in runs on its disk, which it removes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from filestore.errors import InvalidRequest, Unavailable
from filestore.files.writer import TableFiles
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.sorting.chunks import BUCKET_COLUMN
from tablestore import Store
from tablestore.spark.batch.writing import _in_order

ROWS = 500


@pytest.fixture
def disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The two disks of an executor."""
    paths = [tmp_path / "first", tmp_path / "second"]
    for path in paths:
        path.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", ",".join(map(str, paths)))
    return paths


@pytest.fixture
def files(store: Store) -> TableFiles:
    options = {"bucket": "4", "write-buffer-size": "1 kb"}
    table = store.create_table("shop.t", "id STRING", primary_key=["id"], options=options)
    return table.filestore.table_files(table.filestore.state())


def batches(*texts: bytes) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(texts), 50):
        part = pa.array(texts[start : start + 50], pa.binary())
        ordinals = pa.array(range(start, start + len(part)), pa.int64())
        text = pa.Array.from_buffers(pa.string(), len(part), part.buffers())
        yield pa.record_batch([text, ordinals], names=["id", ORDINAL_COLUMN])


def keys() -> list[bytes]:
    return [f"{n * 7919 % ROWS:04}".encode() for n in range(ROWS)]


def below(disks: list[Path]) -> list[Any]:
    return [path for disk in disks for path in disk.iterdir()]


@pytest.mark.parametrize("task", [0, 1])
def test_runs_are_on_the_tasks_disk_and_are_gone_at_the_end(files: TableFiles, disks: list[Path], task: int) -> None:
    stream = _in_order(batches(*keys()), files, task)
    first = next(stream)
    (folder,) = disks[task].iterdir()
    assert len(list(folder.iterdir())) > 2, "so many runs"
    rows = [row for batch in (first, *stream) for row in batch.to_pylist()]
    assert [row["id"] for row in rows] == [f"{n:04}" for n in range(ROWS)]
    assert {row[BUCKET_COLUMN] for row in rows} == {task}
    assert below(disks) == []


def test_a_task_that_ends_early_leaves_nothing(files: TableFiles, disks: list[Path]) -> None:
    stream = _in_order(batches(*keys()), files, 0)
    next(stream)
    assert below(disks)
    stream.close()
    assert below(disks) == []


@pytest.mark.parametrize("count", [10, ROWS], ids=["in-memory", "in-runs"])
def test_a_key_that_is_not_utf_8_is_refused_wherever_it_is_sorted(
    files: TableFiles, disks: list[Path], count: int
) -> None:
    """In runs polars panicked, and Spark retried the task though it failed each time."""
    texts = keys()[:count]
    texts[-1] = b"b\xff"
    with pytest.raises(InvalidRequest, match="not UTF-8") as caught:
        list(_in_order(batches(*texts), files, 0))
    assert caught.value.code == "bad-value"
    assert below(disks) == []


def test_a_disk_that_is_gone_can_be_tried_again(files: TableFiles, disks: list[Path]) -> None:
    disks[0].rmdir()
    with pytest.raises(Unavailable, match="first"):
        list(_in_order(batches(*keys()), files, 0))
