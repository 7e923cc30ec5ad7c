"""A version that a session has read is refused once it has expired, as in a session that has not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from filestore.errors import NotFound
from tablestore import Store
from tablestore.spark import SparkStore
from tests.waiting import until

EXPIRED = 2
OPTIONS = {"snapshot.num-retained.min": "2", "snapshot.num-retained.max": "2", "snapshot.time-retained": "1 ms"}
TEMPORAL = """
    SELECT d.v FROM (SELECT 1L AS id, TIMESTAMP '{time}' AS ts) AS o
    JOIN lake.shop.t FOR SYSTEM_TIME AS OF o.ts AS d ON o.id = d.id
"""
WAYS: dict[str, Callable[[SparkStore, datetime], DataFrame]] = {
    "VERSION": lambda lake, _: lake.spark.sql(f"SELECT v FROM lake.shop.t VERSION AS OF {EXPIRED}"),
    "TIMESTAMP": lambda lake, time: lake.spark.sql(f"SELECT v FROM lake.shop.t TIMESTAMP AS OF '{time.isoformat()}'"),
    "read": lambda lake, _: lake.read("shop.t", version=EXPIRED).select("v"),
    "changes": lambda lake, _: lake.read("shop.t$changes", from_version=EXPIRED).select("v"),
    "temporal join": lambda lake, time: lake.spark.sql(TEMPORAL.format(time=time.isoformat())),
    "look-up join": lambda lake, time: lake.lookup_join(
        lake.spark.sql(f"SELECT 1L AS id, TIMESTAMP '{time.isoformat()}' AS ts"), "shop.t", at="ts"
    ).select("v"),
}


@pytest.mark.deep
def test_a_session_that_has_read_a_version_refuses_it_once_it_has_expired(session: SparkSession, store: Store) -> None:
    """Tasks that look rows up keep what they have read of a version, and ask at most once a second what has expired."""
    table = store.create_table("shop.t", "id BIGINT, v INT", primary_key=["id"], options=OPTIONS)
    for v in range(5):
        table.write([{"id": 1, "v": v}])
    lake, time = SparkStore(session, store), table.filestore.snapshot(EXPIRED).timestamp
    for name, way in WAYS.items():
        assert (EXPIRED - 1,) in way(lake, time).collect(), name
    assert table.expire().first > EXPIRED

    def refused(way: Callable[[SparkStore, datetime], DataFrame]) -> bool:
        try:
            way(lake, time).collect()
        except (NotFound, PySparkException) as error:
            assert "snapshot-expired" in f"{getattr(error, 'code', '')} {error}"
            return True
        return False

    for name, way in WAYS.items():
        until(lambda way=way: refused(way), what=name) if "join" in name else None
        assert refused(way), name
