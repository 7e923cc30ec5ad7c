"""The bucket function is Spark's (FORMAT.md section 4)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import filestore
from filestore.errors import Unsupported
from filestore.rows.bucketing import bucket_of, spark_hash
from tests.filestore.arrays import KEY_TYPES, key_values
from tests.filestore.sqlvalues import column, split_top

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = (Path(filestore.__file__).parent / "FORMAT.md").read_text()
VECTORS = re.findall(r"^\| ([A-Z][^|]*) \| `([^`]*)` \| (-?\d+) \| (\d) \|$", FORMAT, re.MULTILINE)


def test_the_page_has_vectors_for_every_key_type() -> None:
    types = {column(kind, "NULL").type for row in VECTORS for kind in split_top(row[0])}
    assert {t.id for t in KEY_TYPES} <= {t.id for t in types}
    assert len(VECTORS) >= 25


@pytest.mark.parametrize(("types", "values", "hashed", "bucket"), VECTORS)
def test_vectors_of_the_page(types: str, values: str, hashed: str, bucket: str) -> None:
    columns = [column(*pair) for pair in zip(split_top(types), split_top(values), strict=True)]
    assert spark_hash(columns, 1).tolist() == [int(hashed)]
    table = pa.table({f"c{n}": values for n, values in enumerate(columns)})
    assert bucket_of(table, table.column_names, 7).tolist() == [int(bucket)]


def test_spark_agrees_with_the_page(spark: SparkSession) -> None:
    for types, values, hashed, bucket in VECTORS:
        casts = [f"CAST({v} AS {t})" for t, v in zip(split_top(types), split_top(values), strict=True)]
        row = spark.sql(f"SELECT hash({', '.join(casts)}) h, pmod(hash({', '.join(casts)}), 7) b").first()
        assert row is not None
        assert (row.h, row.b) == (int(hashed), int(bucket)), (types, values)


def test_spark_agrees_on_random_rows(spark: SparkSession) -> None:
    @settings(max_examples=15, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def agrees(data: st.DataObject) -> None:
        kinds = data.draw(st.lists(st.sampled_from(KEY_TYPES), min_size=1, max_size=4))
        # Spark's createDataFrame goes through Python's clock for timestamps: it cannot take years before 1900 or so
        rows = data.draw(
            st.lists(st.tuples(*(st.none() | key_values(k, few=pa.types.is_timestamp(k)) for k in kinds)), max_size=20)
        )
        columns = [pa.array([row[n] for row in rows], kind) for n, kind in enumerate(kinds)]
        table = pa.table({f"c{n}": c for n, c in enumerate(columns)})
        names = ", ".join(table.column_names)
        frame = spark.createDataFrame(table).selectExpr(f"hash({names}) h") if rows else None
        theirs = [row.h for row in frame.collect()] if frame is not None else []
        assert spark_hash(columns, len(rows)).tolist() == theirs

    agrees()


@pytest.mark.parametrize("kind", KEY_TYPES, ids=str)
def test_slices_chunks_and_nulls_hash_as_each_row_alone(kind: pa.DataType) -> None:
    @given(st.lists(st.none() | key_values(kind), max_size=12), st.integers(0, 5), st.integers(0, 5))
    def same(values: list[Any], start: int, cut: int) -> None:
        whole = pa.array([None, *values, None], kind)
        alone = [int(spark_hash([pa.array([value], kind)], 1)[0]) for value in whole.to_pylist()]
        part = whole.slice(start)
        chunked = pa.chunked_array([part.slice(0, cut), part.slice(cut)], kind)
        assert spark_hash([part], len(part)).tolist() == alone[start:]
        assert spark_hash([chunked], len(part)).tolist() == alone[start:]

    same()


@pytest.mark.parametrize("kind", KEY_TYPES, ids=str)
def test_no_rows_have_no_buckets(kind: pa.DataType) -> None:
    for empty in (pa.array([], kind), pa.nulls(0, kind), pa.array([None, None], kind).slice(2)):
        assert len(bucket_of(pa.table({"c": empty}), ["c"], 4)) == 0


def test_nulls_pass_the_hash_on() -> None:
    ids = pa.array([1, 2], pa.int64())
    nothing = pa.nulls(2, pa.string())
    assert spark_hash([ids, nothing], 2).tolist() == spark_hash([ids], 2).tolist()


def test_one_bucket_takes_all() -> None:
    assert bucket_of(pa.table({"c": [1.5, None]}), ["c"], 1).tolist() == [0, 0]


def test_floats_choose_no_bucket() -> None:
    with pytest.raises(Unsupported):
        bucket_of(pa.table({"c": [1.5]}), ["c"], 2)


def test_buckets_fill_evenly() -> None:
    buckets = bucket_of(pa.table({"c": np.arange(100_000)}), ["c"], 16)
    counts = np.bincount(buckets, minlength=16)
    assert counts.min() > 0.9 * counts.max()
