"""Values that a column cannot hold, found only by a merge: which call fails, and whether its advice helps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa
import pytest

from filestore.errors import InvalidRequest
from filestore.files.columns import FileColumns
from tablestore import Store
from tests.tables import assert_healthy
from tests.tablestore.test_wider_runs import LATER, MODES, SUMS, make, put
from tests.warehouses import assert_whole, orphans, rows


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(InvalidRequest) as caught:
        act()
    assert caught.value.code == "out-of-range"
    return caught.value.message


# ---------------------------------------------------------------------------------------------- sums that are too large


@pytest.mark.parametrize("stored", [False, True], ids=["all pending", "stored and pending"])
@pytest.mark.parametrize("mode", MODES)
def test_a_wider_column_repairs_a_sum_that_does_not_fit(store: Store, mode: str, stored: bool) -> None:
    table = make(store, **SUMS, **LATER, **{"schema.evolution-mode": mode})
    put(table, (1, 100), (2, 1))
    if stored:
        table.compact(full=True)
    put(table, (1, 100), (2, 1))
    message = refusal(lambda: table.scan().to_arrow())
    for words in ("sum in column 'v' of the key id = 1 ", "TINYINT", "ALTER COLUMN v TYPE BIGINT"):
        assert words in message
    assert refusal(lambda: table.get([1])) == refusal(lambda: table.compact(full=True)) == message
    assert table.get([2]).to_pylist() == table.scan(where="id = 2").to_arrow().to_pylist() == [{"id": 2, "v": 2}]
    pending = table.filestore.state().pending
    table.alter("ALTER COLUMN v TYPE BIGINT")
    assert table.filestore.state().pending == pending
    expected = [{"id": 1, "v": 200}, {"id": 2, "v": 2}]
    assert rows(table) == table.get([1, 2]).to_pylist() == expected
    assert_healthy(table.filestore)
    put(table, (1, 2**40))
    table.compact(full=True)
    assert rows(table) == [{"id": 1, "v": 200 + 2**40}, {"id": 2, "v": 2}]
    assert_healthy(table.filestore)
    assert orphans(table) == []


def test_rows_that_reduce_the_sum_repair_it_where_nothing_is_wider(store: Store) -> None:
    table = make(store, "id INT, v BIGINT", **SUMS, **LATER)
    put(table, (1, 2**63 - 1))
    put(table, (1, 1))
    message = refusal(lambda: table.scan().to_arrow())
    assert "BIGINT" in message
    assert "ALTER" not in message
    put(table, (1, 1, "-D"))
    assert assert_whole(table) == [{"id": 1, "v": 2**63 - 1}]


@pytest.mark.parametrize("scale", [0, 10])
def test_a_sum_of_the_longest_decimals_does_not_go_round(store: Store, scale: int) -> None:
    table = make(store, f"id INT, v DECIMAL(38,{scale})", **SUMS, **LATER)
    highest, least = (Decimal(text).scaleb(-scale) for text in ("9e37", "1"))
    put(table, (1, highest))
    for _ in range(3):
        put(table, (1, highest))
        assert f"DECIMAL(38,{scale}) can hold" in refusal(lambda: table.scan().to_arrow())
    for _ in range(3):
        put(table, (1, highest, "-D"))
    put(table, (1, least))
    with localcontext(prec=38):
        assert rows(table) == [{"id": 1, "v": highest + least}]


@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
def test_a_count_and_a_product_say_what_helps_too(store: Store, later: bool) -> None:
    options = {**SUMS, "fields.v.aggregate-function": "count", "fields.w.aggregate-function": "product"}
    table = make(store, "id INT, v TINYINT, w DECIMAL(4,1)", **options, **(LATER if later else {}))
    refused = (lambda: table.scan().to_arrow()) if later else None
    put(table, (1, 1, Decimal(90)))

    def reported(*given: Sequence[Any]) -> str:
        if refused is None:
            return refusal(lambda: put(table, *given))
        put(table, *given)
        return refusal(refused)

    assert "DECIMAL(18,1)" in reported((1, 1, Decimal(90)))
    table.alter("ALTER COLUMN w TYPE DECIMAL(18,1)")
    assert "retract values of the key (-D)" in reported(*((1, 1, None) for _ in range(127)))
    table.alter("ALTER COLUMN v TYPE INT")
    if later:
        assert rows(table) == [{"id": 1, "v": 129, "w": Decimal(8100)}]
    else:
        assert rows(table) == [{"id": 1, "v": 1, "w": Decimal(90)}]
    assert_whole(table)


# ------------------------------------------------------------------------------------------------------ refused at once


@pytest.mark.parametrize("kind", ["INT", "DECIMAL(9,2)"])
@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
def test_a_zero_is_never_taken_back_from_a_product(store: Store, later: bool, kind: str) -> None:
    options = {**SUMS, "fields.v.aggregate-function": "product", **(LATER if later else {})}
    table = make(store, f"id INT, v {kind}", **options)
    put(table, (1, 5), (2, 6))
    for row in ((1, 0, "-D"), (1, 0, "-U"), (9, 0, "-D")):
        with pytest.raises(InvalidRequest, match=f"'v' of the key id = {row[0]}") as caught:
            put(table, (2, 3, "+I"), row)
        assert caught.value.code == "retract-refused"
    put(table, (1, 0, "+I"), (1, None, "-D"), (2, 6, "-D"))
    assert assert_whole(table, leftovers=False) == [{"id": 1, "v": 0}, {"id": 2, "v": 1}]


def test_a_column_without_a_value_names_the_key_and_can_be_repaired(store: Store) -> None:
    options = {**SUMS, "fields.v.aggregate-function": "last_value"}
    table = make(store, "id INT, v TINYINT NOT NULL", **options, **LATER)
    put(table, (1, 5), (2, 6))
    put(table, (1, 5, "-D"))
    with pytest.raises(InvalidRequest, match=r"'v' .* key id = 1: .*DROP NOT NULL"):
        table.compact(full=True)
    assert table.get([2]).to_pylist() == [{"id": 2, "v": 6}]
    table.alter("ALTER COLUMN v DROP NOT NULL")
    table.compact(full=True)
    assert assert_whole(table) == [{"id": 1, "v": None}, {"id": 2, "v": 6}]


# ------------------------------------------------------------------------------------------------ whose keys are merged


def test_conditions_on_keys_merge_those_keys_only(store: Store) -> None:
    columns = "day STRING, id INT, v TINYINT"
    table = store.create_table("shop.t", columns, primary_key=["day", "id"], options=SUMS | LATER)
    for _ in range(2):
        put(table, ("a", 1, 100), ("a", 2, 1), ("b", 1, 2), ("b", 3, 3))
    for where, expected in {
        "day = 'b'": [("b", 1, 4), ("b", 3, 6)],
        "id > 1": [("a", 2, 2), ("b", 3, 6)],
        "id = 1 AND day >= 'b'": [("b", 1, 4)],
        "(id = 2 OR (id = 1 AND day = 'b')) AND v > 0": [("a", 2, 2), ("b", 1, 4)],
        "id IN (2, 3) AND v * 2 < 10": [("a", 2, 2)],
        "id BETWEEN 2 AND 9": [("a", 2, 2), ("b", 3, 6)],
    }.items():
        found = [tuple(row.values()) for row in table.scan(where=where).to_arrow().to_pylist()]
        assert sorted(found) == expected, where
    for where in ("id < 2", "v > 0", "day = 'a' OR v = 4"):
        refusal(lambda where=where: table.scan(where=where).to_arrow())
    assert table.get(pa.table({"day": ["b", "a", "z"], "id": pa.array([3, 2, 1], pa.int32())})).count_rows() == 2


def test_a_stored_row_of_another_key_is_not_judged(store: Store) -> None:
    """A condition may fail on what is not there any more."""
    options = {**SUMS, "fields.t.aggregate-function": "last_value"}
    table = make(store, "id INT, t STRING, v INT", **options, **LATER)
    put(table, (1, "x", 1), (2, "7", 1))
    table.compact(full=True)
    put(table, (1, "8", 1))
    where = "id >= 2 AND CAST(t AS INT) > 0"
    assert table.scan(["id"], where).to_arrow()["id"].to_pylist() == [2]
    assert sorted(table.scan(["id"], "CAST(t AS INT) > 0").to_arrow()["id"].to_pylist()) == [1, 2]


def test_a_look_up_reads_the_row_groups_of_its_keys_only(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(store, "id INT, v INT", **SUMS, **LATER)
    for start in (0, 50_000):
        put(table, *((n, 1) for n in range(start, start + 50_000)))
    read = FileColumns.read
    groups: list[int] = []

    def counted(self: FileColumns, parquet: Any, group: int, names: Sequence[str] | None = None) -> pa.Table:
        groups.append(group)
        return read(self, parquet, group, names)

    monkeypatch.setattr(FileColumns, "read", counted)
    assert table.get([49_999]).to_pylist() == [{"id": 49_999, "v": 1}]
    assert set(groups) == {3}
    groups.clear()
    assert table.scan(where="id = 20000").to_arrow().num_rows == 1
    assert set(groups) == {1}
