"""What every test can ask for: a Kafka broker, a Spark session. Who asks is marked ``kafka`` or ``spark``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tablestore import Store
from tests.folders import memory_folder
from tests.servers.kafka import KafkaBroker
from tests.servers.spark import start_spark
from tests.warehouses import warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A busy machine is slow, not wrong: how long an example takes proves nothing. "soak" draws new examples; those of
# "thorough" and "fast" are the same in every run, so that a failure is due to the change at hand.
settings.register_profile(
    "soak", deadline=None, print_blob=True, max_examples=400, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("soak"), max_examples=40, derandomize=True)
settings.register_profile("fast", settings.get_profile("thorough"), max_examples=5)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "thorough"))

MARK_OF_FIXTURE = {"kafka_broker": "kafka", "spark": "spark"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests by the servers that they ask for, so that ``-m "not kafka"`` never starts one."""
    for item in items:
        for fixture, mark in MARK_OF_FIXTURE.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(mark)


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder, in memory if possible."""
    with memory_folder() as path:
        yield path


@pytest.fixture
def store() -> Iterator[Store]:
    """A store with its own warehouse, in memory if possible, and one database ``shop``."""
    with warehouse() as opened:
        yield opened


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """One broker for all tests: make topics of your own names, and start your own broker to kill it."""
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def log_options(request: pytest.FixtureRequest) -> dict[str, str]:
    """A table's options for its log: the embedded one, and with `tests.bothlogs.both_logs` a topic, too."""
    if getattr(request, "param", "embedded") == "embedded":
        return {}
    broker: KafkaBroker = request.getfixturevalue("kafka_broker")
    return {"log.system": "kafka", "log.kafka.bootstrap.servers": broker.bootstrap}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session with Delta for all tests."""
    session = start_spark()
    yield session
    session.stop()
