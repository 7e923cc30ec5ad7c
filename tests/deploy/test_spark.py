"""Spark's master and worker start by the command lines of compose.yaml, and work only for who has their secret."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.local.description import on_this_machine, read
from deploy.local.machine import Part
from tests.deploy.test_files import DEPLOY
from tests.servers.system import free_ports

pytestmark = [pytest.mark.deep, pytest.mark.slow, pytest.mark.spark]

JOB = """
import subprocess, sys
from pathlib import Path
from pyspark.sql import SparkSession
session = SparkSession.builder.master(sys.argv[1]).config("spark.driver.host", "127.0.0.1").getOrCreate()
print("sum", session.sparkContext.parallelize(range(10), 2).map(lambda x: x + 1).sum())
secret = Path(sys.argv[2]).read_text().split()[-1]
print("shown", secret in subprocess.run(["ps", "-ewwo", "args"], capture_output=True, text=True).stdout)
session.stop()
"""


def test_a_cluster_asks_for_its_secret_and_shows_it_nowhere(tmp_path: Path) -> None:
    secrets, work = tmp_path / "secrets", tmp_path / "work"
    subprocess.run([DEPLOY / "secrets.sh", secrets], check=True, capture_output=True)
    services = read(DEPLOY)
    names = [("spark-master", 7077), ("spark-master", 8080), ("spark-worker", 8081)]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    spark = str(Path(sys.executable).parent)
    variables = {
        "PATH": f"{spark}:{os.environ['PATH']}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    parts = []
    try:
        for name in ("spark-master", "spark-worker"):
            here = on_this_machine(services[name], ports, secrets)
            here = replace(here, command=tuple(word.replace("/work", str(work)) for word in here.command))
            place = {key: value.replace("/work", str(work)) for key, value in here.environment.items()}
            parts.append(Part(here, tmp_path / f"{name}.log", os.environ | place | variables))
            parts[-1].start()
        good, bad = tmp_path / "good", tmp_path / "bad"
        good.mkdir()
        bad.mkdir()
        (good / "spark-defaults.conf").write_text((secrets / "spark.conf").read_text())
        master = f"spark://127.0.0.1:{ports['spark-master', 7077]}"
        job = [sys.executable, "-c", JOB, master, str(secrets / "spark.conf")]

        def driver(settings: Path) -> subprocess.CompletedProcess[str]:
            environment = os.environ | variables | {"SPARK_CONF_DIR": str(settings)}
            return subprocess.run(job, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

        done = driver(good)
        assert "sum 55\nshown False\n" in done.stdout, done.stderr
        refused = driver(bad)
        assert "sum" not in refused.stdout
        assert refused.returncode != 0
    finally:
        for part in reversed(parts):
            if part.process is not None and part.process.poll() is None:
                part.stop()
