"""The daemon from which Spark forks its Python processes, with this package imported: ``spark.python.daemon.module``.

Spark forks a process for each plan, each start of a stream and each task of our data source. Its own daemon imports
only pyspark, so each of them would import polars, Arrow and this package again, which takes half a second. Nothing is
opened here: a store of objects works in a fork only if it was not used before.
"""

from __future__ import annotations

import polars  # noqa: F401  # else each process would import it when it first reads a row
import pyspark.daemon

import tablestore.spark.batch.reading
import tablestore.spark.batch.sink
import tablestore.spark.batch.system_tables
import tablestore.spark.streaming.changes  # noqa: F401

if __name__ == "__main__":
    pyspark.daemon.manager()
