"""The deduplicate engine against a loop (FORMAT.md section 9)."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.merge.deduplicate import ORDINAL_COLUMN, beats, reduce
from filestore.model.types import TIMESTAMP
from tests.filestore.arrays import values

SEQUENCES = [
    pa.int32(),
    pa.float64(),
    pa.string(),
    pa.decimal128(20, 2),
    TIMESTAMP,
    pa.date32(),
    pa.bool_(),
    pa.binary(),
]


def rank(value: Any) -> tuple[bool, bool, Any]:
    """Null is lowest, NaN highest."""
    nan = isinstance(value, float) and math.isnan(value)
    return value is not None, nan, None if value is None or nan else value


def not_below(one: Any, other: Any) -> bool:
    a, b = rank(one), rank(other)
    return a[:2] > b[:2] or (a[:2] == b[:2] and (a[2] is None or a[2] >= b[2]))


@pytest.mark.parametrize("kind", [None, *SEQUENCES], ids=str)
@pytest.mark.parametrize("with_ordinal", [False, True])
def test_the_winner_of_each_key(kind: pa.DataType | None, with_ordinal: bool) -> None:
    sequences = values(kind) if kind is not None else st.none()

    @given(st.lists(st.tuples(st.integers(0, 2), sequences), max_size=10), st.randoms(use_true_random=False))
    def wins(arrived: list[tuple[int, Any]], dice: Any) -> None:
        best: dict[int, tuple[Any, int]] = {}
        for order, (key, sequence) in enumerate(arrived):
            if key not in best or not_below(sequence, best[key][0]):
                best[key] = (sequence, order)
        rows = [(key, sequence, order) for order, (key, sequence) in enumerate(arrived)]
        if with_ordinal:
            dice.shuffle(rows)
        rows.sort(key=lambda row: row[0])
        columns = {
            "k": pa.array([row[0] for row in rows], pa.int64()),
            "s": pa.array([row[1] for row in rows], kind or pa.null()),
            "v": pa.array([row[2] for row in rows], pa.int64()),
        }
        if with_ordinal:
            columns[ORDINAL_COLUMN] = columns["v"]
        found = reduce(pa.table(columns), ["k"], "s" if kind is not None else None)
        assert dict(zip(found.column("k").to_pylist(), found.column("v").to_pylist(), strict=True)) == {
            key: order for key, (_, order) in best.items()
        }
        assert found.column("k").to_pylist() == sorted(best)

    wins()


@pytest.mark.parametrize("kind", SEQUENCES, ids=str)
def test_what_beats_a_stored_row(kind: pa.DataType) -> None:
    equal = values(kind).map(lambda value: (value, value))

    @given(st.lists(st.tuples(values(kind), values(kind)) | equal, max_size=8))
    def agrees(pairs: list[tuple[Any, Any]]) -> None:
        new = pa.chunked_array([pa.array([pair[0] for pair in pairs], kind)])
        stored = pa.chunked_array([pa.array([pair[1] for pair in pairs], kind)])
        assert beats(new, stored).tolist() == [not_below(*pair) for pair in pairs]

    agrees()
