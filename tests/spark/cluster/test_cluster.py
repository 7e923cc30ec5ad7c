"""Programs on a standalone cluster whose workers lack our package, with tables in S3."""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.servers.s3 import MotoServer
from tests.servers.spark_cluster import SparkCluster
from tests.servers.spark_driver import SparkDriver
from tests.spark.cluster.conftest import HOSTS
from tests.spark.cluster.programs import large_version_written, shown, streamed, where_tasks_run, written_and_read

pytestmark = pytest.mark.slow


@pytest.mark.deep
def test_executors_import_from_the_archive(spark_cluster: SparkCluster, cluster_driver: SparkDriver) -> None:
    for worker in spark_cluster.workers:
        bare = worker.folder / "python" / "bin" / "python3"
        refused = subprocess.run([bare, "-c", "import polars"], capture_output=True, text=True, cwd=worker.folder)
        assert "No module named 'polars'" in refused.stderr, "the workers' own Python has no package"
    seen = cluster_driver.run(where_tasks_run)
    assert len({row["folder"] for row in seen}) == HOSTS, "each executor has run a task"
    works = {worker.work for worker in spark_cluster.workers}
    for row in seen:
        folder = Path(row["folder"])
        assert folder.parents[1] in works
        assert Path(row["ours"]).is_relative_to(folder / "tablestore-packages")
        assert Path(row["polars"]).is_relative_to(folder / "tablestore-packages")
        assert Path(row["python"]).is_relative_to(folder.parents[2] / "python")
        assert "-m tablestore.spark.daemon" in row["daemon"]


@pytest.mark.deep
def test_an_application_outlives_its_master(spark_cluster: SparkCluster, cluster_driver: SparkDriver) -> None:
    """A master that has forgotten its applications ends their executors, and gives them no other ones."""
    cluster_driver.run(where_tasks_run)
    spark_cluster.master.kill()
    spark_cluster.master.start()
    spark_cluster.wait()
    for worker in spark_cluster.workers:
        worker.kill()
        worker.start()
    spark_cluster.wait()
    assert len({row["folder"] for row in cluster_driver.run(where_tasks_run)}) == HOSTS


@pytest.mark.deep
def test_tables_in_s3_and_no_secret_in_sight(
    spark_cluster: SparkCluster, cluster_driver: SparkDriver, moto: MotoServer, tmp_path: Path
) -> None:
    """Reads are Delta's own scans, writes go through our workers, and planners find the tables, too.

    The driver has the credentials in its variables, and the workers' hosts have them in a file.
    """
    place, database = f"s3://{moto.new_bucket()}/lake", f"sqlite:///{tmp_path / 'catalog.db'}"
    reached = {"endpoint": moto.endpoint, "region": moto.region}
    found = cluster_driver.run(written_and_read, place, database, reached)
    expected = [(n, "b" if n < 10 else f"a{n}") for n in range(5, 1000)]
    assert found["scan"] == found["format"] == expected
    assert all(name.startswith("s3://") for name in found["files"])
    assert "FileScan parquet" in found["plan"]
    assert "Python" not in found["plan"]
    assert found["appended"] == len(expected) + 3

    texts = dict(_all_that_is_shown(spark_cluster, cluster_driver))
    assert any(moto.endpoint in text for name, text in texts.items() if "environment" in name), "settings are shown"
    assert any("shop/orders" in text for name, text in texts.items() if "sql" in name), "plans are shown"
    assert any(moto.endpoint in text for name, text in texts.items() if "events" in name)
    for name, text in texts.items():
        assert moto.secret_key not in text, name
        assert moto.access_key not in text, name


@pytest.mark.deep
def test_the_files_of_a_large_version_are_on_an_executor_once(
    cluster_driver: SparkDriver, moto: MotoServer, tmp_path: Path
) -> None:
    place, database = f"s3://{moto.new_bucket()}/lake", f"sqlite:///{tmp_path / 'catalog.db'}"
    found = cluster_driver.run(
        large_version_written, place, database, {"endpoint": moto.endpoint, "region": moto.region}
    )
    written = {(n % 20, n % 4) for n in range(40)}
    before = {(p, n) for p in range(20) for n in range(3)}
    assert found["rows"] == sorted((p, n, "c" if (p, n) in written else "a") for p, n in written | before)
    assert len(found["disks"]) == HOSTS
    counts = [len(names) for names in found["disks"].values()]
    assert max(counts) == 1, "one file serves both writes, wherever Spark has run their tasks"


@pytest.mark.deep
def test_streams_and_overlays_in_s3(cluster_driver: SparkDriver, moto: MotoServer, tmp_path: Path) -> None:
    """Checkpoints are in S3, too; a stream that is started again commits nothing twice."""
    place, database = f"s3://{moto.new_bucket()}/lake", f"sqlite:///{tmp_path / 'catalog.db'}"
    found = cluster_driver.run(streamed, place, database, {"endpoint": moto.endpoint, "region": moto.region})
    expected = [(n, f"a{n}") for n in range(100)]
    assert found["pending"] > 0, "the copy is read as an overlay"
    assert found["copy"] == sorted(found["compacted"]) == expected
    assert found["named"] == 100
    assert found["versions"] == [1, 1]
    assert found["files"] >= 2


def _all_that_is_shown(cluster: SparkCluster, driver: SparkDriver) -> Iterator[tuple[str, str]]:
    """All pages, logs, events and command lines of the application and of the cluster, by where they stand."""
    own = driver.run(shown)
    application = f"{own['page']}/api/v1/applications/{own['id']}"
    parts = ("environment", "sql?details=true&planDescription=true&length=1000", "jobs", "stages?details=true")
    pages = [*(f"{application}/{part}" for part in parts), f"{application}/allexecutors"]
    pages += [f"{own['page']}/{page}/" for page in ("environment", "SQL", "executors")]
    pages += [f"http://127.0.0.1:{daemon.web_port}" for daemon in (cluster.master, *cluster.workers)]
    for page in pages:
        with urllib.request.urlopen(page, timeout=300.0) as reply:
            yield page, reply.read().decode()
    files = [driver.log, *cluster.logs(), *(path for path in Path(own["events"]).rglob("*") if path.is_file())]
    for path in files:
        yield str(path), path.read_bytes().decode(errors="replace")
    processes = [psutil.Process(pid) for pid in own["pids"]] + cluster.executors() + cluster.pythons()
    for process in processes:
        yield f"command line of {process.pid}", " ".join(process.cmdline())
