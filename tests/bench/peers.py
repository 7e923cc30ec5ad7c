"""What is measured: our store, plain Parquet and Delta MERGE, behind one small interface."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

import tablestore
from filestore import layout
from tablestore import Table
from tablestore.spark import SparkStore
from tests.bench.workload import SCHEMA_SQL

BUCKETS = 4
NOTHING: Mapping[str, str] = MappingProxyType({})
OURS = "tablestore"
LOGGED, IMAGED, UPDATED, SUMMED, LATER = (
    "log embedded",
    "changelog lookup",
    "partial-update",
    "aggregation",
    "merge-on-read",
)
WAYS: Mapping[str, Mapping[str, str]] = {
    LOGGED: {"log.system": "embedded"},
    IMAGED: {"changelog-producer": "lookup"},
    UPDATED: {"merge-engine": "partial-update"},
    SUMMED: {
        "merge-engine": "aggregation",
        "fields.product_id.aggregate-function": "max",
        "fields.updated_at.aggregate-function": "max",
        "fields.customer_id.aggregate-function": "sum",
    },
    LATER: {"write-mode": "merge-on-read"},
}
"""What is measured beside the plain table; `amount` ends as the same in all of them."""


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
    """A managed table, by default without a log."""

    def __init__(self, spark: SparkSession, folder: Path, what: str = "", options: Mapping[str, str] = NOTHING) -> None:
        self.name = f"tablestore, {what}" if what else OURS
        store = tablestore.connect(str(folder / f"ours {what}".strip().replace(" ", "-")))
        store.create_database("bench")
        chosen = {"bucket": str(BUCKETS), "log.system": "none", **options}
        self.managed = store.create_table("bench.orders", SCHEMA_SQL, primary_key=["order_id"], options=chosen)
        self.lake = SparkStore(spark, store)

    def load(self, rows: DataFrame) -> None:
        """As an overwrite, which is folded at once with merge-on-read, too."""
        self.lake.write("bench.orders", rows, overwrite=self.managed.definition.merges_on_read)

    def upsert(self, rows: DataFrame) -> None:
        self.lake.write("bench.orders", rows)

    def table(self) -> DataFrame:
        return self.lake.read("bench.orders")

    def forget_overlay(self) -> None:
        """Who reads next makes the overlay of pending runs, as the first reader of a version does."""
        shutil.rmtree(Path(self.managed.location, layout.OVERLAYS), ignore_errors=True)

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
