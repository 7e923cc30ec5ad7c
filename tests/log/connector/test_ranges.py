"""How offsets are cut for tasks and batches: nothing is lost, doubled, or kept waiting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from log.connector.ranges import PartitionRange, admitted, parts

LAGS = st.dictionaries(st.integers(0, 20), st.tuples(st.integers(0, 50), st.integers(-3, 40)), max_size=6)


@given(LAGS, st.integers(1, 30))
def test_parts_are_the_same_offsets_in_order(lags: dict[int, tuple[int, int]], most: int) -> None:
    ranges = [PartitionRange(p, start, start + max(0, lag)) for p, (start, lag) in lags.items()]
    found = parts(ranges, most)
    assert all(0 < r.end - r.start <= most for r in found)
    offsets = [(r.partition, offset) for r in found for offset in range(r.start, r.end)]
    assert offsets == sorted((r.partition, offset) for r in ranges for offset in range(r.start, r.end))


@given(LAGS, st.none() | st.integers(1, 60))
def test_batches_take_all_there_is_and_no_more_than_they_may(
    lags: dict[int, tuple[int, int]], most: int | None
) -> None:
    at = {p: start for p, (start, _) in lags.items()}
    ends = {p: start + lag for p, (start, lag) in lags.items()}
    while any(ends[p] > at[p] for p in at):
        left = {p: max(0, ends[p] - at[p]) for p in at}
        reached = admitted(at, ends, most)
        taken = {p: reached[p] - at[p] for p in at}
        assert all(0 <= taken[p] <= left[p] for p in at)
        assert sum(taken.values()) == (sum(left.values()) if most is None else min(most, sum(left.values())))
        if most is None or most >= len(at):
            assert all(taken[p] for p in at if left[p]), "one that has something waits"
        at = reached
    assert admitted(at, ends, most) == at


def test_shares_go_by_what_is_left() -> None:
    starts = {0: 0, 1: 100, 2: 0}
    assert admitted(starts, {0: 1000, 1: 3100, 2: 0}, 402) == {0: 101, 1: 401, 2: 0}
    assert admitted(starts, {0: 10, 1: 1_000_000, 2: 5}, 10) == {0: 1, 1: 108, 2: 1}
    assert admitted(starts, {0: 10, 1: 120, 2: 5}, 2) == {0: 1, 1: 101, 2: 0}
