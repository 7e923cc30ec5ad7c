"""The records of a table's log: upserts that lead to its rows, or complete changes (PROTOCOL.md section 3.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.sorting.order import sort_rows
from filestore.storage.local import LocalStorage
from log.table.systems import open_log
from tablestore import Store, Table
from tablestore.following.pieces import Planner
from tablestore.following.records import RecordReader
from tablestore.following.result_mode import ResultMode
from tablestore.following.walk import Walk
from tablestore.incoming.conform import conform
from tablestore.writing.write_job import TaskOutcome, WriteJob
from tests.bothlogs import both_logs
from tests.depth import sampled
from tests.faults import Call, FaultyStorage
from tests.opened import again
from tests.warehouses import warehouse

Key = tuple[str, int]
Rows = dict[Key, dict[str, Any]]

SCHEMA = pa.schema(
    [
        pa.field("part", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("value", pa.int64()),
        pa.field("note", pa.string()),
    ]
)
KEY = ("part", "id")
REMOVE = {"partial-update.remove-record-on-delete": "true"}
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "deduplicate by sequence": {"sequence.field": "value"},
    "partial-update": {"merge-engine": "partial-update"} | REMOVE,
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.value.aggregate-function": "sum",
        "fields.note.aggregate-function": "last_value",
        "aggregation.remove-record-on-delete": "true",
    },
    "first-row": {"merge-engine": "first-row"},
}

CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.integers(0, 5),
        st.none() | st.integers(-2, 9),
        st.sampled_from([None, "x", "ü"]),
        st.sampled_from(["+I", "+U", "+U", "-D"]),
    ),
    min_size=1,
    max_size=8,
)
HISTORIES = st.lists(st.tuples(CHANGES, st.sampled_from(["kinds", "puts", "overwrite", "compact"])), max_size=5)


def given_rows(changes: Iterable[tuple[Any, ...]], *, kinds: bool) -> pa.Table:
    """Returns changes as rows; without kinds each of them is a put."""
    columns = list(zip(*changes, strict=True))
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=False)], names=SCHEMA.names)
    return table.append_column("_kind", pa.array(columns[-1], pa.string())) if kinds else table


def stored(table: Table, version: int | None = None) -> Rows:
    """Returns the rows of a version, by key."""
    rows = table.scan(version=version).to_arrow().to_pylist()
    return {(row["part"], row["id"]): row for row in rows}


def reported(table: Table, after: int, until: int) -> list[dict[str, Any]]:
    """Returns the log's changes between two versions, in order, and the files' changes where rows were replaced."""
    filestore, wanted = table.filestore, table.definition.schema
    walk = Walk(filestore)
    planner = Planner(walk, ResultMode.UPSERT, True, wanted, by_bucket=False)
    found = []
    with RecordReader(table.opened.required_log(), wanted, filestore.ambient) as records:
        for version in range(after + 1, until + 1):
            commit = filestore.delta_log.read_entry(version)
            assert commit is not None
            walk.take(commit)
            found += [
                row for piece in planner.pieces(commit) for rows in piece.rows(records) for row in rows.to_pylist()
            ]
    return found


def replayed(state: Rows, changes: Iterable[dict[str, Any]]) -> Rows:
    """Applies complete changes: a removed row must be the stored one, and an added row's key must be free."""
    after, opened = dict(state), None
    for change in changes:
        kind, row = change["_kind"], {name: change[name] for name in SCHEMA.names}
        key = (row["part"], row["id"])
        assert opened in (None, key), f"a +U follows its -U at once: {change}"
        if kind in ("-U", "-D"):
            assert after.pop(key) == row
            opened = key if kind == "-U" else None
        else:
            assert key not in after
            assert (kind == "+U") == (opened == key)
            after[key], opened = row, None
    assert opened is None
    return after


def upserted(state: Rows, changes: Iterable[dict[str, Any]]) -> Rows:
    """Applies the last record of each key."""
    after = dict(state)
    for change in changes:
        row = {name: change[name] for name in SCHEMA.names}
        key = (row["part"], row["id"])
        after.pop(key, None)
        if change["_kind"] in ("+I", "+U"):
            after[key] = row
    return after


def live(table: Table, history: Iterable[tuple[list[tuple[Any, ...]], str]]) -> None:
    """Writes a history into a table, without the deletes that its engine refuses."""
    takes = table.definition.options["merge-engine"] != "first-row"
    for changes, how in history:
        rows = given_rows(changes, kinds=how == "kinds" and takes)
        if how == "compact":
            table.compact(full=True)
        else:
            table.write(rows, overwrite=how == "overwrite")


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("engine", sampled(ENGINES, 3, test=2))
@settings(max_examples=6)
@given(history=HISTORIES)
def test_complete_changes_lead_from_each_version_to_the_next(engine: str, history: list[Any]) -> None:
    with warehouse() as store:
        options = ENGINES[engine] | {"changelog-producer": "lookup", "bucket": "2", "log.changelog-mode": "all"}
        table = store.create_table("shop.t", SCHEMA, primary_key=KEY, partition_by=["part"], options=options)
        live(table, history)
        for version in range(1, table.snapshots()[0].version + 1):
            changes = reported(table, version - 1, version)
            if "OVERWRITE" in str(table.filestore.snapshot(version).operation).upper():
                assert upserted(stored(table, version - 1), changes) == stored(table, version)
            else:
                assert replayed(stored(table, version - 1), changes) == stored(table, version)


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("engine", sampled(ENGINES, 3, test=2))
@settings(max_examples=6)
@given(history=HISTORIES, deletes=st.sampled_from(["full", "tombstone"]))
def test_the_last_record_of_each_key_leads_to_the_table(engine: str, history: list[Any], deletes: str) -> None:
    with warehouse() as store:
        options = ENGINES[engine] | {"bucket": "2", "log.delete-format": deletes}
        table = store.create_table("shop.t", SCHEMA, primary_key=KEY, partition_by=["part"], options=options)
        live(table, history)
        newest = table.snapshots()[0].version
        for version in range(newest + 1):
            assert upserted(stored(table, version), reported(table, version, newest)) == stored(table)


def test_rows_that_others_wrote_in_between_are_the_old_rows_in_the_log(store: Store) -> None:
    table, other = _two(store, {"changelog-producer": "lookup"})
    table.write(pa.table({"id": [1, 2], "value": [10, 20]}))
    write_while(table, pa.table({"id": [1, 3], "value": [12, 32]}), lambda: other.write(_row(1, 11)))
    assert [(row["_kind"], row["id"], row["value"]) for row in reported(table, 2, 3)] == [
        ("-U", 1, 11),
        ("+U", 1, 12),
        ("+I", 3, 32),
    ]


def test_rows_that_change_nothing_are_not_logged(store: Store) -> None:
    table, _ = _two(store, {"changelog-producer": "lookup"})
    table.write(_row(1, 10))
    table.write(pa.table({"id": [1, 7], "value": [10, None], "_kind": ["+U", "-D"]}))
    assert reported(table, 1, 2) == []


def test_a_compaction_in_between_changes_nothing_in_the_log(store: Store) -> None:
    table, other = _two(store, {"changelog-producer": "lookup", "sequence.field": "value"})
    for key in (1, 7):
        table.write(_row(key, 11))
    late = pa.table({"id": [1, 2], "value": [5, 6]})
    write_while(table, late, lambda: other.compact(full=True))
    assert [(row["_kind"], row["id"], row["value"]) for row in reported(table, 2, 4)] == [("+I", 2, 6)]


def test_input_is_logged_as_it_arrived(store: Store) -> None:
    table, _ = _two(store, {"changelog-producer": "input"})
    rows = {"id": [1, 1, 1, 2], "value": [1, 1, 2, 5], "_kind": ["+I", "-U", "+U", "+I"]}
    table.write(pa.table(rows))
    assert [(row["id"], row["value"], row["_kind"]) for row in reported(table, 0, 1)] == list(
        zip(*rows.values(), strict=True)
    )


@pytest.mark.parametrize("producer", ["lookup", "none"])
def test_a_rollback_logs_the_rows_that_leave_in_a_log_of_complete_changes(store: Store, producer: str) -> None:
    table, other = _two(store, {"changelog-producer": producer})
    table.write(pa.table({"id": [1, 2], "value": [10, 20]}))
    table.write(pa.table({"id": [1, 2, 3], "value": [11, 20, 30], "_kind": ["+U", "-D", "+I"]}))
    other.rollback(1)
    kinds = {(row["_kind"], row["id"], row["value"]) for row in reported(table, 2, 3)}
    complete = {("-U", 1, 11)} if producer == "lookup" else set()
    assert kinds == complete | {("+U", 1, 10), ("+I", 2, 20), ("-D", 3, 30)}


OTHERS: dict[str, Callable[[Table], object]] = {
    "an upsert": lambda table: table.write(pa.table({"id": [1, 3, 9], "value": [50, 51, 52]})),
    "a delete": lambda table: table.write(pa.table({"id": [1, 2], "_kind": ["-D", "-D"]})),
    "a compaction": lambda table: table.compact(full=True),
    "another rollback": lambda table: table.rollback(2),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_rollback_logs_the_rows_that_others_wrote_meanwhile(store: Store, other: str) -> None:
    table, writer = _two(store, {"changelog-producer": "lookup"})
    table.write(pa.table({"id": [1, 2], "value": [10, 20]}))
    table.write(pa.table({"id": [1, 4], "value": [11, 40]}))
    table.write(pa.table({"id": [1, 3], "value": [12, 30]}))
    storage = FaultyStorage(LocalStorage())

    def others_first(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and not call.done:
            storage.hook = lambda _: None
            OTHERS[other](writer)

    storage.hook = others_first
    again(table, storage=storage).rollback(1)
    newest = writer.snapshots()[0].version
    assert _values(writer, newest) == {1: 10, 2: 20}
    for version in range(1, newest + 1):
        held = _values(writer, version - 1)
        for change in reported(writer, version - 1, version):
            if change["_kind"] in ("-U", "-D"):
                assert held.pop(change["id"]) == change["value"]
            else:
                assert change["id"] not in held
                held[change["id"]] = change["value"]
        assert held == _values(writer, version)


def _values(table: Table, version: int) -> dict[int, int]:
    return {row["id"]: row["value"] for row in table.scan(version=version).to_arrow().to_pylist()}


@both_logs
def test_a_compaction_leaves_the_log_alone(store: Store, log_options: dict[str, str]) -> None:
    table, _ = _two(store, log_options)
    for key in range(3):
        table.write(_row(key, 1))
    named, held = table.detail()["log_offsets"], _ends(table)
    assert table.compact(full=True) is not None
    assert table.detail()["log_offsets"] == named
    assert table.snapshots()[0].transactions == ()
    assert _ends(table) == held != {}


def _ends(table: Table) -> Mapping[int, int]:
    config = table.opened.required_log()
    with open_log(config, table.opened.ambient) as log:
        return log.end_offsets()


def _two(store: Store, options: dict[str, str]) -> tuple[Table, Table]:
    table = store.create_table("shop.t", "id BIGINT, value BIGINT", primary_key=["id"], options=options)
    return table, store.table("shop.t")


def write_while(table: Table, rows: pa.Table, meanwhile: Callable[[], object]) -> None:
    """Another commit is made between the work of the first attempt and its commit."""
    arranged = sort_rows(conform(rows, table.definition), table.definition).to_batches()
    left = [meanwhile]

    def run(job: WriteJob) -> list[TaskOutcome]:
        outcome = job.run(arranged, "0.0")
        if left:
            left.pop()()
        return [outcome]

    table.writer().write(run)


def _row(key: int, value: int) -> pa.Table:
    return pa.table({"id": [key], "value": [value]})
