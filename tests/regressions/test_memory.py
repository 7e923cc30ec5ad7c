"""Found while reviewing memory: chunks that only counted rows, keys with very many rows, files that stayed open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from filestore.lookup.file_lookup import FileLookup
from filestore.merge.deduplicate import ORDINAL_COLUMN
from filestore.model.definition import TableDefinition
from filestore.sorting.chunks import BUCKET_COLUMN, cut_chunks
from tests.tables import create, define, seeded, write


def sorted_rows(definition: TableDefinition, ids: np.ndarray, texts: pa.Array) -> Iterator[pa.RecordBatch]:
    rows = {"id": pa.array(ids), "v": texts, BUCKET_COLUMN: pa.array(np.zeros(len(ids), np.int32))}
    rows[ORDINAL_COLUMN] = pa.array(np.arange(len(ids)))
    yield from pa.table(rows).to_batches(max_chunksize=1000)


@pytest.mark.slow
def test_a_chunk_of_wide_rows_ends_at_bytes() -> None:
    definition = define("id BIGINT, v STRING", ["id"])
    text = pa.array(["x" * 50_000] * 1000)
    thousands = (np.arange(first, first + 1000) for first in range(0, 8000, 1000))
    batches = (batch for ids in thousands for batch in sorted_rows(definition, ids, text))
    sizes = [rows.nbytes for _, rows in cut_chunks(batches, definition, 131_072)]
    assert sum(sizes) > 8 * 50_000_000
    assert max(sizes) < 150_000_000


def test_a_key_with_very_many_rows_costs_no_more_than_many_keys() -> None:
    definition = define("id BIGINT, v STRING", ["id"])
    count = 300_000
    texts = pa.array(np.arange(count).astype(str))
    chunks = list(cut_chunks(sorted_rows(definition, np.zeros(count, np.int64), texts), definition, 4096))
    assert sum(rows.num_rows for _, rows in chunks) < 10_000
    _, last = chunks[-1]
    assert last.column("v")[-1].as_py() == str(count - 1), "the last row wins"


def test_a_file_that_the_probes_have_passed_is_let_go(folder: Path) -> None:
    store = create(folder / "t", define("id BIGINT, v STRING", ["id"]), ambient=seeded())
    write(store, pa.table({"id": range(10), "v": ["x"] * 10}))
    state = store.state()
    [file] = state.files
    lookup = FileLookup(store.table_files(state), file)
    assert [len(match.positions) for match in lookup.find(pa.table({"id": [3, 5]}))] == [2]
    assert lookup.holds_file
    assert list(lookup.find(pa.table({"id": [100]}))) == []
    assert not lookup.holds_file
