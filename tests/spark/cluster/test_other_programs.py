"""Other ways onto a cluster: spark-submit with the settings that a command prints, and a session without an archive."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from filestore.errors import Unavailable
from tests.servers.s3 import MotoServer
from tests.servers.spark import ROOT
from tests.servers.spark_cluster import EXECUTORS, SparkCluster
from tests.servers.spark_driver import SparkDriver
from tests.spark.cluster.conftest import SMALL
from tests.spark.cluster.programs import Gate, upserted

pytestmark = [pytest.mark.slow, pytest.mark.deep]


def test_spark_submit(spark_cluster: SparkCluster, packages: Path, moto: MotoServer, tmp_path: Path) -> None:
    """In an environment that is active, as its scripts make it, and from another folder."""
    programs = Path(sys.executable).parent
    left_out = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment |= moto.environment() | {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TABLESTORE_STORAGE": f"endpoint={moto.endpoint};region={moto.region}",
    }
    printed = subprocess.run(
        [programs / "tablestore", "spark-settings", "--archive", packages],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert moto.secret_key not in printed
    own = SMALL | EXECUTORS | {"spark.ui.enabled": "false", "spark.cores.max": "1"}
    (tmp_path / "spark.conf").write_text(printed + "".join(f"{name} {value}\n" for name, value in own.items()))
    place, database = f"s3://{moto.new_bucket()}/lake", f"sqlite:///{tmp_path / 'catalog.db'}"
    command = [programs / "spark-submit", "--master", spark_cluster.url, "--properties-file", tmp_path / "spark.conf"]
    program = [ROOT / "tests" / "spark" / "cluster" / "submitted.py", place, database, moto.endpoint, moto.region]
    done = subprocess.run(
        [*command, *program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.split() == ["rows", "10", "files", "2"]


def test_without_the_archive_an_error_says_what_is_missing(spark_cluster: SparkCluster, tmp_path: Path) -> None:
    environment = {"PYSPARK_PYTHON": "python3", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with SparkDriver(
        tmp_path / "driver.log",
        SMALL | EXECUTORS | {"spark.cores.max": "1", "spark.ui.enabled": "false"},
        environment | {"SPARK_LOCAL_IP": "127.0.0.1"},
        master=spark_cluster.url,
    ) as driver:
        driver.run(_made, str(tmp_path / "lake"))
        with pytest.raises(Unavailable, match="make an archive") as raised:
            driver.run(upserted, str(tmp_path / "lake"), None, {}, Gate(str(tmp_path), "nowhere"))
    assert raised.value.code == "spark-no-package"


def _made(place: str) -> None:
    import tablestore

    with tablestore.connect(place) as store:
        store.create_database("shop")
        store.create_table("shop.orders", "id BIGINT, v STRING", primary_key=["id"])


def test_a_master_that_does_not_answer(tmp_path: Path) -> None:
    driver = SparkDriver(tmp_path / "driver.log", SMALL | {"spark.ui.enabled": "false"}, master="spark://127.0.0.1:9")
    with pytest.raises(BaseException, match="terminated abruptly"):
        driver.start()
    text = (tmp_path / "driver.log").read_text()
    assert "Unavailable: Spark did not start on spark://127.0.0.1:9" in text
    assert "code: spark-start" in text
