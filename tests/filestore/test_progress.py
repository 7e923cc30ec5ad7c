"""Operations say how far they are to whoever passes a function; without one they count nothing."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from filestore.progress import Counter, Progress
from tablestore import Store, Table, connect

ROWS = 5_000


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    with connect(str(tmp_path / "warehouse")) as store:
        store.create_database("shop")
        yield made(store, "shop.orders")


def made(store: Store, name: str, **options: str) -> Table:
    return store.create_table(name, "id BIGINT, v STRING", primary_key=["id"], options={"bucket": "2", **options})


def parts(first: int = 0) -> pa.RecordBatchReader:
    """Rows in five batches."""
    rows = pl.DataFrame({"id": range(first, first + ROWS)}).with_columns(v=pl.lit("x")).to_arrow()
    batches = rows.combine_chunks().to_batches(ROWS // 5)
    return pa.RecordBatchReader.from_batches(batches[0].schema, batches)


def phases(seen: list[Progress]) -> dict[str, list[int]]:
    """Returns what was done by phase; it never falls, and never exceeds what there is to do."""
    found: dict[str, list[int]] = {}
    for one in seen:
        found.setdefault(one.phase, []).append(one.done)
        assert one.total is None or one.done <= one.total
    for counts in found.values():
        assert counts == sorted(counts)
    return found


def test_progress_reads_as_a_sentence() -> None:
    assert str(Progress("writing", 1_000, total=5_000)) == "writing 1,000 of 5,000 rows"
    assert str(Progress("checking", 3, "files")) == "checking 3 files"


def test_threads_lose_no_count() -> None:
    seen: list[Progress] = []
    counter = Counter(seen.append, "merging")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(counter.add, [1] * 500))
    assert [one.done for one in seen] == list(range(1, 501))


def test_a_write_reports_the_rows_of_each_batch(table: Table) -> None:
    seen: list[Progress] = []
    table.write(parts(), observe=seen.append)
    found = phases(seen)
    assert list(found) == ["reading", "writing"]
    assert found["reading"] == [1_000, 2_000, 3_000, 4_000, 5_000]
    assert found["writing"][-1] == ROWS
    assert seen[-1].total == ROWS
    assert len(seen) < 100, "never for each row"


def test_a_write_that_is_sorted_on_disk_reports_the_same(table: Table) -> None:
    table.alter("SET write-buffer-size = 64 kb")
    seen: list[Progress] = []
    table.write(parts(), observe=seen.append)
    found = phases(seen)
    assert (found["reading"][-1], found["writing"][-1], seen[-1].total) == (ROWS, ROWS, ROWS)
    assert len(found["writing"]) > 1


def test_a_compaction_reports_the_rows_of_all_buckets(table: Table) -> None:
    for first in (0, 1_000):
        table.write(parts(first))
    seen: list[Progress] = []
    table.compact(full=True, observe=seen.append)
    assert list(phases(seen)) == ["merging"]
    assert (seen[-1].done, seen[-1].total) == (6_000, 6_000)


def test_a_fold_reports_the_rows_of_pending_runs(tmp_path: Path) -> None:
    with connect(str(tmp_path / "warehouse")) as store:
        store.create_database("shop")
        later = made(store, "shop.later", **{"write-mode": "merge-on-read"})
        later.write(parts())
        seen: list[Progress] = []
        later.compact(full=True, observe=seen.append)
        assert phases(seen)["folding"][-1] == ROWS


def test_the_doctor_reports_each_file(table: Table, tmp_path: Path) -> None:
    table.write(parts())
    seen: list[Progress] = []
    with connect(str(tmp_path / "warehouse")) as store:
        assert store.examine("shop.orders", observe=seen.append).healthy
    assert [(one.done, one.total, one.unit) for one in seen] == [(1, 2, "files"), (2, 2, "files")]


def test_a_load_reports_what_it_reads_for_the_columns_first(tmp_path: Path) -> None:
    parts().read_all().to_pandas().to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "rows.json").write_text('{"id": 1}\n{"id": 2}\n')
    for file, count in (("rows.csv", ROWS), ("rows.json", 2)):
        seen: list[Progress] = []
        with connect(str(tmp_path / "warehouse")) as store:
            store.load(tmp_path / file, f"shop.{file[5:]}", observe=seen.append)
        found = phases(seen)
        assert list(found) == ["finding the columns of", "reading", "writing"]
        assert [counts[-1] for counts in found.values()] == [count] * 3


def test_an_error_of_whoever_looks_ends_the_write(table: Table) -> None:
    def fail(_: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.write(parts(), observe=fail)
    assert table.scan().count_rows() == 0
    assert table.examine().healthy
