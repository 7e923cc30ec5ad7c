"""The deployment of compose.yaml on this machine: commands, settings, secrets and health checks do what they should.

It has PostgreSQL, S3, the service and a compactor; the demo and the soak also have Kafka and Spark.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from deploy.local.machine import Deployment, deployed
from tests.cli.programs import ROOT
from tests.waiting import until

pytestmark = [pytest.mark.s3, pytest.mark.slow]

SIX_WRITES = """
import os, pathlib, tablestore
token = pathlib.Path(os.environ["TABLESTORE_TOKEN_FILE"]).read_text().strip()
table = tablestore.connect(os.environ["TABLESTORE_CATALOG"], token).table("shop.orders")
for number in range(6):
    table.write([{"id": number}])
"""
WITHOUT = ("kafka", "spark-master", "spark-worker")


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    settings = {"TABLESTORE_COMPACTOR_EVERY": "1"}
    with deployed(tmp_path_factory.mktemp("deployed"), WITHOUT, settings=settings) as running:
        yield running


@pytest.fixture
def public() -> Iterator[Path]:
    """An empty folder into which every user may look, as into /tmp: PostgreSQL does not run as root."""
    with tempfile.TemporaryDirectory(prefix="tablestore-tests-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def tablestore(deployment: Deployment, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tablestore.cli", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1"} | deployment.environment,
        cwd=deployment.servers.folder,
        capture_output=True,
        text=True,
        check=False,
    )


def lines(deployment: Deployment, name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in deployment.parts[name].log.read_text().splitlines()]


@pytest.mark.deep
def test_commands_work_and_the_compactor_keeps_their_table(deployment: Deployment) -> None:
    assert tablestore(deployment, "create", "shop").returncode == 0
    assert tablestore(deployment, "create", "shop.orders", "id BIGINT", "--key", "id").returncode == 0
    written = subprocess.run(
        [sys.executable, "-c", SIX_WRITES],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | deployment.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert written.returncode == 0, written.stderr
    until(lambda: any(line.get("duty") == "compaction" for line in lines(deployment, "compactor")), 300, "a compaction")
    read = tablestore(deployment, "scan", "shop.orders", "-f", "json")
    assert sorted(json.loads(line)["id"] for line in read.stdout.splitlines()) == list(range(6))
    checked = tablestore(deployment, "doctor", "shop.orders")
    assert checked.returncode == 0, checked.stdout


@pytest.mark.deep
def test_who_has_no_token_is_refused_and_probes_need_none(deployment: Deployment) -> None:
    url = deployment.environment["TABLESTORE_CATALOG"]
    assert httpx.get(f"{url}/api/v1/databases", trust_env=False).status_code == 401
    for probe in ("/api/v1/health", "/api/v1/ready", "/metrics"):
        assert httpx.get(f"{url}{probe}", trust_env=False).status_code == 200


@pytest.mark.deep
def test_all_parts_log_json_and_no_secret(deployment: Deployment) -> None:
    secrets = [path.read_text().strip() for path in deployment.servers.secrets.glob("*") if path.is_file()]
    assert len(secrets) >= 6
    for name in ("service", "compactor"):
        assert lines(deployment, name)
        text = deployment.parts[name].log.read_text()
        assert not [secret for secret in secrets if secret in text]


@pytest.mark.deep
def test_without_its_database_the_service_lives_and_is_not_ready(deployment: Deployment) -> None:
    """Then an orchestrator sends it no requests, and does not restart it."""
    url = deployment.environment["TABLESTORE_CATALOG"]
    postgres = deployment.servers.postgres
    assert postgres is not None
    postgres.stop()
    try:
        assert httpx.get(f"{url}/api/v1/ready", trust_env=False, timeout=60).status_code == 503
        assert httpx.get(f"{url}/api/v1/health", trust_env=False).status_code == 200
        assert not deployment.parts["service"].healthy()
    finally:
        postgres.start()
    until(deployment.parts["service"].healthy, 120, "the service is ready again")


@pytest.mark.deep
def test_a_service_that_was_stopped_or_killed_starts_again(deployment: Deployment) -> None:
    service = deployment.parts["service"]
    assert service.stop() == 0
    service.start()
    assert service.kill() == -signal.SIGKILL
    service.start()
    assert service.healthy()
    assert tablestore(deployment, "databases").returncode == 0


@pytest.mark.deep
def test_a_compactor_stops_by_itself(deployment: Deployment) -> None:
    assert deployment.parts["compactor"].stop() == 0
    deployment.parts["compactor"].start()


@pytest.mark.deep  # as Ctrl-C does, with fewer parts
def test_the_script_ends_all_that_it_started(public: Path) -> None:
    """It gives a command the deployment's settings, and returns its exit code; what it started ends with it."""
    command = ["sh", "-c", f'ps -o pid= --ppid $PPID > {public}/started; test -n "$TABLESTORE_CATALOG"; exit 7']
    without = [word for name in (*WITHOUT, "compactor") for word in ("--without", name)]
    done = subprocess.run(
        [ROOT / "deploy" / "local.sh", *without, *command],
        env=os.environ | {"TMPDIR": str(public)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    started = [int(word) for word in (public / "started").read_text().split()]
    assert len(started) >= 3
    assert not [pid for pid in started if psutil.pid_exists(pid)]
    assert [path.name for path in public.iterdir()] == ["started"]


def test_ctrl_c_ends_all_that_it_started(public: Path) -> None:
    without = [word for name in (*WITHOUT, "compactor", "service", "bucket") for word in ("--without", name)]
    with subprocess.Popen(
        [ROOT / "deploy" / "local.sh", *without],
        env=os.environ | {"TMPDIR": str(public)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as script:
        assert script.stdout is not None
        first = script.stdout.readline()
        started = psutil.Process(script.pid).children(recursive=True)
        assert first.startswith("export ")
        assert len(started) >= 2
        script.send_signal(signal.SIGINT)
        assert script.wait(120) == 0
    assert not [process for process in started if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    assert list(public.iterdir()) == []
