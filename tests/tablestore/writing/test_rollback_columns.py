"""Rolling back over changes of columns: the rows are those of then, the columns those of now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from filestore.errors import Unsupported
from filestore.life.restore import as_defined_now
from filestore.model.changes import DropColumn, RenameColumn
from filestore.storage.local import LocalStorage
from tablestore import Store, Table
from tests.depth import sampled
from tests.faults import Call, FaultyStorage
from tests.opened import again
from tests.tables import define, in_order, read_deltalake
from tests.warehouses import assert_whole, changes, orphans, replay, rows, to_arrow

Row = dict[str, Any]
MODES = ("rewrite", "metadata")
COLUMNS = "id BIGINT, a INT, b STRING NOT NULL"


def make(store: Store, mode: str = "rewrite", **options: str) -> Table:
    named = {"schema.evolution-mode": mode, "bucket": "2", **options}
    return store.create_table("shop.t", COLUMNS, primary_key=["id"], options=named)


def put(table: Table, *listed: Row) -> int:
    return table.write(to_arrow(table, listed)).version


def two_versions(table: Table) -> int:
    """The first of them."""
    then = put(table, {"id": 1, "a": 1, "b": "x"}, {"id": 2, "a": 2, "b": "y"})
    table.create_tag("then")
    put(table, {"id": 2, "a": 20, "b": "z"}, {"id": 3, "a": 3, "b": "w"})
    table.compact(full=True)
    return then


def assert_reads_right(table: Table, *expected: Row, by_polars: bool, by_deltalake: bool) -> None:
    """By all readers whom the changes left in, and by those of the log."""
    assert rows(table) == in_order(expected)
    if by_polars:
        assert_whole(table, leftovers=False)
        return
    assert table.examine().findings == ()
    assert replay(changes(table, version=0), ["id"]) == replay(changes(table), ["id"]) == rows(table)
    if by_deltalake:
        assert in_order(read_deltalake(table.location)) == rows(table)


KEPT = {"id": 1, "a": 1, "b": "x"}, {"id": 2, "a": 2, "b": "y"}
METADATA_ONLY = {
    "a comment": (["ALTER COLUMN a COMMENT 'how many'"], KEPT),
    "a comment of the table": (["COMMENT 'orders'"], KEPT),
    "a new column": (["ADD COLUMN n STRUCT<x: INT>"], tuple(row | {"n": None} for row in KEPT)),
    "another order": (["ALTER COLUMN b FIRST", "ALTER COLUMN a AFTER b"], KEPT),
    "a nullable column": (["ALTER COLUMN b DROP NOT NULL"], KEPT),
    "an option": (["SET target-file-size = 64 mb"], KEPT),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("change", sampled(METADATA_ONLY, 3))
def test_what_is_metadata_only_is_in_nobodys_way(store: Store, change: str, mode: str) -> None:
    table = make(store, mode)
    two_versions(table)
    statements, expected = METADATA_ONLY[change]
    table.alter(*statements)
    names = table.schema.names
    put(table, {"id": 1, "b": "new"} | ({"n": {"x": 1}} if "n" in names else {}), {"id": 9, "b": "9"})
    table.rollback(tag="then")
    assert table.schema.names == names, "the columns of now stay"
    assert_reads_right(table, *expected, by_polars=True, by_deltalake=True)
    put(table, {"id": 2, "b": "later"})
    table.compact(full=True)
    assert_whole(table, leftovers=False)


MAPPED: dict[str, tuple[list[str], list[Row]]] = {
    "a new name": (["RENAME COLUMN a TO c"], [{"id": 1, "c": 1, "b": "x"}, {"id": 2, "c": 2, "b": "y"}]),
    "swapped names": (
        ["RENAME COLUMN a TO c", "ADD COLUMN a INT", "RENAME COLUMN b TO d", "ADD COLUMN b INT"],
        [{"id": n, "c": n, "d": "xy"[n - 1], "a": None, "b": None} for n in (1, 2)],
    ),
    "a dropped column": (["DROP COLUMN a"], [{"id": 1, "b": "x"}, {"id": 2, "b": "y"}]),
    "a dropped column whose name comes again": (
        ["DROP COLUMN a", "ADD COLUMN a STRING"],
        [{"id": 1, "b": "x", "a": None}, {"id": 2, "b": "y", "a": None}],
    ),
    "a wider column": (["ALTER COLUMN a TYPE BIGINT"], list(KEPT)),
    "a wider column with a new name": (
        ["ALTER COLUMN a TYPE BIGINT", "RENAME COLUMN a TO c"],
        [{"id": 1, "c": 1, "b": "x"}, {"id": 2, "c": 2, "b": "y"}],
    ),
}
LATER = {"id": 7, "a": None, "b": None, "c": 7, "d": "later"}


@pytest.mark.parametrize("change", MAPPED)
def test_with_metadata_names_and_types_are_in_nobodys_way(store: Store, change: str) -> None:
    table = make(store, "metadata")
    two_versions(table)
    statements, expected = MAPPED[change]
    table.alter("ALTER COLUMN b DROP NOT NULL")
    for statement in statements:
        table.alter(statement)
    put(table, {name: LATER[name] for name in table.schema.names})
    table.rollback(tag="then")
    widened = any("TYPE" in statement for statement in statements)
    assert_reads_right(table, *expected, by_polars=False, by_deltalake=not widened)
    assert table.get([2]).to_pylist() == [row for row in expected if row["id"] == 2]
    table.compact(full=True)
    assert_reads_right(table, *expected, by_polars=False, by_deltalake=not widened)


REWRITTEN = {
    "a new name": ("RENAME COLUMN a TO c", "they call column 'c' 'a'"),
    "a wider column": ("ALTER COLUMN a TYPE BIGINT", "they have column 'a' as INT, and it is BIGINT now"),
    "a dropped column": ("DROP COLUMN a", "they hold column 'a', which was dropped"),
}


@pytest.mark.parametrize("change", REWRITTEN)
def test_files_that_were_written_anew_do_not_come_back(store: Store, change: str) -> None:
    """A dropped column would be there again once a new one has its name."""
    table = make(store)
    then = two_versions(table)
    statement, why = REWRITTEN[change]
    since = table.alter(statement).version
    before, version = rows(table), table.filestore.state().version
    with pytest.raises(Unsupported, match=f"version {then} do not read right with .* version {since}: {why}") as caught:
        table.rollback(then)
    assert caught.value.code == "rollback-over-schema"
    assert "as an overwrite" in str(caught.value)
    assert table.consumers() == []
    assert (rows(table), table.filestore.state().version) == (before, version)
    put(table, {"id": 8, "b": "8"})
    table.rollback(since)
    assert assert_whole(table, leftovers=False) == before
    table.rollback(0)
    assert assert_whole(table, leftovers=False) == [], "a version without files has none that read wrong"


def test_a_name_that_another_column_has_now(store: Store) -> None:
    table = make(store)
    then = two_versions(table)
    table.alter("DROP COLUMN a")
    table.alter("ADD COLUMN a STRING")
    with pytest.raises(Unsupported, match="their column 'a' is another one than column 'a' is now"):
        table.rollback(then)
    table.alter("SET schema.evolution-mode = metadata")
    table.alter("RENAME COLUMN a TO c")
    with pytest.raises(Unsupported, match="their column 'a' is another one than column 'c' is now"):
        table.rollback(then)


def test_a_column_that_was_not_null_from_its_first_row_on(store: Store) -> None:
    table = make(store)
    then = two_versions(table)
    table.write(to_arrow(table, []), overwrite=True)
    table.alter("ADD COLUMN n INT NOT NULL")
    with pytest.raises(Unsupported, match="they lack column 'n', which is NOT NULL"):
        table.rollback(then)
    put(table, {"id": 1, "b": "x", "n": 1})
    table.rollback(0)
    assert assert_whole(table, leftovers=False) == []


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (define("id BIGINT, v INT", ["v"], bucket=2), "primary key"),
        (define("id BIGINT, v INT", ["id", "v"], ["v"], bucket=2), "primary key"),
        (define("id BIGINT, v INT", ["id"], bucket=3), "number of buckets"),
        (define("id BIGINT, v INT", ["v", "id"], bucket=2), "primary key"),
    ],
)
def test_files_that_are_made_for_another_key_do_not_come_back(store: Store, other: Any, what: str) -> None:
    table = store.create_table("shop.k", "id BIGINT, v INT", primary_key=["id"], options={"bucket": "2"})
    put(table, {"id": 1})
    state = table.filestore.state()
    with pytest.raises(Unsupported, match=f"made for another {what}"):
        as_defined_now(replace(state, definition=other), state)


def test_without_a_key_one_bucket_holds_all_rows_whatever_columns_come(store: Store) -> None:
    for name, buckets in (("one", "1"), ("two", "2")):
        table = store.create_table(f"shop.{name}", "a INT", options={"bucket": buckets})
        then = put(table, {"a": 1}, {"a": 2})
        table.alter("ADD COLUMN b INT")
        put(table, {"a": 3, "b": 3})
        table.rollback(then)
        assert rows(table) == [{"a": 1, "b": None}, {"a": 2, "b": None}]
        assert table.examine().healthy


def test_a_change_of_columns_that_comes_meanwhile_begins_the_rollback_again(store: Store) -> None:
    table = make(store, "metadata")
    then = two_versions(table)

    def other(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and not call.done:
            storage.hook = lambda _: None
            store.table("shop.t").alter(RenameColumn("a", "c"))

    storage = FaultyStorage(LocalStorage(), other)
    again(table, storage=storage).rollback(then)
    assert orphans(table) == []
    fresh = store.table("shop.t")
    assert [(row["id"], row["c"]) for row in rows(fresh)] == [(1, 1), (2, 2)]


@pytest.mark.slow
def test_what_lives_by_its_tag_alone_comes_back_when_its_entries_are_gone(store: Store) -> None:
    """Nothing says any more which columns the table had when those files were written."""
    kept = {"snapshot.num-retained.min": "4", "snapshot.time-retained": "0 s", "checkpoint.interval": "2"}
    table = make(store, "metadata", **kept)
    two_versions(table)
    table.alter(DropColumn("a"), RenameColumn("b", "c"))
    table.alter("ADD COLUMN a STRING")
    for n in range(6):
        put(table, {"id": n, "c": "x", "a": "text"})
    version = table.rollback(tag="then").version
    table.delete_tag("then")
    put(table, {"id": 2, "c": "x", "a": "text"})
    assert table.expire().log_entries
    assert 0 < min(table.filestore.delta_log.checkpoints()) < version
    assert table.examine().problems == ()
    assert {row["id"]: row["a"] for row in rows(table)} == {1: None, 2: "text"}


def test_changes_are_logged_with_the_columns_of_now(store: Store) -> None:
    table = make(store, "metadata", **{"changelog-producer": "lookup"})
    then = two_versions(table)
    table.alter("RENAME COLUMN a TO c", "ADD COLUMN n INT")
    before = put(table, {"id": 1, "c": 100, "b": "x", "n": 5})
    after = table.rollback(then).version
    reported = table.system("changes", from_version=before, to_version=after).to_arrow().to_pylist()
    assert sorted((row["id"], row["rowkind"], row["c"], row["n"]) for row in reported) == [
        (1, "+U", 1, None),
        (1, "-U", 100, 5),
        (2, "+U", 2, None),
        (2, "-U", 20, None),
        (3, "-D", 3, None),
    ]
    assert rows(table) == in_order([{"id": 1, "c": 1, "b": "x", "n": None}, {"id": 2, "c": 2, "b": "y", "n": None}])
    assert table.examine().healthy
