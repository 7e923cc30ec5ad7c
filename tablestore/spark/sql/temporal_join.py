"""Joins rows with a table ``FOR SYSTEM_TIME AS OF`` a column, as `SparkStore.lookup_join` does with ``at=``.

``TemporalJoins.java`` takes the join out of the statement. Its rows have columns of its own names, with the values that
are looked up and the time among them.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import NullType, TimestampNTZType, TimestampType

from filestore.errors import InvalidRequest, Unsupported
from tablestore.lookup.request import EXPIRED, LookupRequest
from tablestore.spark.batch.lookup_join import joined_by_lookup
from tablestore.spark.sql.requests import Request, checked_table, name_of
from tablestore.spark.store import SparkStore

__all__ = ["temporal_join"]


def temporal_join(store: SparkStore, request: Request, rows: DataFrame) -> DataFrame:
    """Joins rows with a table.

    Args:
        store: The store.
        request: ``on``, ``kind``, ``columns``, ``prefix``, ``at`` and ``expired``, as for `SparkStore.lookup_join`; and
            ``time``, which is `at` in the statement's words.
        rows: The rows; no names of their own begin with the prefix.

    Raises:
        InvalidRequest: ``unknown-option``: a value of ``expired`` that there is not; ``bad-lookup``, ``bad-value``.
        Unsupported: ``temporal-join``: the time is no timestamp.
        NotFound: ``table-replaced``.
    """
    at, expired = request["at"], request["expired"] or EXPIRED[0]
    if expired not in EXPIRED:
        raise InvalidRequest(
            f"the option expired is {' or '.join(EXPIRED)}, and not {expired!r}", code="unknown-option"
        )
    kind = rows.schema[at].dataType
    if not isinstance(kind, (TimestampType, TimestampNTZType, NullType)):
        raise Unsupported(
            f"FOR SYSTEM_TIME AS OF {request['time']} of {name_of(request)} needs a TIMESTAMP, and not "
            f"{kind.simpleString().upper()}: write CAST({request['time']} AS TIMESTAMP)",
            code="temporal-join",
        )
    asked = LookupRequest(request["on"], request["kind"], request["columns"], request["prefix"], at, expired)
    table = checked_table(store.store, request).opened
    return joined_by_lookup(store.spark, table, rows, asked, fresh=False)
