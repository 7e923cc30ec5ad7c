"""The same rows in one commit or in several, merged at once or later: the table is the same, or needs rows in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.model.functions import FUNCTIONS
from filestore.operations.fold import fold_table
from tablestore import Store, Table
from tests.tables import assert_healthy
from tests.warehouses import rows, warehouse

Row = dict[str, Any]

SMALL = st.integers(-3, 3)
TEXTS = st.sampled_from(["a", "b", ""])
STRUCTS = st.lists(st.none() | st.fixed_dictionaries({"k": st.none() | st.integers(0, 2), "w": TEXTS}), max_size=3)
COLUMNS: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "sum": ("DECIMAL(38,2)", SMALL),
    "product": ("BIGINT", SMALL),
    "count": ("BIGINT", SMALL),
    "min": ("DOUBLE", st.sampled_from([1.0, -0.5, float("inf"), float("nan")])),
    "max": ("STRING", TEXTS),
    "first_value": ("STRING", TEXTS),
    "first_non_null_value": ("INT", SMALL),
    "last_value": ("INT", SMALL),
    "last_non_null_value": ("STRING", TEXTS),
    "listagg": ("STRING", TEXTS),
    "bool_and": ("BOOLEAN", st.booleans()),
    "bool_or": ("BOOLEAN", st.booleans()),
    "collect": ("ARRAY<INT>", st.lists(SMALL, max_size=3)),
    "merge_map": ("MAP<STRING, INT>", st.dictionaries(TEXTS, SMALL, max_size=2).map(lambda d: list(d.items()))),
    "nested_update": ("ARRAY<STRUCT<k: INT, w: STRING>>", STRUCTS),
}
"""A type and values for each function, whose name is also its column's."""

NEED_ORDER = [name for name, function in FUNCTIONS.items() if function.ordered]
NEED_NONE = [name for name, function in FUNCTIONS.items() if not function.ordered]
TAKEN_BACK = ["sum", "count"]


def options(ordering: str, functions: Sequence[str]) -> dict[str, str]:
    own = {f"fields.{name}.aggregate-function": name for name in functions}
    own |= {"fields.nested_update.nested-key": "k"} if "nested_update" in functions else {}
    if ordering == "group":
        return {"merge-engine": "partial-update", "fields.s.sequence-group": ",".join(functions), **own}
    return {"merge-engine": "aggregation", "sequence.field": "s", **own}


def make(store: Store, name: str, ordering: str, functions: Sequence[str], **more: str) -> Table:
    columns = ", ".join(["id INT", "s INT", *(f"{function} {COLUMNS[function][0]}" for function in functions)])
    given = {"log.system": "none", "bucket": "2", **options(ordering, functions), **more}
    return store.create_table(f"shop.{name}", columns, primary_key=["id"], options=given)


def changes(functions: Sequence[str], *, taking: bool) -> st.SearchStrategy[list[Row]]:
    values = {name: st.none() | COLUMNS[name][1] for name in functions}
    kinds = {"_kind": st.sampled_from(["+I", "+U", "-U", "-D"] if taking else ["+I", "+U"])}
    row = st.fixed_dictionaries({"id": st.integers(0, 2), "s": st.none() | st.integers(0, 5), **values, **kinds})
    return st.lists(row, min_size=1, max_size=10)


CUTS = st.lists(st.integers(0, 10), max_size=4).map(sorted)
STEPS = st.lists(st.sampled_from(["", "", "fold", "compact"]), min_size=6, max_size=6)


def write(table: Table, listed: Sequence[Row]) -> None:
    schema = pa.schema([*(field.with_nullable(True) for field in table.schema), pa.field("_kind", pa.string())])
    table.write(pa.Table.from_pylist(list(listed), schema=schema))


def agrees(ordering: str, functions: Sequence[str], listed: list[Row], cuts: list[int], steps: list[str]) -> None:
    """Compares one commit with the same rows in several, in both write modes, with folds and compactions in between."""
    with warehouse() as store:
        whole = make(store, "whole", ordering, functions)
        write(whole, listed)
        wanted = repr(rows(whole))  # as text: NaN is like itself
        for mode in ("merge-on-write", "merge-on-read"):
            parts = make(store, mode.replace("-", "_"), ordering, functions, **{"write-mode": mode})
            for start, end, step in zip([0, *cuts], [*cuts, len(listed)], steps, strict=False):
                if listed[start:end]:
                    write(parts, listed[start:end])
                if step == "fold":
                    fold_table(parts.filestore, full=True)
                elif step == "compact":
                    parts.compact(full=True)
            assert repr(rows(parts)) == wanted, mode
            parts.compact(full=True)
            assert repr(rows(parts)) == wanted, mode


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("ordering", ["sequence", "group"])
@settings(max_examples=(settings.default.max_examples + 1) // 2)
@given(changes(NEED_NONE, taking=False), CUTS, STEPS)
def test_rows_in_any_order(ordering: str, listed: list[Row], cuts: list[int], steps: list[str]) -> None:
    agrees(ordering, NEED_NONE, listed, cuts, steps)


@pytest.mark.slow
@settings(max_examples=(settings.default.max_examples + 1) // 2)
@given(changes(TAKEN_BACK, taking=True), CUTS, STEPS)
def test_rows_in_any_order_that_take_values_back(listed: list[Row], cuts: list[int], steps: list[str]) -> None:
    agrees("sequence", TAKEN_BACK, listed, cuts, steps)


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("ordering", ["sequence", "group"])
@settings(max_examples=(settings.default.max_examples + 1) // 2)
@given(changes(list(COLUMNS), taking=False), CUTS, STEPS)
def test_rows_in_order(ordering: str, listed: list[Row], cuts: list[int], steps: list[str]) -> None:
    listed.sort(key=lambda row: -1 if row["s"] is None else row["s"])
    agrees(ordering, list(COLUMNS), listed, cuts, steps)


def test_every_function_is_tried() -> None:
    assert set(COLUMNS) == set(FUNCTIONS)


OUT_OF_ORDER = {
    "first_value": "ab",
    "first_non_null_value": [1, 2],
    "last_non_null_value": "ab",
    "listagg": "ab",
    "collect": [[1], [2]],
    "merge_map": [[("a", 1)], [("a", 2)]],
    "nested_update": [[{"k": 0, "w": "a"}], [{"k": 0, "w": "b"}]],
}
"""For each function that needs order, two values that show which of them was first."""


@pytest.mark.few(6)
@pytest.mark.parametrize("ordering", ["sequence", "group"])
@pytest.mark.parametrize("function", NEED_ORDER)
def test_a_late_row_counts_before_all_that_is_stored(store: Store, function: str, ordering: str) -> None:
    """Of sequences 1, 3, 2 in one commit the last row is merged between the others; in a later commit before both."""
    one, other = OUT_OF_ORDER[function]
    listed = [{"id": 1, "s": s, function: v, "_kind": "+I"} for s, v in ((1, one), (3, None), (2, other))]
    together, apart = (make(store, name, ordering, [function]) for name in ("together", "apart"))
    write(together, listed)
    for row in listed:
        write(apart, [row])
    reverse = make(store, "reverse", ordering, [function])
    write(reverse, [row | {"s": s} for row, s in zip(listed, (2, 3, 1), strict=True)])
    assert rows(apart) == rows(reverse) != rows(together)
    assert_healthy(apart.filestore)
