"""A small streaming query in a process of its own, whose driver ends itself at a call of storage or log.

    python -m tests.spark.streaming.dying_query WAREHOUSE INBOX CHECKPOINT CALL      (CALL 0: it lives)

Input files are `tests.integration.crashing.batch` as JSON; each is one micro-batch of the table ``shop.orders``.
"""

from __future__ import annotations

import copy
import os
import sys
from typing import Any

from pyspark.sql import SparkSession

import tablestore
from filestore.storage.interface import Storage
from managed_table.opened import OpenedTable
from tablestore import Store
from tablestore.spark import SparkStore, spark_session
from tests.faults import Call, FaultyStorage
from tests.integration.crashing import struck
from tests.opened import opened_again
from tests.servers.spark import SETTINGS, jars_in_path

DIED = 86


class Countdown:
    """Ends the driver at the n-th call, or behind the next log entry of a table; tasks have copies that never do."""

    def __init__(self, calls: int, table: str = "") -> None:
        self.left = calls
        self.entry = table and f"/{table}/_delta_log/"
        self.driver = os.getpid()

    def __call__(self) -> None:
        if os.getpid() == self.driver:
            self.left -= 1
            if self.left == 0:
                os._exit(DIED)

    def saw(self, call: Call) -> None:
        """Is called before and after each call of the storage."""
        self()
        behind = bool(self.entry) and self.entry in call.path and call.operation == "write_new" and call.done
        if behind and os.getpid() == self.driver:
            os._exit(DIED)


class Struck(Store):
    """A store whose tables are on a storage that counts."""

    strike: Countdown

    def unread_table(self, name: str) -> OpenedTable:
        opened = super().unread_table(name)
        return opened_again(opened, storage=CountingStorage(self.strike, opened.storage))


class CountingStorage(FaultyStorage):
    """Calls of the driver count; in a task, where it comes by pickle, it is the plain storage."""

    def __init__(self, strike: Countdown, inner: Storage) -> None:
        super().__init__(inner, strike.saw)

    def __reduce__(self) -> Any:
        return copy.copy, (self.inner,)


def run(spark: SparkSession, warehouse: str, inbox: str, checkpoint: str, call: int = 0) -> None:
    """Takes all files that are there, one after the other."""
    plain = tablestore.connect(warehouse)
    store = Struck(plain._address, plain._ambient)
    store.strike = Countdown(call)
    lake = SparkStore(spark, store)
    files = (
        spark.readStream.schema("id BIGINT, batch BIGINT, _kind STRING").option("maxFilesPerTrigger", "1").json(inbox)
    )
    with struck(store.strike):
        query = lake.write_stream("shop.orders", files, checkpoint=checkpoint, trigger={"availableNow": True})
        query.awaitTermination()


def main(warehouse: str, inbox: str, checkpoint: str, call: str) -> None:
    spark = spark_session("dying", SETTINGS | jars_in_path())
    run(spark, warehouse, inbox, checkpoint, int(call))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
