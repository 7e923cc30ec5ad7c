"""Sessions that write leave no Python process behind: Spark kept some for each of them, for ever."""

from __future__ import annotations

import os

import pytest
from pyspark.sql import SparkSession

from tablestore import Store
from tablestore.spark.jobs.python_processes import in_shared_processes
from tablestore.spark.settings import catalog_settings
from tests.depth import Depth
from tests.servers.spark_programs import python_daemons

AS_IN_A_SERVER = {"spark.sql.artifact.isolation.enabled": "true"}


@pytest.mark.slow
def test_sessions_that_write_share_their_processes(spark: SparkSession, store: Store, depth: Depth) -> None:
    store.create_table("shop.t", "id BIGINT, n INT", primary_key=["id"])
    store.create_table("shop.o", "id BIGINT, at TIMESTAMP")
    join = "lake.shop.o JOIN lake.shop.t FOR SYSTEM_TIME AS OF o.at t ON o.id = t.id"
    counts = []
    number = depth.times(4, deep=200)
    for one in range(number):
        session = spark.newSession()
        for name, value in (catalog_settings({"lake": store.target}) | AS_IN_A_SERVER).items():
            session.conf.set(name, value)
        session.sql(f"INSERT INTO lake.shop.t VALUES ({one}L, 1)")
        session.sql("UPDATE lake.shop.t SET n = n + 1 WHERE id = 0")
        session.sql(f"INSERT INTO lake.shop.o VALUES ({one}L, TIMESTAMP'2099-01-01')")
        if one < 3 or one == number - 1:
            assert session.sql(f"SELECT count(*) FROM {join}").collect() == [(one + 1,)]
        counts.append(len(python_daemons(os.getpid())))
    assert 0 < counts[-1] <= counts[1], counts


@pytest.mark.spark
def test_a_plan_in_shared_processes_lacks_no_column(spark: SparkSession) -> None:
    """EXPLAIN marked it with the ``!`` of a node whose input lacks columns."""
    rows = in_shared_processes(spark.range(1).mapInArrow(lambda batches: batches, "other BIGINT"))
    plan = rows._jdf.queryExecution().sparkPlan().toString()
    assert "MapInArrow" in plan
    assert "!" not in plan
