"""All writers leave files with checksums: Parquet's own for any reader, and ours of all bytes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filestore.files.parquet import ParquetReader
from filestore.parquet.ranges import Chunks
from filestore.storage.local import LocalStorage
from tablestore import Store
from tests.tablestore.test_merge_on_read import overlay_of

KINDS = ("bucket-", "_runs/", "_change_data/", "_overlays/", "_delta_log/")


def test_every_parquet_file_of_a_table_has_both_kinds_of_checksums(store: Store) -> None:
    at_once = store.create_table(
        "shop.at_once",
        "id BIGINT, v INT, seq INT",
        primary_key=["id"],
        options={"changelog-producer": "lookup", "checkpoint.interval": "2", "sequence.field": "seq"},
    )
    later = store.create_table(
        "shop.later",
        "id BIGINT, v INT",
        primary_key=["id"],
        options={
            "log.system": "none",
            "write-mode": "merge-on-read",
            "merge-engine": "aggregation",
            "fields.v.aggregate-function": "sum",
        },
    )
    for number in range(3):
        at_once.write(pa.table({"id": [number, number + 1], "v": [1, 2], "seq": [number, number]}))
        later.write(pa.table({"id": [number, number + 1], "v": [1, 2]}))
    at_once.write(pa.table({"id": [2], "v": [1], "seq": [9], "_kind": ["-D"]}))  # remembered as a tombstone
    at_once.compact(full=True)
    at_once.alter("RENAME COLUMN v TO w")
    overlay_of(later)
    found = [path for table in (at_once, later) for path in Path(table.location).rglob("*.parquet")]
    later.compact(full=True)
    found += set(Path(later.location).rglob("*.parquet")) - set(found)
    assert all(any(kind in str(path) for path in found) for kind in KINDS)
    for path in found:
        with ParquetReader(LocalStorage(), str(path)) as parquet:
            assert parquet.checksums is not None, path
        chunks = Chunks(pq.read_metadata(path)).ranges(0)
        changed = bytearray(path.read_bytes())
        changed[chunks[0][1] - 1] ^= 1
        with pytest.raises(OSError, match="CRC"):
            pq.read_table(pa.BufferReader(bytes(changed)), page_checksum_verification=True)
