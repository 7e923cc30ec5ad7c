"""Folds compared with a dict: many files and row groups, deletes, late rows, wrong rows (FORMAT.md section 10)."""

from __future__ import annotations

import datetime
import gc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.delta.by_slot import LookupFiles
from filestore.errors import Conflict, InvalidRequest, NotFound
from filestore.model.rowkind import KIND_COLUMN
from filestore.sorting.chunks import BUCKET_COLUMN
from filestore.writing.fold import rebase_slot
from filestore.writing.write import write_sorted
from tests.changes import assert_exact, by_deltalake
from tests.folders import memory_folder
from tests.model.model import apply_rows, tiny_row_groups
from tests.tables import assert_healthy, create, define, in_order, paths, prepare, read, seeded, to_arrow, write

ROWS = st.lists(
    st.fixed_dictionaries(
        {"id": st.integers(0, 40), "s": st.none() | st.integers(0, 9), "v": st.integers(0, 999)},
        optional={"_kind": st.sampled_from(["+I", "+U", "-U", "-D"])},
    ),
    max_size=50,
)
COLUMNS = "id BIGINT, s INT, v BIGINT"


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*") if "_delta_log" not in path.parts)


@pytest.mark.parametrize("sequence", [None, "s"])
@settings(max_examples=settings.default.max_examples)
@given(st.lists(ROWS, min_size=1, max_size=5), st.sampled_from(["1 b", "600 b", "1 gb"]), st.integers(1, 9))
def test_folds_against_a_dict(sequence: str | None, batches: list[list[dict[str, Any]]], size: str, group: int) -> None:
    options: dict[str, object] = {"row__group_rows": group, "target__file__size": size}
    if sequence:
        options |= {"sequence_field": sequence, "sequence_tombstone__retention": "0 s"}  # the dict forgets deletes
    with tiny_row_groups(), memory_folder() as folder:
        store = create(folder / "t", define(COLUMNS, ["id"], **options))
        rows: dict[Any, Any] = {}
        for batch in batches:
            before, rows = rows, apply_rows(rows, batch, ["id"], sequence)
            metrics = write(store, batch).snapshot.metrics
            assert read(store) == in_order(rows.values())
            assert len(rows) == len(before) + metrics["rows_written"] - metrics["rows_replaced"]
        assert_healthy(store)


@pytest.mark.parametrize("producer", [pytest.param("none", marks=pytest.mark.deep), "lookup"])
@given(st.lists(ROWS, min_size=1, max_size=4), st.integers(1, 9))
def test_a_fold_that_skips_unchanged_rows_writes_only_those_that_differ(
    producer: str, batches: list[list[dict[str, Any]]], group: int
) -> None:
    batches = [[row | {"v": row["v"] % 2, "s": None} for row in batch] for batch in batches]
    with tiny_row_groups(), memory_folder() as folder:
        definition = define(COLUMNS, ["id"], row__group_rows=group, changelog__producer=producer)
        store = create(folder / "t", definition)
        rows: dict[Any, Any] = {}
        for batch in [*batches, *batches[-1:]]:
            before, rows, files = rows, apply_rows(rows, batch, ["id"], None), store.state().files
            logged: list[pa.Table] = []
            committed = write(store, batch, skip_unchanged=True, log=lambda _, some, logged=logged: logged.append(some))
            assert read(store) == in_order(rows.values())
            changed = {key for key in before.keys() | rows.keys() if before.get(key) != rows.get(key)}
            gone = changed - rows.keys()
            metrics = committed.snapshot.metrics
            assert (metrics["rows_written"], metrics["rows_deleted"]) == (len(changed - gone), len(gone))
            assert changed or store.state().files == files
            kinds = {(row["id"],): row[KIND_COLUMN] for some in logged for row in some.to_pylist()}
            if producer == "none":
                assert kinds == {key: "-D" if key in gone else "+U" if key in before else "+I" for key in changed}
            else:
                assert set(kinds) == changed
        if producer == "lookup":
            assert_exact(store, by_deltalake(store))
        assert_healthy(store)


def test_files_are_cut_at_the_target_size(folder: Path) -> None:
    store = create(folder / "t", define(COLUMNS, ["id"], target__file__size="1 b", row__group_rows=1024))
    write(store, [{"id": n, "v": n} for n in range(5000)])
    ranges = sorted((f.min_key, f.max_key, f.rows) for f in store.state().files)
    assert [rows for *_, rows in ranges] == [1024, 1024, 1024, 1024, 904] or len(ranges) == 5
    assert_healthy(store)


def test_late_rows_of_later_chunks_are_dead_where_they_are_in_the_file(folder: Path) -> None:
    with tiny_row_groups():
        store = create(folder / "t", define(COLUMNS, ["id"], sequence_field="s", row__group_rows=3))
        write(store, [{"id": n, "s": 5, "v": 0} for n in range(12)])
        late = {4, 8, 9}
        write(store, [{"id": n, "s": 1 if n in late else 9, "v": 1} for n in range(12)])
        assert {row["id"] for row in read(store) if row["v"] == 0} == late
        assert len(read(store)) == 12
        assert_healthy(store)


@pytest.mark.parametrize("group", [1, 2, 9])
def test_regression_a_put_behind_a_former_row_counts_in_row_groups_of_any_size(folder: Path, group: int) -> None:
    """Where a key had more rows than half a row group, its `-U` was taken for the later one, and the row was lost."""
    options = {"row__group_rows": group, "sequence_field": "s", "sequence_tombstone__retention": "0 s"}
    with tiny_row_groups():
        store = create(folder / "t", define(COLUMNS, ["id"], **options))
        former = {"id": 0, "s": None, "v": 0}
        write(store, [{"id": 1, "s": None, "v": 0}, former | {KIND_COLUMN: "-U"}, former])
        assert [row["id"] for row in read(store)] == [0, 1]


def test_a_file_whose_rows_all_died_leaves(folder: Path) -> None:
    store = create(folder / "t", define(COLUMNS, ["id"]))
    write(store, [{"id": n, "v": 0} for n in range(9)])
    first = paths(store.state())
    write(store, [{"id": n, "v": 1} for n in range(9)])
    assert not first & paths(store.state())
    write(store, [{"id": n, "v": 1, KIND_COLUMN: "-D"} for n in range(9)])
    assert not store.state().files
    assert read(store) == []
    assert_healthy(store)


def test_a_file_whose_rows_died_one_after_the_other_leaves(folder: Path) -> None:
    store = create(folder / "t", define(COLUMNS, ["id"]))
    write(store, [{"id": n, "v": 0} for n in range(3)])
    (first,) = paths(store.state())
    for n in range(3):
        assert first in paths(store.state())
        write(store, [{"id": n, "v": 1}])
    assert first not in paths(store.state())
    assert_healthy(store)


def test_empty_writes_and_overwrites_by_nothing(folder: Path) -> None:
    store = create(folder / "t", define("id STRING, p STRING, v DECIMAL(30,2)", ["id", "p"], ["p"], bucket=3))
    assert write(store, []).snapshot.version == 1
    write(store, [{"id": "a", "p": "x", "v": None}])
    assert write(store, [], overwrite=True).snapshot.version == 3
    assert read(store) == []
    assert_healthy(store)


def test_deletes_of_keys_that_are_not_there_change_nothing(folder: Path) -> None:
    store = create(folder / "t", define(COLUMNS, ["id"]))
    write(store, [{"id": 1, "v": 1}])
    before = store.state().files
    assert write(store, [{"id": 7, KIND_COLUMN: "-D"}]).snapshot.metrics["rows_deleted"] == 1
    assert store.state().files == before


def test_a_delete_needs_its_key_only(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT, need STRING NOT NULL", ["id"]))
    write(store, [{"id": 1, "need": "x"}])
    write(store, [{"id": 1, "need": None, KIND_COLUMN: "-D"}])
    assert read(store) == []


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("code", "rows"),
    [
        ("null-key", [{"id": 1, "need": "x"}, {"id": None, "need": "x"}]),
        ("null-key", [{"id": None, KIND_COLUMN: "-D"}]),
        ("null-value", [{"id": 1, "need": "x"}, {"id": 2, "need": None}]),
        ("bad-row-kind", [{"id": 1, "need": "x", KIND_COLUMN: "+X"}]),
        ("bad-row-kind", [{"id": 1, "need": "x", KIND_COLUMN: None}]),
        ("out-of-range", pa.table({"id": [1], "need": ["x"], "t": pa.array([2**62], pa.timestamp("us", "UTC"))})),
        ("out-of-range", pa.table({"id": [1], "need": ["x"], "t": pa.array([-(2**62)], pa.timestamp("us", "UTC"))})),
        ("missing-column", pa.table({"id": [1], "need": ["x"]})),
        (
            "bad-type",
            pa.table({"id": pa.array([1], pa.int32()), "need": ["x"], "t": pa.nulls(1, pa.timestamp("us", "UTC"))}),
        ),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_leave_nothing(folder: Path, code: str, rows: Any) -> None:
    store = create(folder / "t", define("id BIGINT, need STRING NOT NULL, t TIMESTAMP", ["id"], bucket=1))
    with pytest.raises(InvalidRequest) as caught:
        write(store, rows)
    assert caught.value.code == code
    gc.collect()  # a writer that was not closed would complain now
    assert files_of(folder / "t") == []
    assert store.delta_log.versions() == [0]


def test_the_error_about_a_row_without_its_kind_says_null(folder: Path) -> None:
    """Found by a user, with dicts of which some had a kind: "column '_kind' holds 'None'"."""
    store = create(folder / "t", define("id BIGINT", ["id"]))
    for kind, shown in ((None, "null"), ("-d", "'-d'")):
        with pytest.raises(InvalidRequest, match=f"'_kind' contains {shown} in some row; give each row one of"):
            write(store, [{"id": 1, KIND_COLUMN: "-D"}, {"id": 2, KIND_COLUMN: kind}])


def test_an_error_in_a_later_chunk_removes_earlier_files(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT, v INT NOT NULL", ["id"], row__group_rows=1024))
    rows = [{"id": n, "v": None if n == 4000 else 1} for n in range(5000)] + [{"id": 9999, KIND_COLUMN: "-D"}]
    with pytest.raises(InvalidRequest):
        write(store, rows)
    gc.collect()
    assert files_of(folder / "t") == []


def test_days_at_the_edges_of_the_calendar(folder: Path) -> None:
    store = create(folder / "t", define("d DATE, t TIMESTAMP, n TIMESTAMP_NTZ", ["d"]))
    first = {
        "d": datetime.date.min,
        "t": datetime.datetime.min.replace(tzinfo=datetime.UTC),
        "n": datetime.datetime.min,
    }
    last = {"d": datetime.date.max, "t": datetime.datetime.max.replace(tzinfo=datetime.UTC), "n": datetime.datetime.max}
    write(store, [first, last])
    assert read(store) == in_order([first, last])
    assert_healthy(store)


def test_a_table_without_a_key_takes_inserts_only(folder: Path) -> None:
    store = create(folder / "t", define(COLUMNS, bucket=2))
    write(store, [{"id": 1, "v": 1}, {"id": 1, "v": 1}])
    write(store, [{"id": 1, "v": 1, KIND_COLUMN: "+I"}])
    assert len(read(store)) == 3
    for kind in ("-D", "+U", "-U"):
        with pytest.raises(InvalidRequest, match="no primary key"):
            write(store, [{"id": 1, KIND_COLUMN: kind}])
    assert_healthy(store)


def test_kinds_for_the_log_say_whether_the_key_was_there(folder: Path) -> None:
    store = create(folder / "t", define(COLUMNS, ["id"]))
    write(store, [{"id": 1, "v": 1}])
    changes: list[tuple[int, str]] = []
    write(
        store,
        [{"id": 1, "v": 2}, {"id": 2, "v": 2}],
        log=lambda _, rows: changes.extend(
            zip(rows.column("id").to_pylist(), rows.column(KIND_COLUMN).to_pylist(), strict=True)
        ),
    )
    assert changes == [(1, "+U"), (2, "+I")]


def test_late_rows_do_not_reach_the_log(folder: Path) -> None:
    store = create(folder / "t", define(COLUMNS, ["id"], sequence_field="s"))
    write(store, [{"id": 1, "s": 5, "v": 1}])
    changes: list[Any] = []
    late = [{"id": 1, "s": 4, "v": 2}, {"id": 2, "s": 1, "v": 2}, {"id": 1, "s": 3, KIND_COLUMN: "-D"}]
    metrics = write(store, late, log=lambda _, rows: changes.extend(rows.column("id").to_pylist())).snapshot.metrics
    assert changes == [2]
    assert metrics["rows_late"] == 1, "the two rows of key 1 were reduced to one"


def test_late_rows_and_deletes_are_counted_as_late_only(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT, s INT, v INT", ["id"], sequence_field="s"))
    write(store, [{"id": n, "s": 7, "v": 1} for n in range(3)])
    rows = [{"id": 0, "s": 5, KIND_COLUMN: "-D"}, {"id": 1, "s": 5, "v": 2}, {"id": 2, "s": 8, KIND_COLUMN: "-D"}]
    metrics = write(store, rows).snapshot.metrics
    counts = {name: metrics[name] for name in ("rows_written", "rows_deleted", "rows_replaced", "rows_late")}
    assert counts == {"rows_written": 0, "rows_deleted": 1, "rows_replaced": 1, "rows_late": 2}


def test_looking_again_from_scratch_is_the_same_as_folding(folder: Path) -> None:
    """Two writers begin on one version: the rebased second one commits what it would have committed on the first's."""
    ambient = seeded(1)
    store = create(folder / "t", define(COLUMNS, ["id"], sequence_field="s"), ambient=ambient)
    write(store, [{"id": n, "s": 5, "v": 0} for n in range(20)])
    mine = [{"id": n, "s": n % 10, "v": 1} for n in range(0, 30, 2)] + [{"id": 3, "s": 9, KIND_COLUMN: "-D"}]
    theirs = [{"id": n, "s": 6, "v": 2} for n in range(0, 30, 3)]
    second = prepare(store, mine)
    write(store, theirs)
    expected = apply_rows({(row["id"],): row for row in read(store)}, mine, ["id"], "s")
    committed = second.commit()
    assert len(second.rebases) == 1
    assert read(store) == in_order(expected.values())
    assert committed.snapshot.version == 3
    assert_healthy(store)


def test_looking_again_needs_no_key(folder: Path) -> None:
    store = create(folder / "t", define(COLUMNS))
    prepared = prepare(store, [{"id": 1, "v": 1}])
    (result,) = prepared.result.results
    assert rebase_slot(store.table_files(store.state()), (), result) == result


def test_a_write_on_a_dropped_table_is_refused(folder: Path) -> None:
    store = create(folder / "t", define(COLUMNS, ["id"]))
    write(store, [{"id": 1, "v": 1}])
    prepared = prepare(store, [{"id": 2, "v": 1}])
    store.storage.delete_tree(store.location)
    create(folder / "t", define(COLUMNS, ["id"]))
    with pytest.raises((NotFound, Conflict)):
        prepared.commit()


@pytest.mark.parametrize("ids", [[2, 1], [1, 3, 2], [*range(2000, 3100), 5]])
def test_unsorted_rows_are_refused(folder: Path, ids: list[int]) -> None:
    """Look-ups would not find the keys of files with unsorted rows."""
    store = create(folder / "t", define(COLUMNS, ["id"], row__group_rows=1024))
    rows = to_arrow(store.state().definition, [{"id": n} for n in ids]).append_column(
        BUCKET_COLUMN, pa.array([0] * len(ids), pa.int32())
    )
    with pytest.raises(InvalidRequest) as caught:
        list(write_sorted(store.table_files(store.state()), LookupFiles(), rows.to_batches()))
    assert caught.value.code == "unsorted-rows"
    assert files_of(folder / "t") == []


def test_a_slot_in_two_places_is_refused(folder: Path) -> None:
    store = create(folder / "t", define(COLUMNS, ["id"], bucket=2))
    rows = to_arrow(store.state().definition, [{"id": n} for n in range(3)])
    rows = rows.append_column(BUCKET_COLUMN, pa.array([0, 1, 0], pa.int32()))
    with pytest.raises(InvalidRequest, match="come in two places"):
        list(write_sorted(store.table_files(store.state()), LookupFiles(), rows.to_batches()))


@pytest.mark.parametrize("value", [{"a": None}, None, {"a": 1}])
def test_nulls_inside_of_a_struct(folder: Path, value: Any) -> None:
    store = create(folder / "t", define("id BIGINT, s STRUCT<a: INT NOT NULL>", ["id"]))
    if value == {"a": None}:
        with pytest.raises(InvalidRequest, match="do not fit"):
            write(store, [{"id": 1, "s": value}])
        assert files_of(folder / "t") == []
    else:
        write(store, [{"id": 1, "s": value}])
        assert read(store) == [{"id": 1, "s": value}]


def test_a_row_that_loses_to_a_delete_and_wins_after_it_is_logged_again(folder: Path) -> None:
    """The log has the writes in the order of their commits: the former winners are behind the row."""
    store = create(folder / "t", define(COLUMNS, ["id"], sequence_field="s"))
    write(store, [{"id": n, "s": 5, "v": 0} for n in range(3)])
    logged: list[Any] = []

    def log(_: Any, rows: pa.Table) -> None:
        logged.append(rows.select(["id", KIND_COLUMN]).to_pylist())

    second = prepare(store, [{"id": n, "s": 4, "v": 1} for n in range(3)], log=log)
    write(store, [{"id": 1, "s": 1, "v": 2}], overwrite=True)
    second.commit()
    assert logged == [[], [{"id": n, KIND_COLUMN: "+U"} for n in range(3)]]
    assert read(store) == [{"id": n, "s": 4, "v": 1} for n in range(3)]
    assert_healthy(store)
