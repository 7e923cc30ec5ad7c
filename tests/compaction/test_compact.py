"""Compaction changes files and no row; writers and compactions do not stop each other."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tablestore
from compaction.merge import CompactionResult
from filestore.errors import Conflict, InvalidRequest
from filestore.model.snapshot import Operation
from tablestore import Table, care

SCHEMAS = {
    "bigint": ("id BIGINT, v STRING", ["id"]),
    "composite": ("name STRING, id INT, v STRING", ["name", "id"]),
}


def make(folder: Path, shape: str = "bigint", **options: str) -> Table:
    schema, key = SCHEMAS[shape]
    store = tablestore.connect(str(folder / "warehouse"))
    store.create_database("shop", if_not_exists=True)
    settings_ = {"log.system": "none", "row-group.rows": "1024", **options}
    return store.create_table("shop.t", schema, primary_key=key, options=settings_)


def rows(ids: list[int], value: str, kind: str | None = None) -> pa.Table:
    table = pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([value] * len(ids))})
    return table if kind is None else table.append_column("_kind", pa.array([kind] * len(ids)))


def content(table: Table) -> dict[tuple[object, ...], str]:
    *key, value = table.schema.names
    frame = pl.scan_delta(table.location).collect()
    assert frame.sort(key).equals(table.scan().to_polars().sort(key))
    found = {tuple(row[k] for k in key): row[value] for row in frame.to_dicts()}
    assert len(found) == frame.height
    return found


def healthy(table: Table) -> None:
    assert not table.examine().problems


@settings(
    max_examples=settings.default.max_examples // 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    shape=st.sampled_from(sorted(SCHEMAS)),
    writes=st.lists(
        st.tuples(st.lists(st.integers(0, 40), min_size=1, max_size=60), st.booleans()), min_size=1, max_size=6
    ),
)
def test_the_same_rows_before_and_after(
    tmp_path_factory: pytest.TempPathFactory, shape: str, writes: list[tuple[list[int], bool]]
) -> None:
    table = make(tmp_path_factory.mktemp("merge"), shape, bucket="2")
    for number, (ids, delete) in enumerate(writes):
        batch = rows(ids, f"v{number}", "-D" if delete else "+I")
        if shape == "composite":
            names = pa.array([f"n{i % 3}" for i in ids])
            batch = batch.set_column(0, "id", batch["id"].cast(pa.int32())).append_column("name", names)
        table.write(batch)
    before = content(table)

    snapshot = table.compact(full=True)

    assert content(table) == before
    healthy(table)
    assert table.compact(full=True) is None
    if snapshot is not None:
        assert snapshot.operation is Operation.COMPACT
        assert all(f.vector is None for f in table.files())
        assert len(table.files()) <= 2


@pytest.mark.slow
def test_merges_more_rows_than_a_row_group_and_rolls_files(tmp_path: Path) -> None:
    table = make(tmp_path, **{"target-file-size": "16 kb"})
    for step in range(4):
        ids = range(step, 12_000, 3)
        table.write(pa.table({"id": list(ids), "v": [f"{i * 7919 % 10_007} in step {step}" for i in ids]}))
    before = content(table)

    table.compact(full=True)

    assert content(table) == before
    healthy(table)
    files = sorted(table.files(), key=lambda f: f.min_key or "")
    assert len(files) > 1
    assert sum(f.rows for f in files) == len(before)


def test_trigger_leaves_slots_with_few_runs_alone(tmp_path: Path) -> None:
    table = make(tmp_path, **{"num-sorted-run.compaction-trigger": "3"})
    table.write(rows([1], "a"))
    table.write(rows([2], "b"))
    assert table.compact() is None
    table.write(rows([3], "c"))
    assert table.compact() is not None
    assert len(table.files()) == 1


@pytest.mark.parametrize("mode", ["merge-on-write", "merge-on-read"])
def test_only_the_partitions_that_are_named_are_compacted(tmp_path: Path, mode: str) -> None:
    with tablestore.connect(str(tmp_path)) as store:
        store.create_database("shop")
        table = store.create_table(
            "shop.days",
            "day DATE NOT NULL, hour INT NOT NULL, id INT NOT NULL",
            primary_key=["day", "hour", "id"],
            partition_by=["day", "hour"],
            options={"write-mode": mode},
        )
        days = [date(2026, 1, 1), date(2026, 1, 2)]
        for number in range(3):
            table.write([{"day": day, "hour": hour, "id": number} for day in days for hour in (0, 1)])
        before = sorted(map(repr, table.scan().to_arrow().to_pylist()))

        def runs() -> dict[tuple[date, int], tuple[int, int]]:
            found = table.system("partitions").to_arrow().to_pylist(maps_as_pydicts="strict")
            keys = [(date.fromisoformat(row["partition"]["day"]), int(row["partition"]["hour"])) for row in found]
            return {key: (row["file_count"], row["pending_record_count"]) for key, row in zip(keys, found, strict=True)}

        apart = runs()
        assert table.compact(full=True, partitions=[{"day": days[0], "hour": 1}]) is not None
        assert runs() == apart | {(days[0], 1): (1, 0)}
        assert table.compact(full=True, partitions=[{"day": "2026-01-01", "hour": "1"}]) is None
        assert table.compact(full=True, partitions=[{"day": days[1]}]) is not None
        assert runs() == apart | {(days[0], 1): (1, 0), (days[1], 0): (1, 0), (days[1], 1): (1, 0)}
        for wrong in ([], [{}], [{"id": 1}], [{"day": "never"}]):
            with pytest.raises(InvalidRequest):
                table.compact(partitions=wrong)
        assert sorted(map(repr, table.scan().to_arrow().to_pylist())) == before
        assert table.examine().healthy


def between(table: Table, monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Runs `action` after the merge has read its inputs and before its commit."""
    merge = care.compact_slots

    def hooked(*args: Any, **named: Any) -> list[CompactionResult]:
        made = merge(*args, **named)
        monkeypatch.setattr(care, "compact_slots", merge)
        action()
        return made

    monkeypatch.setattr(care, "compact_slots", hooked)


def test_upserts_and_deletes_meanwhile_survive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path)
    table.write(rows(list(range(5000)), "old"))
    table.write(rows(list(range(0, 5000, 2)), "even"))

    def meanwhile() -> None:
        table.write(rows([10, 11, 9000], "new"))
        table.write(rows([20, 21], "", "-D"))

    between(table, monkeypatch, meanwhile)
    snapshot = table.compact(full=True)

    assert snapshot is not None
    assert snapshot.version == 5
    wanted = {(i,): "even" if i % 2 == 0 else "old" for i in range(5000)} | {(i,): "new" for i in (10, 11, 9000)}
    assert content(table) == {k: v for k, v in wanted.items() if k not in ((20,), (21,))}
    healthy(table)


def test_an_input_that_died_out_meanwhile_is_no_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path)
    table.write(rows(list(range(100)), "old"))
    table.write(rows([1, 2], "short-lived"))
    between(table, monkeypatch, lambda: table.write(rows([1, 2], "new")))

    assert table.compact(full=True) is not None

    assert content(table)[(1,)] == "new"
    healthy(table)


@pytest.mark.parametrize("thief", ["overwrite", "compaction"])
def test_inputs_taken_away_are_a_conflict_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thief: str
) -> None:
    table = make(tmp_path)
    table.write(rows([1, 2], "a"))
    table.write(rows([2, 3], "b"))
    actions = {
        "overwrite": lambda: table.write(rows([7], "whole"), overwrite=True),
        "compaction": lambda: table.compact(full=True),
    }
    between(table, monkeypatch, actions[thief])

    with pytest.raises(Conflict, match="compact again"):
        table.compact(full=True)

    wanted = {(7,): "whole"} if thief == "overwrite" else {(1,): "a", (2,): "b", (3,): "b"}
    assert content(table) == wanted
    healthy(table)


def test_followers_see_nothing_of_a_compaction(tmp_path: Path) -> None:
    table = make(tmp_path, **{"log.system": "embedded"})
    table.write(rows([1, 3], "a"))
    table.write(rows([1], "b"))
    snapshot = table.compact(full=True)
    table.write(rows([2], "c"))
    assert snapshot is not None
    seen = [r for batch in table.follow(version=snapshot.version - 1, stop=4) for r in batch.to_pylist()]
    assert [r["id"] for r in seen] == [2]
