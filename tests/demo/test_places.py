"""Where the demo runs: what it refuses on a deployment, what it advises, and all of it on S3 and a Spark cluster."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from catalog_service.server import serving
from filestore.errors import InvalidRequest
from tablestore import connect
from tablestore.cli import app
from tablestore.demo.advice import next_commands
from tablestore.demo.places import Deployment, Folder
from tests.cli.programs import ROOT


def test_a_folder_is_no_deployment(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Deployment(str(tmp_path)).prepare()
    assert refused.value.code == "demo-catalog"
    assert "--warehouse" in str(refused.value)


@pytest.mark.slow
def test_a_database_of_somebody_is_left_alone(tmp_path: Path) -> None:
    with serving(str(tmp_path)) as url:
        with connect(url) as store:
            store.create_database("nyc")
            store.create_table("nyc.mine", "id BIGINT", primary_key=["id"])
        with pytest.raises(InvalidRequest) as refused, Deployment(url).store():
            pytest.fail("the demo would begin")
        assert refused.value.code == "demo-database"
        with connect(url) as store:
            assert store.list_tables("nyc") == ["mine"]
            store.drop_database("nyc", cascade=True)
        with Deployment(url).store() as opened:
            assert opened.target == url


def test_brokers_are_an_option_of_all_tables() -> None:
    assert Deployment("http://x").options == {}
    given = Deployment("http://x", kafka="kafka:9092").options
    assert given == {"log.system": "kafka", "log.kafka.bootstrap.servers": "kafka:9092"}


def test_executors_of_a_cluster_do_not_find_files_of_this_machine() -> None:
    assert Folder(Path("x")).files_reach_spark
    assert Deployment("http://x").files_reach_spark
    assert not Deployment("http://x", master="spark://y:7077").files_reach_spark


def test_what_to_try_next_fits_the_place() -> None:
    on_a_service = next_commands("http://127.0.0.1:8080")
    assert on_a_service[0] == "export TABLESTORE_CATALOG=http://127.0.0.1:8080"
    assert not [line for line in on_a_service if "polars" in line or " serve " in line]
    in_a_folder = next_commands("my demo", Path("my demo"))
    assert in_a_folder[0] == "export TABLESTORE_CATALOG='my demo'"
    assert "pl.scan_delta('my demo/nyc/flights')" in in_a_folder[-1]


@pytest.mark.parametrize("option", [("--master", "spark://x:7077"), ("--kafka", "x:9092"), ("--ship-packages",)])
def test_options_of_deployments_need_one(option: tuple[str, ...], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["demo", "--warehouse", str(tmp_path / "w"), *option])
    assert result.exit_code == 2
    assert not (tmp_path / "w").exists()


@pytest.mark.deep(rarely=4)
@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.s3
@pytest.mark.timeout(1800)
def test_every_check_holds_on_s3_and_a_cluster() -> None:
    """`make demo ARGS=--s3`: the service, PostgreSQL, S3, Kafka, a compactor, a master and two workers."""
    with tempfile.TemporaryDirectory(prefix="tablestore-tests-") as folder:
        Path(folder).chmod(0o755)  # PostgreSQL does not run as root
        done = subprocess.run(
            [ROOT / "deploy" / "local.sh", ROOT / "deploy" / "demo.sh", "--ship-packages", "--days", "1"],
            env={**os.environ, "TMPDIR": folder, "COLUMNS": "120"},
            capture_output=True,
            text=True,
            check=False,
        )
        left = list(Path(folder).iterdir())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✗" not in done.stdout
    for claim in (
        "every row has arrived",
        "each version names the log offsets that it covers",
        "the changes, replayed, give the table, row for row",
        "delta-spark reads 336,764 rows",
        "polars reads 336,764 rows",
        "the doctor finds nothing",
    ):
        assert f"✓ {claim}" in done.stdout
    assert left == []
