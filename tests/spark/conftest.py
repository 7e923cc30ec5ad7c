"""A store with tables in Spark."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tablestore import Store
from tablestore.spark import SparkStore


@pytest.fixture
def lake(spark: SparkSession, store: Store) -> SparkStore:
    return SparkStore(spark, store)
