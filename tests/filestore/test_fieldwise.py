"""Merging column by column against a loop over rows, for every function and every kind of row (FORMAT.md section 9)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from filestore.errors import InvalidRequest
from filestore.merge.fieldwise import merge_fields
from filestore.merge.history import Stored, group_starts, history
from filestore.model.functions import FUNCTIONS
from filestore.model.merging import Deletes, FieldMerge, MergeEngine, MergeSpec
from tests.tables import define

Value = Any
Row = dict[str, Any]

STRUCT = pa.struct([("id", pa.int64()), ("name", pa.string())])
SMALL = st.integers(-3, 3)
TEXTS = st.sampled_from(["a", "b", "ab", ""])
DECIMALS = SMALL.map(lambda n: Decimal(n).scaleb(-1))
FLOATS = st.sampled_from([0.0, 1.0, -2.0, 0.5, math.nan, math.inf])
EXACT = st.sampled_from([1.0, -2.0, 0.5, 4.0])
ARRAYS = st.lists(st.one_of(st.none(), st.integers(0, 2)), max_size=3)
MAPS = st.dictionaries(TEXTS, st.one_of(st.none(), SMALL), max_size=3).map(lambda d: list(d.items()))
STRUCTS = st.lists(
    st.none() | st.fixed_dictionaries({"id": st.none() | st.integers(0, 2), "name": st.none() | TEXTS}), max_size=3
)

CASES: list[tuple[str, pa.DataType, st.SearchStrategy[Value]]] = [
    ("sum", pa.int32(), SMALL),
    ("sum", pa.int8(), st.integers(-20, 20)),
    ("sum", pa.float64(), EXACT),
    ("sum", pa.decimal128(10, 1), DECIMALS),
    ("product", pa.int64(), st.integers(-3, 3).filter(bool)),
    ("product", pa.float64(), EXACT),
    ("product", pa.decimal128(18, 2), DECIMALS.filter(bool)),
    ("count", pa.int64(), SMALL),
    ("min", pa.int16(), SMALL),
    ("min", pa.float32(), FLOATS),
    ("min", pa.string(), TEXTS),
    ("max", pa.float64(), FLOATS),
    ("max", pa.decimal128(10, 1), DECIMALS),
    ("max", pa.binary(), st.binary(max_size=2)),
    ("first_value", pa.string(), TEXTS),
    ("first_non_null_value", pa.int32(), SMALL),
    ("last_value", pa.list_(pa.int64()), ARRAYS),
    ("last_non_null_value", STRUCT, st.fixed_dictionaries({"id": SMALL, "name": TEXTS})),
    ("listagg", pa.string(), TEXTS),
    ("bool_and", pa.bool_(), st.booleans()),
    ("bool_or", pa.bool_(), st.booleans()),
    ("collect", pa.list_(pa.int64()), ARRAYS),
    ("collect distinct", pa.list_(pa.int64()), ARRAYS),
    ("merge_map", pa.map_(pa.string(), pa.int64()), MAPS),
    ("nested_update", pa.list_(STRUCT), STRUCTS),
    ("nested_update by id", pa.list_(STRUCT), STRUCTS),
]


def field_of(case: str) -> FieldMerge:
    function, _, more = case.partition(" ")
    return FieldMerge(function, distinct=more == "distinct", nested_key=("id",) if more == "by id" else ())


# ------------------------------------------------------------------------------------------------- one row at a time


def step(case: str, kind: pa.DataType, held: Value, value: Value, first: bool, add: bool) -> Value:  # noqa: C901
    """The column after one more row."""
    match case:
        case "first_value":
            return value if first else held
        case "last_value":
            return value if add else None
    if value is None:
        return held
    match case:
        case "count":
            return (held or 0) + (1 if add else -1)
        case "sum":
            return (held if held is not None else 0) + (value if add else -value)
        case "product" if held is None:
            return value if add else None
        case "product":
            return times(kind, held, value) if add else divided(kind, held, value)
        case "min" | "max":
            return value if held is None else extreme(case, held, value)
        case "first_non_null_value":
            return value if held is None else held
        case "last_non_null_value":
            return value
        case "listagg":
            return value if held is None else f"{held},{value}"
        case "bool_and":
            return value and held is not False
        case "bool_or":
            return value or held is True
        case "merge_map":
            return list((dict(held or []) | dict(value)).items())
        case "nested_update":
            return [*(held or []), *value]
        case "nested_update by id":
            return list({(row is None, row and row["id"]): row for row in [*(held or []), *value]}.values())
        case _:
            return collected(list(held or []), value, add=add, distinct=case == "collect distinct")


def collected(held: list[Value], value: list[Value], *, add: bool, distinct: bool) -> list[Value]:
    for element in value:
        if add and not (distinct and element in held):
            held.append(element)
        elif not add and element in held:
            held.remove(element)
    return held


def extreme(case: str, one: Value, other: Value) -> Value:
    def rank(value: Value) -> tuple[bool, Value]:
        nan = isinstance(value, float) and math.isnan(value)
        return nan, 0 if nan else value

    return (min if case == "min" else max)(one, other, key=rank)


def times(kind: pa.DataType, one: Value, other: Value) -> Value:
    return rounded(kind, one * other) if pa.types.is_decimal(kind) else one * other


def divided(kind: pa.DataType, one: Value, other: Value) -> Value:
    if pa.types.is_decimal(kind):
        return rounded(kind, one / other)
    return one / other if pa.types.is_floating(kind) else int(abs(one) // abs(other)) * (1 if one * other > 0 else -1)


def rounded(kind: pa.DataType, value: Decimal) -> Decimal:
    return value.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)


def fits(kind: pa.DataType, value: Value) -> bool:
    if pa.types.is_integer(kind) and value is not None:
        return -(2 ** (kind.bit_width - 1)) <= value < 2 ** (kind.bit_width - 1)
    return not pa.types.is_decimal(kind) or value is None or abs(value) < 10 ** (kind.precision - kind.scale)


def same(one: Value, other: Value) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)


# ---------------------------------------------------------------------------------------------------------- histories


def table(rows: Sequence[Row], kind: pa.DataType) -> pa.Table:
    columns = {
        "k": pa.array([row["k"] for row in rows], pa.int64()),
        "s": pa.array([row["s"] for row in rows], pa.int32()),
        "v": pa.array([row["v"] for row in rows], kind),
    }
    return pa.table(columns)


def merged(
    spec: MergeSpec, stored: dict[int, Row], changes: Sequence[Row], kind: pa.DataType
) -> dict[int, tuple[bool, Value, Value]]:
    """Key: whether it has a row, its value and its sequence."""
    rows = sorted(changes, key=lambda row: row["k"])
    arrow = table(rows, kind).append_column("_kind", pa.array([row["kind"] for row in rows], pa.string()))
    starts = group_starts(arrow, ["k"])
    keys = [rows[start]["k"] for start in starts]
    known = [key for key in keys if key in stored]
    parts = [Stored(np.array([keys.index(k)]), pl.from_arrow(table([stored[k]], kind))) for k in known]
    found = merge_fields(history(arrow, starts, parts, spec.sequence), spec, ["k"])
    result = found.rows.to_dicts()
    assert [row["k"] for row in result] == keys
    return {row["k"]: (alive, row["v"], row["s"]) for row, alive in zip(result, found.alive, strict=True)}


def plain(kind: pa.DataType, value: Value) -> Value:
    """As polars shows it."""
    if pa.types.is_map(kind) and value is not None:
        return [{"key": key, "value": item} for key, item in value]
    if pa.types.is_float32(kind) and value is not None:
        return float(np.float32(value))
    return value


def oracle(
    case: str, spec: MergeSpec, stored: dict[int, Row], changes: Sequence[Row], kind: pa.DataType
) -> dict[int, tuple[bool, Value, Value]]:
    result = {}
    for key in sorted({row["k"] for row in changes}):
        rows = [{**stored[key], "kind": None, "stored": True}] if key in stored else []
        rows += [row for row in changes if row["k"] == key]
        if spec.sequence:
            rows.sort(key=lambda row: (row["s"] is not None, row["s"] or 0))
        alive, held, sequence = False, None, None
        for row in rows:
            add = row["kind"] not in ("-U", "-D")
            if not add and spec.deletes is not Deletes.RETRACT:
                if spec.deletes is Deletes.REMOVE and row["kind"] == "-D":
                    alive, held, sequence = False, None, None
                continue
            value = row["v"]
            if row.get("stored") and case == "count":
                held = (held or 0) + (value or 0)
            else:
                held = step(case, kind, held, value, not alive, add)
            held = 0 if held is None and case == "count" else held
            sequence = row["s"] if row["s"] is not None else sequence
            alive = True
        result[key] = (alive, held, sequence)
    return result


KINDS = st.sampled_from([None, "+I", "+U", "-U", "-D"])


def histories(values: st.SearchStrategy[Value]) -> st.SearchStrategy[tuple[dict[int, Row], list[Row]]]:
    row = st.fixed_dictionaries({"s": st.one_of(st.none(), SMALL), "v": st.one_of(st.none(), values)})
    stored = st.dictionaries(st.integers(0, 2), row).map(lambda d: {k: {**r, "k": k} for k, r in d.items()})
    change = st.fixed_dictionaries(
        {"k": st.integers(0, 2), "s": st.one_of(st.none(), SMALL), "v": st.one_of(st.none(), values), "kind": KINDS}
    )
    return st.tuples(stored, st.lists(change, min_size=1, max_size=8))


@pytest.mark.few(26)
@pytest.mark.parametrize("sequence", [None, "s"], ids=["arrival", "sequence"])
@pytest.mark.parametrize(("case", "kind", "values"), CASES, ids=[f"{c}-{k}" for c, k, _ in CASES])
def test_a_function_against_a_loop(
    case: str, kind: pa.DataType, values: st.SearchStrategy[Value], sequence: str | None
) -> None:
    field = field_of(case)
    retracts = FUNCTIONS[field.function].retracts

    @given(histories(values), st.sampled_from(Deletes))
    def agrees(given: tuple[dict[int, Row], list[Row]], deletes: Deletes) -> None:
        stored, changes = given
        if deletes is Deletes.REFUSE or (deletes is Deletes.RETRACT and not retracts):
            changes = [row for row in changes if row["kind"] not in ("-U", "-D")] or [{**changes[0], "kind": "+I"}]
        fields = {"s": FieldMerge("last_non_null_value", ignore_retract=True), "v": field}
        spec = MergeSpec(MergeEngine.AGGREGATION, deletes, sequence, fields)
        wanted = oracle(case, spec, stored, changes, kind)
        if not all(fits(kind, value) for _, value, _ in wanted.values()):
            with pytest.raises(InvalidRequest, match="'v'"):
                merged(spec, stored, changes, kind)
            return
        found = merged(spec, stored, changes, kind)
        for key, (alive, value, _) in wanted.items():
            assert found[key][0] == alive, (key, found)
            if alive:
                assert same(found[key][1], plain(kind, value)), (key, found[key], value)

    agrees()


@pytest.mark.parametrize(("case", "wanted"), [("min", 1.0), ("max", math.nan)])
@pytest.mark.parametrize("numbers", [(math.nan, 1.0), (1.0, math.nan)], ids=str)
def test_a_nan_is_above_all_numbers(case: str, wanted: float, numbers: tuple[float, float]) -> None:
    fields = {"s": FieldMerge("last_non_null_value", ignore_retract=True), "v": field_of(case)}
    spec = MergeSpec(MergeEngine.AGGREGATION, Deletes.RETRACT, None, fields)
    rows = [{"k": 0, "s": None, "v": number, "kind": "+I"} for number in numbers]
    assert same(merged(spec, {}, rows, pa.float64())[0][1], wanted)


@pytest.mark.parametrize(
    ("case", "kind", "changes", "wanted"),
    [
        ("count", pa.int64(), [("+I", 5), ("+I", 6), ("-D", 5)], 1),
        ("count", pa.int64(), [("+I", 5), ("+I", None), ("-D", None)], 1),
        ("product", pa.decimal128(18, 2), [("+I", Decimal("0.05")), ("+I", Decimal("0.50"))], Decimal("0.03")),
        ("product", pa.decimal128(18, 2), [("+I", Decimal("-0.05")), ("+I", Decimal("0.50"))], Decimal("-0.03")),
        ("collect", pa.list_(pa.int32()), [("-D", [1]), ("+I", [1])], [1]),
        ("collect", pa.list_(pa.int32()), [("+I", [1]), ("-D", [1]), ("-D", [1]), ("+I", [1, 2])], [1, 2]),
    ],
)
def test_retractions_and_roundings(case: str, kind: pa.DataType, changes: list[tuple[str, Any]], wanted: Any) -> None:
    fields = {"s": FieldMerge("last_non_null_value", ignore_retract=True), "v": field_of(case)}
    spec = MergeSpec(MergeEngine.AGGREGATION, Deletes.RETRACT, None, fields)
    rows = [{"k": 0, "s": None, "v": value, "kind": given} for given, value in changes]
    assert merged(spec, {}, rows, kind)[0][:2] == (True, wanted)


@pytest.mark.parametrize("case", ["nested_update by id", "collect distinct"])
def test_a_null_element_equals_null_elements_only(case: str) -> None:
    """It equalled a struct whose key is null, and went or took that struct's place."""
    fields = {"s": FieldMerge("last_non_null_value", ignore_retract=True), "v": field_of(case)}
    spec = MergeSpec(MergeEngine.AGGREGATION, Deletes.RETRACT, None, fields)
    nothing = {"id": None, "name": None}
    for values in ([None, nothing], [nothing, None], [None, nothing, {"id": 0, "name": None}]):
        for writes in ([values], [[value] for value in values], [values, values]):
            rows = [{"k": 0, "s": None, "v": value, "kind": "+I"} for value in writes]
            assert merged(spec, {}, rows, pa.list_(STRUCT))[0][1] == values, (values, writes)


# ---------------------------------------------------------------------------------------------------- sequence groups

GROUPED = pa.schema([("k", pa.int64()), ("g", pa.int32()), ("a", pa.int32()), ("h", pa.int32()), ("i", pa.int32()),
                     ("b", pa.int32()), ("c", pa.int32())])  # fmt: skip
GROUPED_COLUMNS = "k BIGINT, g INT, a INT, h INT, i INT, b INT, c INT"
GROUPED_OPTIONS = {
    "merge-engine": "partial-update",
    "fields.g.sequence-group": "a",
    "fields.h,i.sequence-group": "b",
}


def grouped(rows: Sequence[Row]) -> Row | None:
    """The columns of one key after its rows; None without a row that puts one. Paimon's rule, row by row."""
    held: Row = dict.fromkeys(GROUPED.names)
    for row in rows:
        puts = row.get("_kind") not in ("-U", "-D")
        for order, members in ((("g",), ("g", "a")), (("h", "i"), ("h", "i", "b"))):
            if any(row[name] is not None for name in order) and rank(row, order) >= rank(held, order):
                held |= {name: row[name] if puts or name in order else None for name in members}
        held |= {name: row[name] for name in ("k", "c") if row[name] is not None and (puts or name == "k")}
    return held if any(row.get("_kind") not in ("-U", "-D") for row in rows) else None


def rank(row: Row, order: Sequence[str]) -> list[tuple[bool, int]]:
    return [(row[name] is not None, row[name] or 0) for name in order]


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "k": st.integers(0, 1),
                **{n: st.none() | st.integers(-1, 2) for n in GROUPED.names if n != "k"},
                "_kind": KINDS,
            }
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 8),
)
@example([{"k": 0, "g": 1, "a": 1, "h": 1, "i": None, "b": 1, "c": 1, "_kind": "+I"}], 0)
def test_sequence_groups_against_a_loop(changes: list[Row], cut: int) -> None:
    spec = define(GROUPED_COLUMNS, ["k"], **GROUPED_OPTIONS).merging
    assert spec.deletes is Deletes.RETRACT
    first, rest = changes[:cut], changes[cut:]
    before = {key: grouped([row for row in first if row["k"] == key]) for key in {row["k"] for row in first}}
    stored = {key: row for key, row in before.items() if row is not None}
    assume(rest)
    with_kinds = GROUPED.append(pa.field("_kind", pa.string()))
    arrow = pa.Table.from_pylist(sorted(rest, key=lambda row: row["k"]), schema=with_kinds)
    starts = group_starts(arrow, ["k"])
    keys = [arrow.column("k")[int(start)].as_py() for start in starts]
    known = [
        Stored(np.array([n]), pl.from_arrow(pa.Table.from_pylist([stored[key]], schema=GROUPED)))
        for n, key in enumerate(keys)
        if key in stored
    ]
    found = merge_fields(history(arrow, starts, known, None), spec, ["k"])
    rows = [row if alive else None for row, alive in zip(found.rows.to_dicts(), found.alive, strict=True)]
    # a key that only lost values before the cut has no row there, and nothing remembers its sequences
    known_rows = {key: [stored[key]] if key in stored else [] for key in keys}
    assert rows == [grouped([*known_rows[key], *(row for row in rest if row["k"] == key)]) for key in keys]
