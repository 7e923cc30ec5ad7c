"""A store with tables in Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tablestore import Store
from tablestore.spark import SparkStore
from tests.folders import memory_folder
from tests.warehouses import warehouse


@pytest.fixture
def store() -> Iterator[Store]:
    with warehouse() as opened:
        yield opened


@pytest.fixture
def lake(spark: SparkSession, store: Store) -> SparkStore:
    return SparkStore(spark, store)


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder, in memory if possible."""
    with memory_folder() as path:
        yield path
