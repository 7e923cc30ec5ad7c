"""Registers the format: Spark finds this package by its name, so ``format("tablestore")`` works in any session.

Spark imports all packages named ``pyspark_*`` when a session first looks for a format, whichever that is, and a package
that cannot be imported stops it. So nothing may be imported here that costs time or may be missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]

if TYPE_CHECKING:
    from tablestore.spark.source import TableStoreSource as _Source
else:
    try:
        from tablestore.spark.source import TableStoreSource as _Source
    except ImportError as error:  # a file of the user's hides one of our packages: only who uses the format is stopped
        _PROBLEM = str(error)

        class _Source(DataSource):
            """Says why the format cannot be used."""

            @classmethod
            def name(cls) -> str:
                return "tablestore"

            def schema(self) -> StructType:
                raise ImportError(_PROBLEM)


class DefaultSource(_Source):
    """`tablestore.spark.source.TableStoreSource` under the name that Spark looks for."""
