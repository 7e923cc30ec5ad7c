"""Parquet's own reader, as Spark has it, reads the Bloom filters of our files and finds every key in them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from tablestore.spark import SparkStore
from tests.warehouses import warehouse

KEYS = 3000


def test_parquet_mr_reads_them(spark: SparkSession) -> None:
    with warehouse() as store:
        lake = SparkStore(spark, store)
        options = {"file.bloom-filter": "true", "row-group.rows": "1024", "log.system": "none"}
        table = store.create_table("shop.keyed", "code STRING, id BIGINT", primary_key=["code", "id"], options=options)
        codes = [f"code-{n}" for n in range(0, KEYS)]
        table.write(pa.table({"code": codes, "id": [n + 2**40 for n in range(KEYS)]}))
        (file,) = table.files()
        found = denied = 0
        jvm = spark._jvm
        path = jvm.org.apache.hadoop.fs.Path(str(Path(table.location) / file.path))
        configuration = spark._jsc.hadoopConfiguration()
        opened = jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(path, configuration)
        reader = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(opened)
        try:
            blocks = list(reader.getFooter().getBlocks())
            assert len(blocks) >= 2
            text, number = ([reader.readBloomFilter(block.getColumns()[n]) for block in blocks] for n in (0, 1))
            binary = jvm.org.apache.parquet.io.api.Binary
            for n in range(0, KEYS, 50):
                by_text = binary.fromString(f"code-{n}")
                assert any(bloom.findHash(bloom.hash(by_text)) for bloom in text)
                assert any(bloom.findHash(bloom.hash(n + 2**40)) for bloom in number)
                found += 1
                absent = binary.fromString(f"none-{n}")
                denied += not any(bloom.findHash(bloom.hash(absent)) for bloom in text)
        finally:
            reader.close()
        assert found == KEYS // 50
        assert denied > found * 0.8
        rows = lake.read("shop.keyed").where("code = 'code-77'").collect()
        assert [row.id for row in rows] == [77 + 2**40]
