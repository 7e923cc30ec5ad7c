"""The id of a streaming query, which says whether a batch that Spark repeats was committed before."""

from __future__ import annotations

import json
from collections.abc import Callable

from pyspark.sql import SparkSession

__all__ = ["QueryId"]


class QueryId:
    """A query's id, which Spark writes into the checkpoint before the first batch and keeps over restarts."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._read: Callable[[], str] = lambda: str(
            json.loads(spark.read.text(f"{checkpoint}/metadata").collect()[0].value)["id"]
        )
        self._known: str | None = None

    def __call__(self) -> str:
        """The id; Spark writes it down before the first batch."""
        if self._known is None:
            self._known = self._read()
        return self._known
