"""The soak in short: all that is killed dies once at least, and everything is compared at the end."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from rich.console import Console

from tests.integration import deployed_soak
from tests.integration.soak import soak

pytestmark = [pytest.mark.deep, pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(900)]

RATE = 1000


def test_writer_broker_and_reader_die_and_nothing_is_lost_or_doubled(folder: Path) -> None:
    reported = soak(folder, 30, RATE, 4, Console())
    assert min(reported.deaths[name] for name in ("writer", "broker", "reader")) >= 1
    assert reported.commits > sum(reported.deaths.values()), "work was done between the deaths"
    assert reported.records >= reported.commits * RATE * 0.8  # a delete of what is not there is no change
    assert reported.kept > 0


@pytest.mark.spark
@pytest.mark.s3
@pytest.mark.timeout(3600)
def test_each_part_of_a_deployment_dies_and_nothing_is_lost_or_doubled() -> None:
    with tempfile.TemporaryDirectory(prefix="tablestore-soak-") as folder:
        Path(folder).chmod(0o755)  # PostgreSQL does not run as root
        reported = deployed_soak.run(Path(folder), 120, 300, 8, Console())
    assert set(reported.deaths) >= {
        *("writer-0", "writer-1", "reader", "copy", "compactor", "compactor-2", "service"),
        *("s3", "postgres", "kafka", "worker-0", "worker-1", "executor"),
    }
    assert min(reported.commits.values()) > 10
    assert reported.kept > reported.rows > 0
