"""Changes in the order in which they happened: a delete without a sequence removes its row, or nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from filestore.errors import InvalidRequest
from filestore.model.schema import Schema
from filestore.storage.local import LocalStorage
from tablestore import Store, Table
from tablestore.writing.given_rows import GivenRows
from tests.faults import Call, FaultyStorage
from tests.opened import again
from tests.tables import assert_healthy
from tests.warehouses import rows, warehouse

COLUMNS = "id BIGINT, p STRING, s {}, v STRING"
SEQUENCE = {"sequence.field": "s", "log.system": "none"}
TABLES: dict[str, Mapping[str, str]] = {
    "folded": {"bucket": "1"},
    "buckets": {"bucket": "2"},
    "images": {"changelog-producer": "lookup"},
    "pending": {"write-mode": "merge-on-read"},
    "partial-update": {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
    "pending-partial-update": {
        "merge-engine": "partial-update",
        "partial-update.remove-record-on-delete": "true",
        "write-mode": "merge-on-read",
    },
}
Change = tuple[int, str, int | None]


def table_of(store: Store, options: Mapping[str, str] | None = None, *, type_of_sequence: str = "BIGINT") -> Table:
    table = store.create_table(
        "shop.t",
        COLUMNS.format(type_of_sequence),
        primary_key=["id", "p"],
        partition_by=["p"],
        options={**SEQUENCE, **(options or {})},
    )
    assert isinstance(table, Table)
    return table


def given_rows(changes: Sequence[Change], schema: Schema) -> GivenRows:
    found = [
        {"id": key, "p": "ab"[key % 2], "s": sequence, "v": f"v{number}", "_kind": kind}
        for number, (key, kind, sequence) in enumerate(changes)
    ]
    return GivenRows(pa.Table.from_pylist(found, pa.schema([*schema.to_arrow(), ("_kind", pa.string())])))


def apply(table: Table, changes: Sequence[Change]) -> None:
    table.writer().write(given_rows(changes, table.definition.schema), in_order=True)


@dataclass
class Oracle:
    """The change of each key that counts: that of the highest sequence, of equal ones the last."""

    remembers: bool
    takes_former: bool
    found: dict[int, Change] = field(default_factory=dict)

    def refuses(self, changes: Sequence[Change]) -> bool:
        """Applies a batch; returns whether a delete without a sequence meets a row with one, which changes nothing."""
        found = dict(self.found)
        for number, change in enumerate(changes):
            key, kind, sequence = change
            is_former = changes[number + 1 : number + 2] and changes[number + 1][:2] == (key, "+U")
            if kind == "-U" and (is_former or not self.takes_former):
                continue
            before = found.get(key)
            if sequence is None and kind[0] == "-" and before and before[1][0] == "+" and before[2] is not None:
                return True
            if before is None or before[2] is None or (sequence is not None and sequence >= before[2]):
                found[key] = change
        self.found = {k: v for k, v in found.items() if self.remembers or v[1][0] == "+"}
        return False

    @property
    def rows(self) -> list[tuple[int, int | None]]:
        return sorted((key, change[2]) for key, change in self.found.items() if change[1][0] == "+")


SEQUENCES = st.sampled_from([None, None, 1, 2, 3])
CHANGES = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["+I", "-D", "-D", "-U", "+U"]), SEQUENCES), max_size=5)


@example([[(0, "+I", 1)], [(0, "-D", None)]], "pending", False)
@example([[(0, "+I", 3)], [(0, "-U", 3), (0, "+U", 2)], [(0, "-U", 3), (0, "+U", None)]], "folded", False)
@example([[(0, "+I", 2)], [(0, "-U", None), (1, "+U", 3), (0, "+U", None)]], "folded", False)
@example([[(0, "+I", 1)], [(0, "-D", 3)], [(0, "+I", 2), (0, "-D", None)]], "pending", False)
@example([[(0, "+I", 1)], [(0, "-D", 3)], [(0, "+I", 2), (0, "-D", None)]], "folded", False)
@example([[(0, "+I", 1), (0, "-D", 1), (0, "-D", None)], [(0, "+I", None)], [(0, "-D", None)]], "buckets", False)
@given(st.lists(CHANGES, max_size=6), st.sampled_from(sorted(TABLES)), st.booleans())
def test_each_delete_removes_its_row_or_nothing_is_written(
    batches: list[list[Change]], name: str, compacts: bool
) -> None:
    with warehouse() as store:
        table = table_of(store, TABLES[name])
        merges = "partial-update" in name
        oracle = Oracle(remembers=not merges, takes_former=not merges)
        for changes in batches:
            version = table.version
            if oracle.refuses(changes):
                with pytest.raises(InvalidRequest, match="has no value of column s") as caught:
                    apply(table, changes)
                assert caught.value.code == "delete-without-sequence"
                assert table.version == version
            else:
                apply(table, changes)
            if compacts:
                table.compact(full=True)
            assert sorted((row["id"], row["s"]) for row in rows(table)) == oracle.rows
        assert_healthy(table.filestore)


@pytest.mark.parametrize("kind", ["BIGINT", "DOUBLE", "DECIMAL(20, 2)", "STRING", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"])
def test_a_sequence_of_each_type(store: Store, kind: str) -> None:
    table = table_of(store, type_of_sequence=kind)
    schema = table.definition.schema.to_arrow()
    none = pa.nulls(1, schema.field("s").type)
    one = pa.array([1], pa.int32())
    one = one.cast(pa.date32()) if kind in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ") else one
    one = one.cast(schema.field("s").type)

    def change(key: int, sequence: pa.Array, kind: str) -> None:
        row = pa.table({"id": [key], "p": ["a"], "s": sequence, "v": ["x"], "_kind": [kind]})
        table.writer().write(GivenRows(row), in_order=True)

    change(1, none, "+I")
    change(2, one, "+I")
    change(1, none, "-D")
    with pytest.raises(InvalidRequest, match=r"the delete of \{'id': 2, 'p': 'a'\} has no value of column s"):
        change(2, none, "-D")
    assert [row["id"] for row in rows(table)] == [2]
    change(2, one, "-D")
    change(2, none, "-D")
    assert rows(table) == []


@pytest.mark.parametrize("number", [1, 2])
def test_a_sequence_that_is_not_null_is_missing_in_deletes_alone(store: Store, number: int) -> None:
    """It ended with a ValueError of Arrow."""
    table = table_of(store, type_of_sequence="BIGINT NOT NULL")
    apply(table, [(1, "+I", 5)])
    if number == 1:
        with pytest.raises(InvalidRequest, match="the delete of") as caught:
            apply(table, [(number, "-D", None)])
        assert caught.value.code == "delete-without-sequence"
    else:
        apply(table, [(number, "-D", None)])
    assert [row["id"] for row in rows(table)] == [1]


@pytest.mark.parametrize(
    ("changed", "code"),
    [({"id": None}, "null-key"), ({"_kind": None}, "bad-row-kind"), ({"_kind": "X"}, "bad-row-kind")],
)
def test_rows_that_do_not_fit_are_refused_as_elsewhere(store: Store, changed: Mapping[str, Any], code: str) -> None:
    table = table_of(store)
    apply(table, [(1, "+I", 5)])
    given = [{"id": 1, "p": "b", "s": None, "v": "x", "_kind": "-D"} | changed]
    schema = pa.schema([*table.definition.schema.to_arrow(), ("_kind", pa.string())])
    with pytest.raises(InvalidRequest) as caught:
        table.writer().write(GivenRows(pa.Table.from_pylist(given, schema)), in_order=True)
    assert caught.value.code == code


@pytest.mark.parametrize("name", ["folded", "pending", "partial-update", "pending-partial-update"])
def test_a_row_that_another_writer_puts_meanwhile(store: Store, name: str) -> None:
    """The delete was checked against the rows before the race: it begins again, and finds the other row."""
    table = table_of(store, TABLES[name])
    apply(table, [(1, "+I", None), (2, "+I", None)])
    rivals: list[list[Change]] = [[(2, "+U", 7)]]

    def others_are_faster(call: Call) -> None:
        if call.operation == "write_new" and "_delta_log/" in call.path and not call.done and rivals:
            apply(table, rivals.pop())

    racing = again(table, storage=FaultyStorage(LocalStorage(), others_are_faster))
    with pytest.raises(InvalidRequest, match="'id': 2") as caught:
        apply(racing, [(1, "-D", None), (2, "-D", None)])
    assert caught.value.code == "delete-without-sequence"
    assert not rivals
    assert sorted((row["id"], row["s"]) for row in rows(table)) == [(1, None), (2, 7)]
    rivals.append([(2, "+U", 8)])
    apply(racing, [(1, "-D", None)])
    assert [(row["id"], row["s"]) for row in rows(table)] == [(2, 8)]


def test_other_writes_take_late_deletes_as_late_ones(store: Store) -> None:
    """Changes that arrive in any order: a null sequence is lower than all others."""
    table = table_of(store)
    apply(table, [(1, "+I", 5)])
    table.write([{"id": 1, "p": "b", "s": None, "_kind": "-D"}])
    assert [(row["id"], row["s"]) for row in rows(table)] == [(1, 5)]


@pytest.mark.parametrize("name", ["folded", "pending", "images"])
@pytest.mark.parametrize("sequence", [3, None])
def test_an_update_to_a_lower_sequence_is_late_and_loses_no_row(store: Store, name: str, sequence: int | None) -> None:
    """Its former row won over its new one, so the key lost its row."""
    table = table_of(store, TABLES[name])
    table.write([{"id": 1, "p": "b", "s": 5, "v": "old"}])
    former = {"id": 1, "p": "b", "s": 5, "v": "old", "_kind": "-U"}
    table.write([former, {**former, "s": sequence, "v": "new", "_kind": "+U"}])
    assert [(row["s"], row["v"]) for row in rows(table)] == [(5, "old")]
    table.write([former, {**former, "s": 6, "v": "new", "_kind": "+U"}])
    assert [(row["s"], row["v"]) for row in rows(table)] == [(6, "new")]
    table.write([{**former, "s": 6}])  # alone it removes the row: the key has become another one
    assert rows(table) == []
