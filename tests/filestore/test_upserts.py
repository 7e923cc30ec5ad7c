"""Changes as upserts, beside a loop over rows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from filestore.model.rowkind import KIND_COLUMN
from filestore.rows.upserts import as_upserts, upserts

KEYS = st.tuples(st.integers(0, 2), st.none() | st.integers(0, 1))
KINDS = st.sampled_from(["+I", "-U", "+U", "-D"])
SCHEMA = pa.schema([(KIND_COLUMN, pa.string()), ("a", pa.int64()), ("b", pa.int64())])
EVENTS = st.lists(
    st.tuples(KINDS, KEYS).map(lambda change: [(change[0], *change[1])])
    | st.tuples(KEYS, KEYS).map(lambda keys: [("-U", *keys[0]), ("+U", *keys[1])]),
    max_size=12,
)


def table(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = [[row[at] for row in rows] for at in range(len(SCHEMA))]
    return pa.table(columns, schema=SCHEMA)


def expected(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """A row before an update is left out if the update follows, and a delete if it does not."""
    found = []
    for row, later in pairwise([*rows, None]):
        assert row is not None
        followed = later is not None and later[0] == "+U" and later[1:] == row[1:] and None not in row
        if row[0] != "-U":
            found.append(row)
        elif not followed:
            found.append(("-D", *row[1:]))
    return found


@given(EVENTS)
def test_updates_without_the_rows_before(events: list[list[tuple[Any, ...]]]) -> None:
    rows = [row for event in events for row in event]
    assert [tuple(row.values()) for row in as_upserts(table(rows), ["a", "b"]).to_pylist()] == expected(rows)


@given(EVENTS, st.lists(st.integers(0, 24), max_size=4))
@example([[("-U", 0, 0), ("+U", 0, 0)]], [1])
@example([[("-D", 0, 0)], [("+U", 0, 0)]], [1])
def test_it_does_not_matter_where_batches_end(events: list[list[tuple[Any, ...]]], cuts: list[int]) -> None:
    rows = [row for event in events for row in event]
    ends = sorted({0, len(rows), *(min(cut, len(rows)) for cut in cuts)})
    batches = [table(rows[start:end]) for start, end in pairwise(ends)]
    found = [tuple(row.values()) for batch in upserts(batches, ["a", "b"]) for row in batch.to_pylist()]
    assert found == expected(rows)
