"""Parts of remote files: which ranges are fetched, and that readers need no others."""

from __future__ import annotations

import io
import itertools

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from filestore.parquet.ranges import Chunks, footer_range
from filestore.storage.client import Tail
from filestore.storage.kept import Kept
from filestore.storage.sparse import RemoteFile, missing

ranges = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda pair: (min(pair), max(pair))), max_size=6
)


@given(ranges, ranges, st.integers(0, 5))
def test_every_wanted_byte_is_fetched_or_held_and_none_twice(
    wanted: list[tuple[int, int]], held: list[tuple[int, int]], gap: int
) -> None:
    fetched = missing(wanted, held, gap)
    assert fetched == sorted(fetched)
    assert all(before < start - gap for (_, before), (start, _) in itertools.pairwise(fetched))
    mask = np.zeros(60, dtype=np.bool_)
    for start, end in (*fetched, *held):
        mask[start:end] = True
    assert all(mask[start:end].all() for start, end in wanted)
    lacking = np.zeros(60, dtype=np.bool_)
    for start, end in wanted:
        lacking[start:end] = True
    for start, end in held:
        lacking[start:end] = False
    for start, end in fetched:
        assert lacking[start]
        assert lacking[end - 1]
        assert longest(~lacking[start:end]) <= gap


def longest(mask: npt.NDArray[np.bool_]) -> int:
    """The length of the longest run of true values."""
    return max((len(run) for run in "".join("x" if value else " " for value in mask).split()), default=0)


def test_readers_need_footer_and_columns_only() -> None:
    rows = pa.table({"id": range(40_000), "text": [f"text {n}" for n in range(40_000)], "x": [1.5] * 40_000})
    stored = io.BytesIO()
    pq.write_table(
        rows,
        stored,
        row_group_size=20_000,
        write_page_index=True,
        data_page_size=1024,
        bloom_filter_options={"id": {"ndv": 20_000, "fpp": 0.01}},
    )
    data, footer = stored.getvalue(), pq.read_metadata(stored)
    asked: list[tuple[int, int]] = []

    def get_ranges(wanted: list[tuple[int, int]]) -> list[bytes]:
        asked.extend(wanted)
        return [data[start:end] for start, end in wanted]

    # all but the footer's length is a hole at first
    remote = RemoteFile("f", Tail(len(data), data[-8:]), get_ranges, Kept())
    needed = [footer_range(footer, len(data)), *Chunks(footer).ranges(1, ["id", "x"])]
    with remote.part(needed) as part:
        found = pl.scan_parquet([part.path], glob=False, use_statistics=False).slice(25_000, 100).select("id", "x")
        assert found.collect()["id"].to_list() == list(range(25_000, 25_100))
        assert pq.ParquetFile(part.file).read_row_group(1, ["x", "id"]).num_rows == 20_000
    text = Chunks(footer).ranges(0, ["text"])[0]
    assert not any(start <= text[0] < end for start, end in asked)


def test_columns_by_their_top_level_name() -> None:
    rows = pa.table({"a": [{"b": 1, "c": 2}], "a.b": [3], "l": [[1, 2]]})
    stored = io.BytesIO()
    pq.write_table(rows, stored)
    footer = pq.read_metadata(stored)
    assert len(Chunks(footer).ranges(0)) == 4
    assert len(Chunks(footer).ranges(0, ["l"])) == 1
    assert len(Chunks(footer).ranges(0, ["a"])) >= 2
    assert Chunks(footer).ranges(0, []) == []
    every = Chunks(footer).ranges(0)
    assert every == sorted(every)
    assert Chunks(footer).whole(0) == (every[0][0], every[-1][1])
