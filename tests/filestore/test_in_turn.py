"""Rows of several commits give the same whether each is merged when it comes, or several are folded at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from filestore.errors import InvalidRequest
from filestore.merge.fieldwise import Merged
from filestore.merge.history import RUN_COLUMN, Stored, group_starts, history
from filestore.merge.in_turn import merge_history
from filestore.model.functions import FUNCTIONS
from filestore.model.merging import Deletes, MergeEngine, MergeSpec
from filestore.model.types import to_sql
from filestore.rows.equality import same_rows
from tests.filestore.test_fieldwise import CASES, KINDS, SMALL, field_of
from tests.tables import define

Row = dict[str, Any]
Commits = Sequence[Sequence[Row]]

ROUGH = st.sampled_from([0.1, 0.2, -0.3, 0.0, -0.0, 1e300, math.nan, math.inf])
MORE = [(case, pa.float64(), ROUGH) for case in ("sum", "product", "min", "max", "last_non_null_value")]
KEYS = st.sampled_from([0, 0, 0, 1])
PUTS = {"-U": "+U", "-D": "+I"}
HALVES = {"-D": "-U"}


@st.composite
def options_of(draw: st.DrawFn, case: str) -> dict[str, str]:
    """Every way in which a table with that function may order rows and take them back."""
    engine = draw(st.sampled_from(["aggregation", "partial-update"]))
    field = field_of(case)
    given = {"merge-engine": engine, "fields.v.aggregate-function": field.function}
    if draw(st.booleans()):
        given["sequence.field"] = "s"
    if engine == "partial-update" and draw(st.booleans()):
        given["fields.g.sequence-group"] = "v"
    if engine == "aggregation" and draw(st.booleans()):
        given["fields.default-aggregate-function"] = "last_value"  # of g, and of s, if that does not order the rows
    if field.distinct:
        given["fields.v.distinct"] = "true"
    if field.nested_key:
        given["fields.v.nested-key"] = "id"
    retracts = engine == "aggregation" or "fields.g.sequence-group" in given
    more = ["fields.v.ignore-retract"] if retracts else []
    deletes = draw(st.sampled_from(["ignore-delete", f"{engine}.remove-record-on-delete", "", *more]))
    return given | ({deletes: "true"} if deletes else {})


def takes(spec: MergeSpec) -> bool:
    """Whether the engine merges rows that take away."""
    if spec.deletes is Deletes.REFUSE:
        return False
    fields = {n: f for n, f in spec.fields.items() if n != spec.sequence and n not in f.order_by}
    able = (f.ignore_retract or FUNCTIONS[f.function].retracts for f in fields.values())
    return spec.deletes is not Deletes.RETRACT or all(able)


def fold(stored: pl.DataFrame | None, commits: Commits, schema: pa.Schema, spec: MergeSpec) -> pl.DataFrame | None:
    """The rows of the table after some more commits, which are folded at once; None without any."""
    rows = [{**row, RUN_COLUMN: n} for n, commit in enumerate(commits) for row in commit]
    rows.sort(key=lambda row: row["k"])
    types = [*schema, pa.field("_kind", pa.string()), pa.field(RUN_COLUMN, pa.int32())]
    arrow = pa.Table.from_pylist(rows, schema=pa.schema(types))
    if not spec.in_turn:
        arrow = arrow.drop_columns([RUN_COLUMN])
    starts = group_starts(arrow, ["k"])
    keys = arrow.column("k").to_numpy()[starts]
    there = [] if stored is None else [n for n, key in enumerate(keys) if key in stored["k"]]
    old = [stored.filter(pl.col("k") == keys[n]) for n in there] if stored is not None else []
    parts = [Stored(np.array(there), pl.concat(old))] if old else []
    merged: Merged = merge_history(history(arrow, starts, parts, spec.sequence), spec, ["k"])
    rest = [] if stored is None else [stored.filter(~pl.col("k").is_in(keys))]
    alive = merged.rows.filter(merged.alive)
    return pl.concat([*(frame.select(alive.columns) for frame in rest), alive]).sort("k")


def state_after(folds: Sequence[Commits], schema: pa.Schema, spec: MergeSpec) -> pl.DataFrame | None:
    stored = None
    for commits in folds:
        stored = fold(stored, commits, schema, spec)
    return stored


@st.composite
def histories(draw: st.DrawFn) -> tuple[MergeSpec, pa.Schema, Commits, set[int]]:
    case, kind, values = draw(st.sampled_from([*CASES, *MORE]))
    definition = define(f"k BIGINT, s INT, g INT, v {to_sql(kind)}", ["k"], **draw(options_of(case)))
    row = st.fixed_dictionaries(
        {
            "k": KEYS,
            "s": st.none() | SMALL,
            "g": st.none() | SMALL,
            "v": st.none() | values,
            "_kind": KINDS,
        }
    )
    sizes = draw(st.sampled_from([(1, 1, 1), (1, 1, 1, 1), (1, 2, 1), (2, 1, 1, 2), (1, 1, 2, 1, 1)]))
    commits = [[draw(row) for _ in range(size)] for size in sizes]
    if not takes(definition.merging):
        spec = definition.merging
        grouped = spec.engine is MergeEngine.PARTIAL_UPDATE and spec.deletes is Deletes.RETRACT
        mergeable = HALVES if grouped else PUTS
        commits = [[{**row, "_kind": mergeable.get(row["_kind"], row["_kind"])} for row in some] for some in commits]
    cuts = draw(st.sampled_from([set[int](), set[int](), {1}, {2}, {1, 3}]))
    return definition.merging, definition.schema.to_arrow(), commits, cuts


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples * 4)
@given(histories())
def test_it_makes_no_difference_when_commits_are_folded(
    history: tuple[MergeSpec, pa.Schema, Commits, set[int]],
) -> None:
    spec, schema, commits, cuts = history
    try:
        wanted = state_after([[commit] for commit in commits], schema, spec)
    except InvalidRequest as error:
        assert error.code in ("out-of-range", "retract-refused")
        assume(False)
        return
    borders = [0, *sorted(cut for cut in cuts if cut < len(commits)), len(commits)]
    found = state_after([commits[a:b] for a, b in itertools.pairwise(borders)], schema, spec)
    assert wanted is not None
    assert found is not None
    assert found["k"].to_list() == wanted["k"].to_list(), (found, wanted)
    assert same_rows(found, wanted).all(), (found, wanted)


def test_after_a_delete_a_row_with_a_lower_sequence_is_not_late() -> None:
    """Merged with the rest at once, the delete would be the last row of its key."""
    options = {"merge-engine": "aggregation", "aggregation.remove-record-on-delete": "true"}
    options |= {"fields.v.aggregate-function": "sum", "sequence.field": "s"}
    definition = define("k BIGINT, s INT, v INT", ["k"], **options)
    commits = [
        [{"k": 0, "s": 5, "v": 1, "_kind": "+I"}],
        [{"k": 0, "s": 6, "v": None, "_kind": "-D"}],
        [{"k": 0, "s": 3, "v": 2, "_kind": "+I"}],
    ]
    for folds in ([commits], [[commit] for commit in commits]):
        found = state_after(folds, definition.schema.to_arrow(), definition.merging)
        assert found is not None
        assert found.to_dicts() == [{"k": 0, "s": 3, "v": 2}]
