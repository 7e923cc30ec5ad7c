"""A damaged file for ``write`` is a wrong argument: no error of polars, Arrow or Rust comes through."""

from __future__ import annotations

import io
import random
from collections import Counter
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
import typer

from tablestore.cli.files import read_rows
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
def test_any_damage_is_a_wrong_argument_or_rows(tmp_path: Path, suffix: str, depth: Depth) -> None:
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
            read_rows(path, SCHEMA)
        except typer.BadParameter as error:
            assert str(path) in str(error)
            found["refused"] += 1
        else:
            found["read"] += 1
    assert found["refused"] > 0 or suffix != ".parquet"
