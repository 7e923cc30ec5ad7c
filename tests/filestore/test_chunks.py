"""Chunks: no key and no slot is split, and all chunks together have all rows, except rows that lose anyway."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import example, given
from hypothesis import strategies as st

from filestore.merge.deduplicate import ORDINAL_COLUMN, reduce
from filestore.model.rowkind import KIND_COLUMN
from filestore.sorting.chunks import BUCKET_COLUMN, cut_chunks, whole_keys
from filestore.sorting.order import sort_rows
from tests.tables import define

ROWS = st.lists(
    st.fixed_dictionaries({"id": st.integers(0, 6), "p": st.sampled_from(["x", "y"]), "v": st.integers(0, 99)}),
    max_size=40,
)


def batches_of(table: pa.Table, sizes: list[int]) -> list[pa.RecordBatch]:
    batches, start = [], 0
    for size in [*sizes, table.num_rows]:
        batches += table.slice(start, size).to_batches()
        start += size
    return batches


def tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def last_of_each_key(rows: list[tuple[Any, ...]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    return {row[:2]: row for row in rows}


@given(ROWS, st.lists(st.integers(0, 15), max_size=8), st.integers(1, 10), st.booleans())
def test_chunks(rows: list[dict[str, Any]], sizes: list[int], want: int, keyed: bool) -> None:
    key = ["id", "p"] if keyed else []
    definition = define("id BIGINT, p STRING, v INT", key, ["p"], bucket=3)
    arrow = pa.Table.from_pylist(rows, schema=definition.schema.to_arrow())
    ordered = sort_rows(arrow, definition)
    chunks = list(cut_chunks(batches_of(ordered, sizes), definition, want))
    found, whole = [row for _, chunk in chunks for row in tuples(chunk)], tuples(ordered)
    if keyed:
        rest = iter(whole)
        assert all(row in rest for row in found), "in the same order"
        assert last_of_each_key(found) == last_of_each_key(whole)
    else:
        assert found == whole
    for slot, chunk in chunks:
        assert chunk.num_rows
        assert set(chunk.column(BUCKET_COLUMN).to_pylist()) == {slot.bucket}
        assert set(chunk.column("p").to_pylist()) == {dict(slot.partition)["p"]}
    if keyed:
        ends = [(slot, chunk.column("id")[-1].as_py()) for slot, chunk in chunks]
        starts = [(slot, chunk.column("id")[0].as_py()) for slot, chunk in chunks]
        assert not {end for end, start in zip(ends, starts[1:], strict=False) if end == start}, "a key in two chunks"


@given(st.integers(1, 400), st.integers(1, 50))
def test_one_huge_batch_becomes_small_chunks(count: int, want: int) -> None:
    definition = define("id BIGINT", ["id"])
    table = pa.table({"id": range(count), BUCKET_COLUMN: pa.array([0] * count, pa.int32())})
    chunks = [chunk.num_rows for _, chunk in cut_chunks(table.to_batches(), definition, want)]
    assert sum(chunks) == count
    assert max(chunks) <= 2 * want


def test_a_key_with_more_rows_than_a_chunk_stays_in_one() -> None:
    definition = define("id BIGINT, v INT", ["id"])
    ids = [1] + [2] * 50 + [3]
    table = sort_rows(pa.table({"id": ids, "v": pa.array(range(52), pa.int32())}), definition)
    chunks = [chunk for _, chunk in cut_chunks(table.to_batches(max_chunksize=7), definition, 5)]
    [twos] = [chunk for chunk in chunks if 2 in chunk.column("id").to_pylist()]
    assert twos.filter(pc.field("id") == 2).column("v")[-1].as_py() == 50


def test_null_partitions_are_one_slot() -> None:
    definition = define("v INT, p STRING", (), ["p"])
    table = pa.table({"v": pa.array([1, 2, 3], pa.int32()), "p": pa.array([None, "a", None])})
    slots = [slot for slot, _ in cut_chunks(sort_rows(table, definition).to_batches(), definition, 10)]
    assert [dict(slot.partition) for slot in slots] == [{"p": None}, {"p": "a"}]


@given(st.lists(st.integers(0, 5), max_size=30), st.lists(st.integers(0, 4), max_size=20))
def test_whole_keys_hold_each_key_in_one_piece(keys: list[int], sizes: list[int]) -> None:
    table = pa.table({"id": sorted(keys), "n": range(len(keys))})
    cuts = list(itertools.accumulate(sizes, initial=0))
    pieces = [table.slice(start, end - start) for start, end in itertools.pairwise([*cuts, max(cuts[-1], len(keys))])]
    found = list(whole_keys(pieces, ["id"]))
    assert pa.concat_tables([table.slice(0, 0), *found]) == table
    held = [set(piece.column("id").to_pylist()) for piece in found]
    assert all(held)
    assert sum(map(len, held)) == len(set(keys))


@example([("+I", 9), ("+I", 1), ("-U", 9), ("+U", 3)], [3], 2)
@given(
    st.lists(st.tuples(st.sampled_from(["+I", "-U", "+U", "-D"]), st.sampled_from([None, 1, 2, 3])), max_size=14),
    st.lists(st.integers(0, 4), max_size=8),
    st.integers(1, 4),
)
def test_what_is_left_of_a_key_with_many_rows_has_the_same_winner(
    changes: list[tuple[str, int | None]], sizes: list[int], want: int
) -> None:
    """A former row won if its new one was in the next batch, and what it had beaten was gone."""
    definition = define("id BIGINT, s BIGINT", ["id"], sequence_field="s")
    kinds, sequences = [kind for kind, _ in changes], [sequence for _, sequence in changes]
    table = pa.table(
        {
            "id": pa.array([1] * len(changes), pa.int64()),
            "s": pa.array(sequences, pa.int64()),
            KIND_COLUMN: pa.array(kinds, pa.string()),
            ORDINAL_COLUMN: pa.array(range(len(changes)), pa.int64()),
            BUCKET_COLUMN: pa.array([0] * len(changes), pa.int32()),
        }
    )
    chunks = [table.slice(0, 0), *(chunk for _, chunk in cut_chunks(batches_of(table, sizes), definition, want))]
    assert reduce(pa.concat_tables(chunks), ["id"], "s") == reduce(table, ["id"], "s")
