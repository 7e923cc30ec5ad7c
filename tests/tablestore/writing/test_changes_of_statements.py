"""What UPDATE, DELETE and MERGE leave as changes: in the feed and in the log, with every producer and engine.

A statement knows the rows that it changes, so with every ``changelog-producer`` its changes are exact: the row before
and the row after. With ``input`` it wrote ``+U`` without ``-U``, and deletes with nothing but their key, which readers
took for rows with nulls, or with zeros in NOT NULL columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.model.snapshot import Operation
from filestore.sorting.order import sort_rows
from tablestore import Store, Table
from tablestore.following.pieces import Planner
from tablestore.following.records import RecordReader
from tablestore.following.result_mode import ResultMode
from tablestore.following.walk import Walk
from tablestore.incoming.conform import conform
from tablestore.writing.given_rows import GivenRows
from tablestore.writing.write import Basis
from tablestore.writing.write_job import TaskOutcome, WriteJob
from tests.bothlogs import both_logs
from tests.changes import assert_exact, by_deltalake
from tests.depth import sampled
from tests.warehouses import warehouse

Row = dict[str, Any]
Rows = dict[int, Row]

COLUMNS = "id BIGINT, v INT NOT NULL, note STRING"
REPLACING = Basis(None)
INPUT = {"changelog-producer": "input"}
EXAMPLE = [{"id": 1, "v": 10, "note": "a"}, {"id": 2, "v": 20, "note": "a"}, {"id": 3, "v": 30, "note": None}]


def made(store: Store, options: Mapping[str, str], rows: Iterable[Row] = EXAMPLE) -> Table:
    table = store.create_table("shop.t", COLUMNS, primary_key=["id"], options=options)
    table.write([{"_kind": "+I", **row} for row in rows])
    return table


def stored(table: Table, version: int | None = None) -> Rows:
    return {row["id"]: row for row in table.scan(version=version).to_arrow().to_pylist()}


def newest(table: Table) -> int:
    return table.filestore.state().version


def statement(table: Table, rows: list[Row]) -> int:
    """Writes the changes of a statement that has read the rows of their keys."""
    return table.write(rows, if_version=newest(table)).version


def merged(table: Table, rows: list[Row]) -> int:
    """Writes whole rows whatever is stored: what MERGE … UPDATE SET * … INSERT * does."""
    schema = table.definition.schema.to_arrow()
    given = GivenRows(pa.Table.from_pylist(rows, schema=schema))
    return table.writer().write(given, basis=REPLACING).version


def gone(key: int) -> Row:
    """A delete with nothing but its key."""
    return {"id": key, "v": None, "note": None, "_kind": "-D"}


def in_feed(table: Table, version: int) -> list[tuple[Any, ...]]:
    found = deltalake.DeltaTable(table.location).load_cdf(starting_version=version, ending_version=version).read_all()
    rows = pa.table(found).to_pylist()
    return sorted((row["id"], row["_change_type"], row["v"], row["note"]) for row in rows)


def in_log(table: Table, version: int) -> list[Row]:
    """The changes that the log has of a version."""
    wanted, walk = table.definition.schema, Walk(table.filestore)
    planner = Planner(walk, ResultMode.UPSERT, True, wanted, by_bucket=False)
    commit = table.filestore.delta_log.read_entry(version)
    assert commit is not None
    walk.take(commit)
    with RecordReader(table.opened.required_log(), wanted, table.filestore.ambient) as records:
        return [row for piece in planner.pieces(commit) for part in piece.rows(records) for row in part.to_pylist()]


def replayed(before: Rows, changes: Iterable[Row]) -> Rows:
    """Applies complete changes: a row that is removed is the stored one, and one that is added has a free key."""
    after = dict(before)
    for change in changes:
        row = {name: value for name, value in change.items() if name != "_kind"}
        if change["_kind"] in ("-U", "-D"):
            assert after.pop(row["id"]) == row
        else:
            assert row["id"] not in after
            after[row["id"]] = row
    return after


def upserted(before: Rows, changes: Iterable[Row]) -> Rows:
    after = dict(before)
    for change in changes:
        after.pop(change["id"], None)
        if change["_kind"] in ("+I", "+U"):
            after[change["id"]] = {name: value for name, value in change.items() if name != "_kind"}
    return after


def healthy(table: Table) -> bool:
    return not table.examine().problems


# --------------------------------------------------------------------------------------------------------- regressions


@both_logs
def test_the_feed_of_statements_has_rows_before_and_after(store: Store, log_options: dict[str, str]) -> None:
    table = made(store, INPUT | log_options)
    updated = statement(table, [{"id": 1, "v": 11, "note": "a", "_kind": "+U"}])
    deleted = statement(table, [gone(2)])
    changed = merged(table, [{"id": 3, "v": 31, "note": "b"}, {"id": 4, "v": 40, "note": "b"}])
    assert in_feed(table, updated) == [(1, "update_postimage", 11, "a"), (1, "update_preimage", 10, "a")]
    assert in_feed(table, deleted) == [(2, "delete", 20, "a")]
    assert in_feed(table, changed) == [
        (3, "update_postimage", 31, "b"),
        (3, "update_preimage", 30, None),
        (4, "insert", 40, "b"),
    ]
    kinds = [[(row["_kind"], row["id"], row["v"]) for row in in_log(table, v)] for v in (updated, deleted, changed)]
    assert kinds == [[("-U", 1, 10), ("+U", 1, 11)], [("-D", 2, 20)], [("-U", 3, 30), ("+U", 3, 31), ("+I", 4, 40)]]
    followed = [row for batch in table.follow(version=1, stop=changed, mode="changelog") for row in batch.to_pylist()]
    assert replayed(stored(table, 1), followed) == stored(table)
    assert_exact(table.filestore, by_deltalake(table.filestore))
    assert healthy(table)


def test_a_delete_with_nothing_but_its_key_is_the_stored_row(store: Store) -> None:
    """Of a plain write, too. One whose key has no row removes nothing, and other rows stay as they arrived."""
    table = made(store, INPUT)
    table.write([{"id": 1, "_kind": "-D"}, {"id": 9, "_kind": "-D"}, {"id": 2, "v": 21, "note": "b", "_kind": "+U"}])
    table.write([{"id": 3, "v": 30, "_kind": "-U"}, {"id": 3, "v": 31, "_kind": "+U"}])
    assert in_feed(table, 2) == [(1, "delete", 10, "a"), (2, "update_postimage", 21, "b")]
    assert in_feed(table, 3) == [(3, "update_postimage", 31, None), (3, "update_preimage", 30, None)]
    assert [(row["_kind"], row["id"], row["v"]) for row in in_log(table, 2)] == [("-D", 1, 10), ("+U", 2, 21)]
    assert healthy(table)


def test_changes_of_one_key_in_a_write_are_looked_up_together(store: Store) -> None:
    table = made(store, INPUT)
    rows = [
        {"id": 1, "v": 11, "_kind": "+U"},
        {"id": 1, "_kind": "-D"},
        {"id": 5, "v": 50, "_kind": "+I"},
        {"id": 5, "_kind": "-D"},
        {"id": 2, "_kind": "-U"},
        {"id": 2, "v": 20, "note": "a", "_kind": "+U"},
        {"id": 3, "v": 30, "note": "z", "_kind": "-U"},
        {"id": 3, "v": 33, "_kind": "+U"},
    ]
    table.write(rows)
    assert in_feed(table, 2) == [
        (1, "delete", 10, "a"),
        (3, "update_postimage", 33, None),
        (3, "update_preimage", 30, "z"),
    ], "key 5 is in neither version, 2 is as it was, and 3 is as it arrived"
    assert healthy(table)


def _race(table: Table, rows: list[Row], meanwhile: Callable[[], object], **how: Any) -> list[int]:
    """Another commit is made between the work of the first attempt and its commit. Returns the attempts' bases."""
    given = pa.Table.from_pylist(rows, schema=pa.schema([*table.definition.schema.to_arrow(), ("_kind", pa.string())]))
    left, bases = [meanwhile], []

    def run(job: WriteJob) -> list[TaskOutcome]:
        arranged = sort_rows(conform(given, job.table.definition), job.table.definition).to_batches()
        outcome = job.run(arranged, f"0.{len(bases)}")
        bases.append(newest(table))
        if left:
            left.pop()()
        return [outcome]

    table.writer().write(run, **how)
    return bases


LOGS = {
    "complete log": {},
    "log of upserts": {"log.changelog-mode": "upsert"},
    "no log": {"log.system": "none"},
}


@pytest.mark.few(5)
@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("other", ["rows", "files"])
@pytest.mark.parametrize("how", [{}, {"basis": REPLACING}], ids=["as they arrive", "looked up"])
def test_rows_that_others_wrote_first_are_the_rows_before(
    store: Store, log: str, other: str, how: dict[str, Any]
) -> None:
    table = made(store, INPUT | LOGS[log])
    statement(table, [{"id": 1, "v": 11, "note": "b", "_kind": "+U"}])

    def meanwhile() -> None:
        if other == "files":
            table.compact(full=True)
        else:
            statement(table, [{"id": 1, "v": 12, "note": "c", "_kind": "+U"}, {"id": 2, "_kind": "-D"}])

    bases = _race(table, [{"id": 1, "_kind": "-D"}, {"id": 2, "_kind": "-D"}], meanwhile, **how)
    assert len(bases) == 1 or other == "rows", "a compaction changes no row"
    assert stored(table).keys() == {3}
    assert_exact(table.filestore, by_deltalake(table.filestore))
    assert healthy(table)


def test_the_first_write_that_lost_its_race_has_all_its_changes(store: Store) -> None:
    """In an empty table a statement leaves its changes to be inferred. Now one slot has images, so the others do."""
    table = store.create_table("shop.t", COLUMNS, primary_key=["id"], options=INPUT | {"bucket": "4"})
    rows: list[Row] = [{"id": n, "v": n, "_kind": "+U"} for n in range(20)]
    _race(table, rows, lambda: table.write([{"id": 0, "v": 7, "note": "x", "_kind": "+I"}]), basis=REPLACING)
    assert len(in_feed(table, 2)) == 21
    assert_exact(table.filestore, by_deltalake(table.filestore))
    assert healthy(table)


@pytest.mark.parametrize("options", [{"sequence.field": "v"}, {"log.changelog-mode": "upsert"}])
def test_a_log_of_upserts_stays_one(store: Store, options: dict[str, str]) -> None:
    """The former rows of a statement are in the feed alone."""
    table = made(store, INPUT | options)
    assert table.definition.log_mode == "upsert"
    version = statement(table, [{"id": 1, "v": 11, "note": "b", "_kind": "+U"}, gone(2) | {"v": 20}])
    assert [(row["_kind"], row["id"]) for row in in_log(table, version)] == [("+U", 1), ("-D", 2)]
    assert len(in_feed(table, version)) == 3
    assert healthy(table)


def test_a_fold_has_the_rows_before_and_after(store: Store) -> None:
    """Runs have one row of each key, so of complete changes, too, only the row after them was in the feed."""
    table = made(store, INPUT | {"write-mode": "merge-on-read"})
    table.compact(full=True)
    statement(table, [{"id": 1, "v": 11, "note": "a", "_kind": "+U"}, {"id": 2, "_kind": "-D"}])
    table.write([{"id": 3, "v": 30, "_kind": "-U"}, {"id": 3, "v": 31, "_kind": "+U"}])
    table.compact(full=True)
    folded = next(found.version for found in table.snapshots() if found.operation is Operation.FOLD)
    assert in_feed(table, folded) == [
        (1, "update_postimage", 11, "a"),
        (1, "update_preimage", 10, "a"),
        (2, "delete", 20, "a"),
        (3, "update_postimage", 31, None),
        (3, "update_preimage", 30, None),
    ]
    assert_exact(table.filestore, by_deltalake(table.filestore))
    assert healthy(table)


# ------------------------------------------------------------------------------------------------------------ property


REMOVE = "remove-record-on-delete"
ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "by sequence": {"sequence.field": "v"},
    "partial-update": {"merge-engine": "partial-update", f"partial-update.{REMOVE}": "true"},
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.v.aggregate-function": "sum",
        "fields.note.aggregate-function": "last_value",
        f"aggregation.{REMOVE}": "true",
    },
    "first-row": {"merge-engine": "first-row"},
    "ignored deletes": {"ignore-delete": "true"},
}
WRITES = {
    "at once": {},
    "at once, upserts logged": {"log.changelog-mode": "upsert"},
    "later": {"write-mode": "merge-on-read", "log.system": "none"},
    "later, with a log": {"write-mode": "merge-on-read"},
}
LOGGED_LATER = ("deduplicate", "ignored deletes")
PRODUCERS = ("none", "input", "lookup", "full-compaction")
CASES = [
    (producer, write, engine)
    for producer, write, engine in product(PRODUCERS, WRITES, ENGINES)
    if producer != "full-compaction" or "later" in write
    if write != "later, with a log" or engine in LOGGED_LATER
]
KEYS = st.sets(st.integers(0, 6), min_size=1, max_size=4)
STATEMENTS = ("insert", "update", "delete", "merge", "merge of whole rows", "delete by key", "fold")
HISTORIES = st.lists(st.tuples(st.sampled_from(STATEMENTS), KEYS, st.sampled_from([None, "x", "ü"])), max_size=7)


def _run(table: Table, what: str, keys: set[int], note: str | None) -> None:
    """Runs a statement as SQL does it: rows that it has read become rows with kinds."""
    rows, sequence = stored(table), table.definition.sequence_field
    known, new = sorted(keys & rows.keys()), sorted(keys - rows.keys())
    added = [{"id": key, "v": 100 + newest(table), "note": note, "_kind": "+I"} for key in new]
    changed = [{"id": key, "v": rows[key]["v"] + 1, "note": note, "_kind": "+U"} for key in known]
    deletable = table.definition.options["merge-engine"] != "first-row"
    deleted = [gone(key) for key in known] if deletable else []
    if sequence:
        deleted = [row | {sequence: rows[row["id"]][sequence]} for row in deleted]
    match what:
        case "insert":
            table.write(added)
        case "update":
            statement(table, changed)
        case "delete":
            statement(table, deleted)
        case "merge":
            statement(table, [*changed[::2], *deleted[1::2], *added])
        case "merge of whole rows":
            merged(table, [{name: row[name] for name in ("id", "v", "note")} for row in (*changed, *added)])
        case "delete by key" if deletable:
            table.write([gone(key) for key in sorted(keys)])
        case "fold":
            table.compact(full=True)


@pytest.mark.few(6)
@pytest.mark.slow
@pytest.mark.parametrize("case", sampled(CASES, 20, test=4), ids=", ".join)
@settings(max_examples=settings.default.max_examples // 8 + 2)
@given(history=HISTORIES)
def test_changes_lead_from_each_version_to_the_next(case: tuple[str, str, str], history: list[Any]) -> None:
    producer, write, engine = case
    with warehouse() as store:
        options = ENGINES[engine] | WRITES[write] | {"changelog-producer": producer, "bucket": "2"}
        table = made(store, options)
        for what, keys, note in history:
            _run(table, what, keys, note)
        table.compact(full=True)
        if producer != "none":
            assert_exact(table.filestore, by_deltalake(table.filestore))
        apply = replayed if table.definition.log_mode == "all" else upserted
        for version in range(1, newest(table) + 1):
            before, after = stored(table, version - 1), stored(table, version)
            if table.opened.log_config(table.definition) is not None:
                assert apply(before, in_log(table, version)) == after
            if producer != "none":
                assert replayed(before, _followed(table, version)) == after
        assert healthy(table)


def _followed(table: Table, version: int) -> Iterator[Row]:
    for batch in table.follow(version=version - 1, stop=version, mode="changelog"):
        yield from batch.to_pylist()
