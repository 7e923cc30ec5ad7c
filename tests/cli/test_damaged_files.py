"""A damaged file for ``write`` or ``load`` is a bad file: no error of polars, Arrow or Rust comes through."""

from __future__ import annotations

import io
import random
from collections import Counter
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from filestore.errors import InvalidRequest
from tablestore.incoming.files.columns import columns_of
from tablestore.incoming.files.row_file import RowFile
from tablestore.incoming.given import arrow_rows
from tests.depth import Depth

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.string()))])
ROWS = pl.DataFrame(
    {"id": range(50), "name": [f"n{n % 7}" for n in range(50)], "tags": [["a"] * (n % 3) for n in range(50)]}
)


def written(suffix: str) -> bytes:
    buffer = io.BytesIO()
    match suffix:
        case ".parquet":
            ROWS.write_parquet(buffer, compression="uncompressed")
        case ".csv":
            ROWS.drop("tags").write_csv(buffer)
        case _:
            ROWS.write_ndjson(buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".ndjson"])
def test_any_damage_is_a_bad_file_or_rows(tmp_path: Path, suffix: str, depth: Depth) -> None:
    whole, path, found = written(suffix), tmp_path / f"rows{suffix}", Counter[str]()
    for seed in range(depth.times(200, deep=5000)):
        chance = random.Random(seed)
        data = bytearray(whole)
        for _ in range(chance.choice([1, 1, 3, 20])):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        if chance.random() < 0.1:
            del data[chance.randrange(len(data)) :]
        path.write_bytes(data)
        try:
            arrow_rows(RowFile.of(path).rows(SCHEMA), SCHEMA)
        except InvalidRequest as error:
            assert error.code == "bad-file" and str(path) in str(error)
            found["refused"] += 1
        else:
            found["read"] += 1
    assert found["refused"] > 0 or suffix != ".parquet"


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".ndjson"])
def test_columns_of_any_damage_are_those_of_all_its_values(tmp_path: Path, suffix: str, depth: Depth) -> None:
    """What is inferred, the same file is read in; or it cannot be read at all."""
    whole, path = written(suffix), tmp_path / f"rows{suffix}"
    for seed in range(depth.times(60, deep=3000)):
        chance = random.Random(seed)
        data = bytearray(whole)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        try:
            schema = columns_of([RowFile.of(path)]).schema
            arrow_rows(RowFile.of(path).rows(schema), schema)
        except InvalidRequest as error:
            assert error.code in ("bad-file", "unsupported-type", "no-columns"), error
