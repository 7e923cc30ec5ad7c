"""A Spark session without our settings: Spark finds the format, and `spark_session` refuses to reuse that session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tablestore import Store
from tablestore.spark import spark_session
from tests.servers.spark import ROOT, SHORT_LIVED_JVM


@pytest.mark.deep
@pytest.mark.spark
def test_a_session_that_knows_only_the_formats_name(store: Store, folder: Path) -> None:
    """Only `SparkStore` once made the format known; and a session without Delta was given back without a word.

    In a job of cron (``venv/bin/python job.py``) it was unknown, too: Spark looked for it with another Python.
    """
    store.create_table("shop.orders", "id BIGINT", primary_key=["id"]).write(pa.table({"id": [1]}))
    foreign = folder / "bin"
    foreign.mkdir()
    (foreign / "python3").symlink_to(Path(sys.base_prefix) / "bin" / "python3")  # without any of our packages
    left_out = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment |= SHORT_LIVED_JVM | {"PATH": f"{foreign}:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "spark" / "plain_session.py"), store.target],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    first, second, third, refused = done.stdout.splitlines()
    assert (first, second, third) == ("rows [1]", "rows [1, 2, 3]", "version 3")
    assert refused.startswith("spark-session ")
    assert "stop it first" in refused


@pytest.mark.deep
@pytest.mark.spark
def test_a_session_with_delta_alone_leaves_out_no_file(store: Store, folder: Path) -> None:
    """The rule that fixes the options of reads is in our extension, which such a session lacks."""
    table = store.create_table("shop.t", "id BIGINT, v INT", options={"bucket": "1", "log.system": "none"})
    for number in range(3):
        table.write(pa.table({"id": [number], "v": pa.array([number], pa.int32())}))
    merged = store.create_table(
        "shop.k", "id BIGINT, v INT", primary_key=["id"], options={"write-mode": "merge-on-read", "log.system": "none"}
    )
    merged.write(pa.table({"id": [1, 2], "v": pa.array([1, 2], pa.int32())}))
    merged.compact(full=True)
    merged.write(pa.table({"id": [2], "v": pa.array([3], pa.int32())}))
    program = str(ROOT / "tests" / "spark" / "delta_session.py")
    done = subprocess.run(
        [sys.executable, program, store.target],
        env=os.environ | SHORT_LIVED_JVM | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["shop.t 3", "shop.t refused refused", "shop.k 4", "shop.k refused refused"]


def test_a_session_that_has_delta_is_given_back(spark: SparkSession) -> None:
    assert spark_session("another", {"spark.master": "local[2,3]"}).sparkContext is spark.sparkContext


def test_a_new_session_knows_the_format(spark: SparkSession, store: Store) -> None:
    """What is registered counts for one session only."""
    store.create_table("shop.orders", "id BIGINT", primary_key=["id"]).write(pa.table({"id": [1]}))
    reader = spark.newSession().read.format("tablestore").option("catalog", store.target)
    assert reader.load("shop.orders").count() == 1


def test_the_package_that_spark_imports_everywhere_is_light() -> None:
    """Each session on the machine pays for it, whatever it reads."""
    program = (
        "import pyspark.sql.datasource, sys; before = set(sys.modules); "
        "import pyspark_tablestore; print(*(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    imported = {name.partition(".")[0] for name in done.stdout.split()}
    assert "pyspark_tablestore" in imported
    assert not imported & {"polars", "pyarrow", "numpy", "deltalake", "pandas", "sqlalchemy", "httpx"}
