"""Found by Spark by its name: ``format("tablestore")`` works in any session, with nothing to register.

Spark imports all packages named ``pyspark_*`` when a session first looks for a format, whichever that is, and a package
that cannot be imported stops it. So nothing may be imported here that costs time or may be missing.
"""

from __future__ import annotations

from tablestore.spark.source import TableStoreSource

__all__ = ["DefaultSource"]


class DefaultSource(TableStoreSource):
    """`tablestore.spark.source.TableStoreSource` under the name that Spark looks for."""
