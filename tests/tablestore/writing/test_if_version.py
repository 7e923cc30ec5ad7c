"""Writes whose rows were worked out from a version: they hold only if the rows that were read are still those."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.errors import Conflict, InvalidRequest
from filestore.storage.local import LocalStorage
from tablestore import Store, Table
from tablestore.writing.given_rows import GivenRows
from tablestore.writing.write import Basis
from tests.faults import Call, FaultyStorage
from tests.opened import again
from tests.tables import assert_healthy
from tests.warehouses import rows, warehouse

Options = Mapping[str, str]
ONE_BUCKET = {"bucket": "1"}


def table_of(store: Store, options: Options = ONE_BUCKET, **more: object) -> Table:
    columns = "id BIGINT, p STRING, v BIGINT"
    made = store.create_table("shop.t", columns, primary_key=["id", "p"], options=options, **more)  # type: ignore[arg-type]
    assert isinstance(made, Table)
    made.write([row(n, n) for n in range(6)])
    return made


def row(key: int, value: int, kind: str = "+I") -> dict[str, object]:
    return {"id": key, "p": "a" if key < 4 else "b", "v": value, "_kind": kind}


def values(table: Table) -> dict[object, object]:
    return {found["id"]: found["v"] for found in rows(table)}


def add_one(table: Table, version: int, *keys: int) -> None:
    """Works new rows out from those of a version."""
    known = {found["id"]: found["v"] for found in table.scan(version=version).to_arrow().to_pylist()}
    table.write([row(key, known.get(key, 0) + 1) for key in keys], if_version=version)


def test_it_holds_if_nothing_happened(store: Store) -> None:
    table = table_of(store)
    add_one(table, 1, 2, 99)
    assert values(table)[2] == 3
    assert values(table)[99] == 1


@pytest.mark.parametrize(
    "between",
    [
        lambda table: table.write([row(3, 30), row(77, 7), row(0, 0, "-D")]),
        lambda table: table.compact(full=True),
        lambda table: (table.write([row(3, 30)]), table.write([row(4, 40)])),
        lambda table: table.create_tag("t"),
    ],
    ids=["other keys of its bucket", "a compaction", "two other writes", "a tag"],
)
def test_what_others_did_to_other_keys_does_not_matter(store: Store, between: Callable[[Table], object]) -> None:
    table = table_of(store)
    between(table)
    before = values(table)
    add_one(table, 1, 2, 99)
    assert values(table) == before | {2: 3, 99: 1}
    assert_healthy(table.filestore)


@pytest.mark.few(6)
@pytest.mark.parametrize(
    "between",
    [
        lambda table: table.write([row(2, 20)]),
        lambda table: table.write([row(2, 0, "-D")]),
        lambda table: table.write([row(99, 1)]),
        lambda table: table.write([row(5, 1)], overwrite=True),
        lambda table: (table.write([row(2, 20)]), table.compact(full=True)),
        lambda table: (table.compact(full=True), table.write([row(2, 20)])),
        lambda table: (table.alter("ADD COLUMN more INT"), table.write([row(2, 20)])),
    ],
    ids=["changed", "deleted", "inserted", "overwritten", "compacted after", "and before", "in other columns"],
)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"log.system": "embedded"},
        {"log.system": "embedded", "log.changelog-mode": "all", "changelog-producer": "lookup"},
        {"write-mode": "merge-on-read"},
        {"changelog-producer": "lookup"},
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    ],
    ids=lambda options: " ".join(options.values()) or "plain",
)
def test_a_row_that_was_read_has_changed(store: Store, between: Callable[[Table], object], options: Options) -> None:
    table = table_of(store, ONE_BUCKET | options)
    between(table)
    before, version = values(table), table.filestore.state().version
    with pytest.raises(Conflict, match="rows that were read at version 1 have changed") as raised:
        add_one(table, 1, 2, 99)
    assert raised.value.code == "read-changed"
    assert values(table) == before
    assert table.filestore.state().version == version
    assert not assert_healthy(table.filestore).orphans


def test_it_loses_two_races_to_writers_of_other_keys(store: Store) -> None:
    """The second time it compares with what it found the first time: others have dead rows in its files since."""
    table = table_of(store)
    table.write([row(3, 30)])
    rivals = [[row(0, 5)]]

    def others_are_faster(call: Call) -> None:
        if rivals and not call.done and call.operation == "write_new" and call.path.endswith("0003.json"):
            table.write(rivals.pop())

    racing = again(table, storage=FaultyStorage(LocalStorage(), others_are_faster))
    racing.write([row(2, 3)], if_version=1)
    assert not rivals
    assert racing.filestore.state().version == 4
    assert values(table) == {0: 5, 1: 1, 2: 3, 3: 30, 4: 4, 5: 5}


def test_a_row_that_was_written_again_with_its_value_has_changed(store: Store) -> None:
    table = table_of(store)
    table.write([row(2, 2)])
    with pytest.raises(Conflict, match="rows that were read"):
        add_one(table, 1, 2)


def test_an_overwrite_looks_at_the_partitions_that_it_replaces(store: Store) -> None:
    table = table_of(store, partition_by=["p"])
    table.write([row(4, 40)])
    table.write([row(0, 9)], overwrite={"p": "a"}, if_version=1)
    assert values(table) == {0: 9, 4: 40, 5: 5}
    with pytest.raises(Conflict, match="read at version 1"):
        table.write([row(0, 9)], overwrite=True, if_version=1)
    with pytest.raises(Conflict, match="read at version 2"):
        table.write([row(1, 9)], overwrite={"p": "a"}, if_version=2)
    table.write([row(0, 10)], overwrite=True, if_version=3)
    assert values(table) == {0: 10}


def test_rows_without_a_key_cannot_be_distinguished(store: Store) -> None:
    table = store.create_table("shop.plain", "a INT")
    assert isinstance(table, Table)
    table.write([{"a": 1}])
    with pytest.raises(InvalidRequest, match="no primary key") as raised:
        table.write([{"a": 2}], if_version=1)
    assert raised.value.code == "no-primary-key"
    table.write([{"a": 2}], overwrite=True, if_version=1)
    assert rows(table) == [{"a": 2}]


def test_a_version_that_there_is_not(store: Store) -> None:
    table = table_of(store)
    with pytest.raises(Exception, match="no version 7"):
        add_one(table, 7, 2)


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True), st.integers(0, 3)),
    max_size=8,
)


@given(STEPS, st.sampled_from([{}, {"write-mode": "merge-on-read"}, {"log.system": "embedded"}]), st.booleans())
def test_no_increment_is_lost(steps: list[tuple[int, list[int], int]], options: Options, compacts: bool) -> None:
    """Clients read at one time and write at another; each write that is accepted counts, and no other."""
    with warehouse() as store:
        table = table_of(store, {"bucket": "2", **options})
        expected = values(table)
        read = dict.fromkeys(range(3), 1)
        for client, keys, renewed in steps:
            try:
                add_one(table, read[client], *keys)
            except Conflict as conflict:
                assert conflict.code == "read-changed"
            else:
                expected |= {key: expected[key] + 1 for key in keys}  # type: ignore[operator]
            if compacts:
                table.compact(full=True)
            read[renewed % 3] = table.filestore.state().version
            assert values(table) == expected


def test_rows_that_were_worked_out_from_the_whole_table(store: Store) -> None:
    """Statements of SQL write like this if they read other rows of the table than those that they write."""
    table = table_of(store, {"bucket": "2"})
    given = GivenRows(pa.table({"id": [2], "p": ["a"], "v": [15]}))
    table.compact(full=True)
    assert table.writer().write(given, basis=Basis(1, whole=True)).version == table.filestore.state().version
    version = table.filestore.state().version
    table.write([row(77, 7)])
    with pytest.raises(Conflict, match=f"read at version {version}"):
        table.writer().write(given, basis=Basis(version, whole=True))


def test_a_truncation_of_rows_that_are_pending_is_a_change(store: Store) -> None:
    """Its commit removes runs, and no file."""
    table = store.create_table(
        "shop.t", "id BIGINT, v BIGINT", primary_key=["id"], options={"write-mode": "merge-on-read"}
    )
    assert isinstance(table, Table)
    table.write([{"id": 1, "v": 1}])
    table.write(table.schema.empty_table(), overwrite=True)
    with pytest.raises(Conflict, match="read at version 1"):
        table.write([{"id": 1, "v": 2}], if_version=1)
    assert rows(table) == []


def test_a_row_that_is_written_with_its_value_is_a_row_that_was_read(store: Store) -> None:
    """With images an unchanged row stays in its file; if others delete it, it must not come back."""
    table = table_of(store, ONE_BUCKET | {"changelog-producer": "lookup"})
    table.write([row(2, 0, "-D")])
    with pytest.raises(Conflict, match="read at version 1"):
        table.write([row(2, 2)], if_version=1)
    assert 2 not in values(table)


def test_a_late_row_would_change_nothing(store: Store) -> None:
    columns = "id BIGINT, at BIGINT, v STRING"
    table = store.create_table("shop.t", columns, primary_key=["id"], options={"sequence.field": "at"})
    assert isinstance(table, Table)
    table.write([{"id": 1, "at": 10, "v": "a"}])
    with pytest.raises(InvalidRequest, match="1 rows have a lower at") as raised:
        table.write([{"id": 1, "at": 9, "v": "b"}, {"id": 2, "at": 1, "v": "c"}], if_version=1)
    assert raised.value.code == "late-rows"
    table.write([{"id": 99, "at": 10, "v": "other"}])
    with pytest.raises((Conflict, InvalidRequest)):
        table.write([{"id": 99, "at": 5, "v": "mine"}], if_version=1)
    assert [found["v"] for found in rows(table)] == ["a", "other"]
    assert not assert_healthy(table.filestore).orphans


@pytest.mark.parametrize("folds", [False, True], ids=["pending", "folded"])
def test_a_late_row_is_refused_where_commits_look_nothing_up(store: Store, folds: bool) -> None:
    """It was accepted, and changed nothing: an UPDATE in SQL succeeded, and its row was lost."""
    options = {"sequence.field": "at", "write-mode": "merge-on-read", "log.system": "none"}
    table = store.create_table("shop.t", "id BIGINT, at BIGINT, v STRING", primary_key=["id"], options=options)
    assert isinstance(table, Table)
    table.write([{"id": n, "at": 10, "v": "a"} for n in range(3)])
    table.write([{"id": 2, "at": 10, "_kind": "-D"}])
    if folds:
        table.compact(full=True)
    read = table.filestore.state().version
    for late in ({"id": 1, "at": 9, "v": "b"}, {"id": 1, "v": "b"}, {"id": 2, "at": 9, "v": "b"}):
        with pytest.raises(InvalidRequest, match="1 rows have a lower at") as raised:
            table.write([late, {"id": 9, "at": 1, "v": "c"}], if_version=read)
        assert raised.value.code == "late-rows"
    assert table.filestore.state().version == read
    accepted = [(0, 10, "b", "+U"), (1, 10, None, "-D"), (2, 11, None, "+U")]
    names = ("id", "at", "v", "_kind")
    table.write([dict(zip(names, given, strict=True)) for given in accepted], if_version=read)
    assert sorted((row["id"], row["v"]) for row in rows(table)) == [(0, "b"), (2, None)]
    table.write([{"id": 2, "at": 9, "v": "late"}])
    assert (2, None) in [(row["id"], row["v"]) for row in rows(table)]
    assert not assert_healthy(table.filestore).orphans
