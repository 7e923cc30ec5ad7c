"""A program in Spark on tables in S3 with logs in Kafka, whose driver ends itself at a call of storage or log.

    python -m tests.spark.streaming.dying_copy WAREHOUSE DATABASE ENDPOINT REGION BATCH CALL [TABLE]

With CALL 0 it lives, or with a table it dies behind the next entry of that table's log.

It writes one of `tests.integration.crashing.batch` to ``shop.source``, follows all changes of ``shop.source`` by a
stream into ``shop.seen``, which has no key and so one row for each change that ever arrived, and prints how many calls
the driver made.
"""

from __future__ import annotations

import sys

import tablestore
from tablestore.spark import SparkStore, spark_session
from tests.integration.crashing import batch, struck
from tests.servers.spark import SETTINGS
from tests.spark.streaming.dying_query import Countdown, Struck

SEED = 1


def main(warehouse: str, database: str, endpoint: str, region: str, number: str, call: str, table: str = "") -> None:
    reached = {"endpoint": endpoint, "region": region}
    spark = spark_session("dying", SETTINGS, storage_options=reached)
    plain = tablestore.connect(warehouse, database=database, storage_options=reached)
    store = Struck(plain._address, plain._ambient)
    store.strike = Countdown(int(call), table)
    lake = SparkStore(spark, store)
    rows = [(row["id"], row["batch"], row["_kind"]) for row in batch(SEED, int(number))]
    with struck(store.strike):
        lake.write("shop.source", spark.createDataFrame(rows, "id BIGINT, batch BIGINT, _kind STRING"))
        changes = lake.read_stream("shop.source", version=0, max_versions_per_batch=1)
        query = lake.write_stream(
            "shop.seen",
            changes.withColumnRenamed("_kind", "kind"),
            checkpoint=f"{warehouse}/checkpoint",
            trigger={"availableNow": True},
        )
        query.awaitTermination()
    print("calls", int(call) - store.strike.left)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
