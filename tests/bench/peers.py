"""What is measured: our store, plain Parquet and Delta MERGE, behind one small interface."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

import tablestore
from tablestore import Table
from tablestore.spark import SparkStore
from tests.bench.workload import SCHEMA_SQL

BUCKETS = 4


class Peer(Protocol):
    """One way to keep the table."""

    name: str

    def load(self, rows: DataFrame) -> None:
        """The first write."""

    def upsert(self, rows: DataFrame) -> None:
        """One commit of changed and new rows."""

    def table(self) -> DataFrame:
        """The current rows."""


class Ours:
    """A managed table, with or without a log or change data."""

    def __init__(self, spark: SparkSession, folder: Path, log: str, changelog: str = "none") -> None:
        self.name = f"tablestore, log {log}" + (f", changelog {changelog}" if changelog != "none" else "")
        store = tablestore.connect(str(folder / f"ours-{log}-{changelog}"))
        store.create_database("bench")
        options = {"bucket": str(BUCKETS), "log.system": log, "changelog-producer": changelog}
        self.managed = store.create_table("bench.orders", SCHEMA_SQL, primary_key=["order_id"], options=options)
        self.lake = SparkStore(spark, store)

    def load(self, rows: DataFrame) -> None:
        self.lake.write("bench.orders", rows)

    upsert = load

    def table(self) -> DataFrame:
        return self.lake.read("bench.orders")

    def reopened(self) -> Table:
        """The table as a program sees it that has not read it yet."""
        return self.lake.store.table("bench.orders")


class Parquet:
    """The floor: files without keys. An upsert only adds rows."""

    name = "plain Parquet append"

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "parquet")

    def load(self, rows: DataFrame) -> None:
        rows.write.mode("append").parquet(self._path)

    upsert = load

    def table(self) -> DataFrame:
        raise NotImplementedError("only a query over all rows would give the current ones")


class Merge:
    """Delta's own MERGE, with deletion vectors."""

    name = "Delta MERGE"

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._path = str(folder / "merge")
        spark.sql(
            f"CREATE TABLE delta.`{self._path}` ({SCHEMA_SQL}) USING delta "
            "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
        )

    def load(self, rows: DataFrame) -> None:
        rows.write.format("delta").mode("append").save(self._path)

    def upsert(self, rows: DataFrame) -> None:
        rows.createOrReplaceTempView("changed_rows")
        self._spark.sql(
            f"MERGE INTO delta.`{self._path}` t USING changed_rows s ON t.order_id = s.order_id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).collect()

    def table(self) -> DataFrame:
        return self._spark.read.format("delta").load(self._path)
