"""Merge engines through both stores: stored rows, log records, races, compactions (FORMAT.md section 9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.errors import InvalidRequest
from tablestore import Store, Table
from tablestore.writing.write_job import TaskOutcome, WriteJob
from tests.warehouses import assert_whole, changes, replay, rows, warehouse
from tests.writers import sorted_batches

Row = dict[str, Any]

SUMS = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "fields.t.aggregate-function": "max"}
COLUMNS = "id BIGINT, n BIGINT, t STRING"
ENGINES = {
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": SUMS,
    "first-row": {"merge-engine": "first-row"},
}


def make(store: Store, options: dict[str, str], columns: str = COLUMNS, **how: Any) -> Table:
    return store.create_table("shop.t", columns, primary_key=how.pop("primary_key", ["id"]), options=options, **how)


def put(table: Table, *given: tuple[Any, ...]) -> None:
    names = table.schema.names if len(given[0]) == len(table.schema.names) else [*table.schema.names, "_kind"]
    columns = zip(*given, strict=True)
    types = {field.name: field.type for field in table.schema} | {"_kind": pa.string()}
    table.write(pa.table({n: pa.array(c, types[n]) for n, c in zip(names, columns, strict=True)}))


def after(engine: str, held: Row | None, row: Row) -> Row:
    """The stored row after one more, for the columns of `COLUMNS`."""
    if held is None:
        return dict(row)
    if engine == "first-row":
        return held
    if engine == "partial-update":
        return {name: held[name] if row[name] is None else row[name] for name in row}
    known = [v for v in (held["n"], row["n"]) if v is not None]
    texts = [v for v in (held["t"], row["t"]) if v is not None]
    return {"id": row["id"], "n": sum(known) if known else None, "t": max(texts) if texts else None}


ROW = st.fixed_dictionaries(
    {"id": st.integers(0, 4), "n": st.none() | st.integers(-5, 5), "t": st.none() | st.sampled_from(["a", "b", "cc"])}
)


@pytest.mark.few(2)
@pytest.mark.parametrize("engine", list(ENGINES))
def test_any_writes_and_compactions(engine: str) -> None:
    @settings(max_examples=settings.default.max_examples // 2)
    @given(st.lists(st.tuples(st.lists(ROW, min_size=1, max_size=6), st.booleans()), min_size=1, max_size=5))
    def holds(steps: list[tuple[list[Row], bool]]) -> None:
        with warehouse() as store:
            table = make(store, {**ENGINES[engine], "bucket": "2"})
            held: dict[int, Row] = {}
            for given_rows, compacts in steps:
                table.write(pa.Table.from_pylist(given_rows, schema=table.schema))
                for row in given_rows:
                    held[row["id"]] = after(engine, held.get(row["id"]), row)
                if compacts:
                    table.compact(full=True)
            expected = [held[key] for key in sorted(held)]
            assert sorted(assert_whole(table), key=lambda row: row["id"]) == expected
            found = pl.scan_delta(table.location).collect().sort("id").to_dicts()
            assert found == expected

    holds()


def test_the_log_contains_whole_rows_and_only_changed_ones(store: Store) -> None:
    table = make(store, SUMS)
    put(table, (1, 2, "a"), (2, 1, "b"))
    put(table, (1, 3, None), (2, 0, "a"), (3, 7, None))
    reported = [(row["_kind"], row["id"], row["n"], row["t"]) for row in changes(table, version=1)]
    assert sorted(reported) == [("+I", 3, 7, None), ("+U", 1, 5, "a")]
    assert replay(changes(table, version=0), ["id"]) == rows(table)


def test_a_write_that_changes_nothing_adds_no_file(store: Store) -> None:
    table = make(store, ENGINES["first-row"])
    put(table, (1, 1, "a"))
    files = table.files()
    put(table, (1, 2, "b"))
    assert table.files() == files
    assert changes(table, version=1) == []


@pytest.mark.parametrize("sequence", [False, True], ids=["arrival", "sequence"])
def test_a_delete_removes_the_record_if_asked_to(store: Store, sequence: bool) -> None:
    options = {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"}
    table = make(store, {**options, **({"sequence.field": "n"} if sequence else {})})
    put(table, (1, 5, "a", "+I"), (2, 5, "b", "+I"))
    put(table, (1, 6, None, "-D"), (2, 6, None, "-D"), (2, 7, None, "+I"))
    assert rows(table) == [{"id": 2, "n": 7, "t": None}]
    assert sorted(r["_kind"] for r in changes(table, version=1)) == ["+U", "-D"]
    if sequence:
        put(table, (2, 1, "late", "-D"))
        assert rows(table) == [{"id": 2, "n": 7, "t": None}], "a late delete changes nothing"
    assert_whole(table)


@pytest.mark.parametrize("engine", ["partial-update", "first-row"])
def test_deletes_are_refused_or_ignored(store: Store, engine: str) -> None:
    table = make(store, ENGINES[engine])
    with pytest.raises(InvalidRequest, match="ignore-delete"):
        put(table, (1, 1, "a", "-D"))
    store.drop_table("shop.t")
    table = make(store, {**ENGINES[engine], "ignore-delete": "true"})
    put(table, (1, 1, "a", "+I"), (1, 1, "a", "-D"))
    assert rows(table) == [{"id": 1, "n": 1, "t": "a"}]


def test_retractions(store: Store) -> None:
    table = make(store, SUMS)
    with pytest.raises(InvalidRequest, match=r"'t'.*ignore-retract"):
        put(table, (1, 1, "a", "-U"))
    store.drop_table("shop.t")
    table = make(store, {**SUMS, "fields.t.ignore-retract": "true"})
    put(table, (1, 10, "a", "+I"))
    put(table, (1, 10, "a", "-U"), (1, 12, "b", "+U"))
    assert rows(table) == [{"id": 1, "n": 12, "t": "b"}]


def test_retractions_in_the_order_of_a_sequence(store: Store) -> None:
    options = {"merge-engine": "aggregation", "sequence.field": "s", "fields.default-aggregate-function": "last_value"}
    table = make(store, options, "id BIGINT, s INT, n BIGINT, t STRING")
    put(table, (1, 1, 10, "a", "+I"))
    put(table, (1, 3, 10, "a", "-D"))
    put(table, (1, 2, 7, "late", "+I"))
    assert assert_whole(table) == [{"id": 1, "s": 3, "n": None, "t": None}]


def test_sequence_groups(store: Store) -> None:
    options = {
        "merge-engine": "partial-update",
        "fields.at_a.sequence-group": "a",
        "fields.at_b,at_c.sequence-group": "b,c",
    }
    table = make(store, options, "id BIGINT, a STRING, at_a INT, b STRING, c INT, at_b INT, at_c INT, d STRING")
    put(table, (1, "a1", 1, "b1", 1, 1, 1, "d1"))
    put(table, (1, "a0", 0, "b2", None, 1, 2, None))
    put(table, (1, None, 2, "b0", 9, None, None, "d3"))
    assert rows(table) == [{"id": 1, "a": None, "at_a": 2, "b": "b2", "c": None, "at_b": 1, "at_c": 2, "d": "d3"}]


GROUPED = {
    "merge-engine": "partial-update",
    "fields.at.sequence-group": "t,n",
    "fields.n.aggregate-function": "sum",
    "fields.seen.sequence-group": "times",
    "fields.times.aggregate-function": "count",
}
GROUPED_COLUMNS = "id BIGINT, at INT, t STRING, n BIGINT, seen INT, times INT, other STRING"


def by_id(table: Table) -> list[Row]:
    return sorted(rows(table), key=lambda row: row["id"])


@pytest.mark.parametrize("mode", ["merge-on-write", "merge-on-read"])
def test_sequence_groups_take_values_back(store: Store, mode: str) -> None:
    """As Paimon does: the group of which the row has a sequence loses its values, other columns stay."""
    table = make(store, {**GROUPED, "write-mode": mode, "log.system": "none"}, GROUPED_COLUMNS)
    put(table, (1, 5, "a", 10, 1, 1, "x", "+I"), (2, 5, "b", 1, None, None, "y", "+I"))
    put(table, (1, 6, "a", 4, None, None, "z", "-D"), (2, 4, "late", 1, None, None, None, "-U"))
    first = {"id": 1, "at": 6, "t": None, "n": 6, "seen": 1, "times": 1, "other": "x"}
    assert by_id(table) == [first, {"id": 2, "at": 5, "t": "b", "n": 0, "seen": None, "times": 0, "other": "y"}]
    put(table, (3, 9, "gone", 1, None, None, None, "-D"), (2, None, "none", 9, None, None, None, "-D"))
    put(table, (1, 5, "late", 2, 3, 7, None, "+U"))
    assert by_id(table)[0] == first | {"n": 8, "seen": 3, "times": 2}
    assert [row["id"] for row in by_id(table)] == [1, 2]
    table.compact(full=True)
    assert_whole(table)


@pytest.mark.parametrize("mode", ["merge-on-write", "merge-on-read"])
def test_a_group_with_a_function_that_cannot_take_back_says_so(store: Store, mode: str) -> None:
    """A delete does, of that group; the first half of an update leaves the column as it is."""
    options = {**GROUPED, "fields.t.aggregate-function": "max", "write-mode": mode, "log.system": "none"}
    table = make(store, options, GROUPED_COLUMNS)
    with pytest.raises(InvalidRequest, match=r"'t' has aggregate-function max.*ignore-retract") as caught:
        put(table, (1, 5, "a", 10, 1, 1, "x", "-D"))
    assert caught.value.code == "retract-refused"
    put(table, (1, 5, "a", 10, 1, 1, "x", "+I"))
    put(table, (1, 6, "b", 10, None, None, "x", "-U"), (1, None, None, None, 1, 1, None, "-D"))
    assert rows(table) == [{"id": 1, "at": 6, "t": "a", "n": 0, "seen": 1, "times": 0, "other": "x"}]


# --------------------------------------------------------------------------------------------------------------- races


def racing(table: Table, given_rows: Row, meanwhile: Any) -> tuple[Any, list[int]]:
    """A runner before whose first commit somebody else is at work."""
    rounds: list[int] = []

    def run(job: WriteJob) -> Sequence[TaskOutcome]:
        rounds.append(1)
        batches = sorted_batches(table, pa.table(given_rows))
        outcome = job.run(batches, "0.0")
        if len(rounds) == 1:
            meanwhile()
        return [outcome]

    return run, rounds


@pytest.mark.parametrize("log", ["embedded", "none"])
@pytest.mark.parametrize("engine", list(ENGINES))
def test_rows_that_changed_meanwhile_are_merged_again(store: Store, engine: str, log: str) -> None:
    table, other = make(store, {**ENGINES[engine], "log.system": log}), store.table("shop.t")
    put(table, (1, 1, "a"))
    run, rounds = racing(
        table, {"id": [1, 2], "n": [10, 10], "t": ["b", None]}, lambda: put(other, (1, 5, None), (2, 7, "z"))
    )
    table.writer().write(run)
    assert len(rounds) == 2
    held: dict[int, Row] = {}
    for key, n, t in [(1, 1, "a"), (1, 5, None), (2, 7, "z"), (1, 10, "b"), (2, 10, None)]:
        held[key] = after(engine, held.get(key), {"id": key, "n": n, "t": t})
    assert assert_whole(table) == list(held.values())


@pytest.mark.parametrize("engine", list(ENGINES))
def test_a_compaction_meanwhile_is_no_reason_to_merge_again(store: Store, engine: str) -> None:
    options = {"partial-update": {"partial-update.remove-record-on-delete": "true"}}.get(engine, {})
    table, other = make(store, {**ENGINES[engine], **options}), store.table("shop.t")
    put(table, (1, 1, "a"), (2, 2, "b"), (3, 3, "c"))
    put(table, (4, 4, "d"))
    deletes = {"_kind": ["+I", "-D"]} if engine == "partial-update" else {}
    run, rounds = racing(
        table, {"id": [1, 2], "n": [10, 10], "t": ["b", "z"], **deletes}, lambda: other.compact(full=True)
    )
    table.writer().write(run)
    assert len(rounds) == 1
    found = {row["id"]: (row["n"], row["t"]) for row in assert_whole(table)}
    assert (
        found
        == {
            "partial-update": {1: (10, "b"), 3: (3, "c"), 4: (4, "d")},
            "aggregation": {1: (11, "b"), 2: (12, "z"), 3: (3, "c"), 4: (4, "d")},
            "first-row": {1: (1, "a"), 2: (2, "b"), 3: (3, "c"), 4: (4, "d")},
        }[engine]
    )


def test_partitions_and_composite_keys(store: Store) -> None:
    options = {"merge-engine": "aggregation", "fields.n.aggregate-function": "sum", "bucket": "2"}
    table = make(store, options, "day DATE, id STRING, n INT", primary_key=["day", "id"], partition_by=["day"])
    days = pa.array([0, 0, 1], pa.date32())
    for _ in range(2):
        table.write(pa.table({"day": days, "id": ["a", "b", "a"], "n": pa.array([1, 2, 3], pa.int32())}))
    assert sorted(row["n"] for row in assert_whole(table)) == [2, 4, 6]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"fields.n.aggregate-function": "sum"}, "not deduplicate"),
        ({**SUMS, "fields.zz.aggregate-function": "sum"}, "not a value column"),
        ({**SUMS, "fields.n.aggregate-function": "smu"}, "it takes 'sum'"),
        ({**SUMS, "fields.n.aggregate-functon": "sum"}, "did you mean 'fields.n.aggregate-function'"),
        ({**SUMS, "fields.n.aggregate-function": "listagg"}, "takes strings"),
        ({**SUMS, "fields.t.nested-key": "a"}, "nested_update"),
        ({**SUMS, "fields.t.distinct": "true"}, "'t' has max"),
        ({**SUMS, "fields.t.list-agg-delimiter": ";"}, "'t' has max"),
        ({**SUMS, "fields.n.sequence-group": "t"}, "partial-update"),
        ({"merge-engine": "first-row", "sequence.field": "n"}, "leave sequence.field out"),
        ({"merge-engine": "partial-update", "fields.n,n.sequence-group": "t"}, "two sequence groups"),
        ({"merge-engine": "partial-update", "fields.n.sequence-group": "id"}, "not a value column"),
        ({"merge-engine": "partial-update", "aggregation.remove-record-on-delete": "true"}, "has no effect"),
        ({**SUMS, "ignore-delete": "true", "aggregation.remove-record-on-delete": "true"}, "contradict"),
        ({**SUMS, "sequence.field": "n"}, "orders the rows"),
    ],
)
def test_options_that_do_not_fit_are_refused(store: Store, options: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidRequest, match=problem):
        make(store, options)
    assert store.list_tables("shop") == []


def test_an_engine_needs_a_key(store: Store) -> None:
    with pytest.raises(InvalidRequest, match="declare a primary key"):
        make(store, SUMS, primary_key=[])
