"""What every test can ask for: a Kafka broker, a Spark session. Who asks is marked ``kafka`` or ``spark``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.servers.kafka import KafkaBroker
from tests.servers.spark import start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A busy machine is slow, not wrong: how long an example takes proves nothing.
settings.register_profile("tablestore", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tablestore")

MARK_OF_FIXTURE = {"kafka_broker": "kafka", "spark": "spark"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests by the servers that they ask for, so that ``-m "not kafka"`` never starts one."""
    for item in items:
        for fixture, mark in MARK_OF_FIXTURE.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(mark)


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """One broker for all tests: make topics of your own names, and start your own broker to kill it."""
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session with Delta for all tests."""
    session = start_spark()
    yield session
    session.stop()
