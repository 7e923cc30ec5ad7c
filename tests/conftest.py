"""Fixtures of all tests: a Kafka broker, a Spark session, stores, the run's depth; and the choice of tests by depth."""

from __future__ import annotations

import gc
import os
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer.testing
from _pytest.nodeid import coerce_node_id
from hypothesis import HealthCheck, is_hypothesis_test, settings

import filestore.ambient
from filestore.beside import at_once
from tablestore import Store
from tests.depth import DEPTH, FAST_CASES, Depth, Share, TimeLimit, few
from tests.folders import memory_folder
from tests.servers.kafka import NEVER_KILLED, KafkaBroker
from tests.servers.s3 import MotoServer, NotBuilt, S3Endpoint, VersityServer
from tests.servers.spark import generates_code, start_spark
from tests.warehouses import warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Tests see no terminal and no CI but their own: what a command prints depends on these.
for _name in ("CI", "TERM", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "PAGER"):
    os.environ.pop(_name, None)

# Checkpoints are written in their commits: what a test finds in a folder, and the requests that it counts, are the same
# each time. Tests of the thread that writes them, and processes that tests start, have the thread.
filestore.ambient.beside = at_once

# Examples have no deadline, since a busy machine may be slow. Only a deep run draws new examples, and keeps those that
# fail. Other runs always have the same ones, so that a failure is due to the change that is tested.
settings.register_profile(
    Depth.DEEP, deadline=None, print_blob=True, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(Depth.TEST, settings.get_profile(Depth.DEEP), max_examples=5, derandomize=True)
settings.register_profile(Depth.FAST, settings.get_profile(Depth.TEST), max_examples=3)
settings.register_profile("share", settings.get_profile(Depth.DEEP), max_examples=8)  # CI's: as many, but new ones
settings.load_profile(DEPTH if Share.of_this_run() is None else "share")

# Typer makes the tree of our commands again for each one that runs, which takes longer than most of them.
typer.testing._get_command = cache(typer.testing._get_command)

# A test that uses a server gets its mark, and all tests with the same server run in one process of `pytest -n`.
MARK_OF_FIXTURE = {"kafka_broker": "kafka", "mortal_broker": "kafka", "spark": "spark"}
MARK_OF_FIXTURE |= {"spark_cluster": "spark", "cluster_driver": "spark"}
MARK_OF_FIXTURE |= {"moto": "s3", "versity": "s3", "s3_server": "s3"}
SPARK_WAYS = {"in Spark", "compared here"}
"""Values of a parameter ``way`` for which a test takes the fixture ``spark`` itself (tests/tablestore/views)."""
PLAIN_ID = pytest.StashKey[str]()
TIME_LIMIT = TimeLimit.of_this_run()


def pytest_report_header(config: pytest.Config) -> str:
    share = Share.of_this_run()
    part = f", part {share.part} of {share.parts} of what goes deeper" if share else ""
    return f"depth: {DEPTH}{part}" + (", Spark generates code" if generates_code(config) else "")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Marks tests by the servers that they use, and leaves out those that a run of this depth does not have."""
    for item in items:
        item.stash[PLAIN_ID] = item.nodeid
        for fixture, mark in MARK_OF_FIXTURE.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(mark)
        if "PYTEST_XDIST_WORKER" in os.environ and (group := _group(item)) is not None:
            item._id = coerce_node_id(f"{item.nodeid}@{group}")  # xdist 3.8 sets what pytest 9.2 no longer reads
    _leave_few(items)
    left = [item for item in items if not _is_run(item)]
    items[:] = [item for item in items if _is_run(item)]
    if left:
        config.hook.pytest_deselected(items=left)
    yield
    if TIME_LIMIT is None:  # slow ones first: none of them starts last
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    else:  # many fast ones, then as many others as there is time for, in an order that the seed draws
        items.sort(key=lambda item: item.get_closest_marker("slow") is not None or _group(item) is not None)


def _leave_few(items: list[pytest.Item]) -> None:
    """Marks as deep what ``@pytest.mark.few`` does not leave to ``make test``, and in a fast run most cases as slow."""
    for alike in _by_test(item for item in items if item.get_closest_marker("few") and not _has(item, "deep")):
        mark = alike[0].get_closest_marker("few")
        assert mark is not None
        _mark_others(alike, *mark.args, pytest.mark.deep)
    if DEPTH is Depth.FAST:
        for alike in _by_test(item for item in items if not _has(item, "deep", "slow", *MARK_OF_FIXTURE.values())):
            _mark_others(alike, FAST_CASES, pytest.mark.slow)


def _by_test(items: Iterable[pytest.Item]) -> Iterable[list[pytest.Item]]:
    """Groups the cases of parametrized tests."""
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        cases[item.stash[PLAIN_ID].partition("[")[0]].append(item)
    return cases.values()


def _has(item: pytest.Item, *marks: str) -> bool:
    return any(item.get_closest_marker(mark) is not None for mark in marks)


def _mark_others(alike: list[pytest.Item], count: int, mark: pytest.MarkDecorator) -> None:
    """Marks all but so many of a test's cases."""
    kept = few(len(alike), count)
    for at, item in enumerate(alike):
        if at not in kept:
            item.add_marker(mark)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Exempts what stays from garbage collection: thousands of tests and modules, which each collection would visit."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if TIME_LIMIT is not None and TIME_LIMIT.is_over():
        pytest.skip(f"not begun within {TIME_LIMIT.minutes:g} minutes")


def _group(item: pytest.Item) -> str | None:
    """Names the tests that `pytest -n` runs in one process: those of a server, or of a module with its own servers."""
    fixtures = getattr(item, "fixturenames", ())
    module = item.stash[PLAIN_ID].partition("::")[0]
    if "spark_cluster" in fixtures:
        return "spark-cluster"
    if (
        "spark" in fixtures or _value(item, "way") in SPARK_WAYS
    ):  # two sessions, because one alone would take longer than all other tests together
        return f"spark-{zlib.crc32(module.encode()) % 2}"
    for fixture in ("mortal_broker", "kafka_broker"):
        if fixture in fixtures:
            return fixture
    if "versity" in fixtures or _value(item, "s3_server") == "versity":
        return "versity"
    own = item.get_closest_marker("kafka") or item.get_closest_marker("spark")
    return module if own else None


def _value(item: pytest.Item, fixture: str) -> object:
    """Which value of a parametrized fixture the test has; None if it does not use the fixture."""
    call = getattr(item, "callspec", None)
    return call.params.get(fixture) if call is not None else None


def _is_run(item: pytest.Item) -> bool:
    deep = item.get_closest_marker("deep")
    share = Share.of_this_run()
    if share is None:
        return DEPTH is Depth.DEEP or deep is None
    goes_deeper = deep is not None or "depth" in getattr(item, "fixturenames", ()) or _draws(item)
    rarely = deep.kwargs.get("rarely", 1) if deep is not None else 1
    return goes_deeper and share.has(item.stash[PLAIN_ID], rarely, item.config.getoption("randomly_seed"))


def _draws(item: pytest.Item) -> bool:
    """Whether a test has random examples: it is a hypothesis test, or contains one."""
    test = getattr(item, "obj", None)
    code = getattr(test, "__code__", None)
    return is_hypothesis_test(test) or (code is not None and "given" in code.co_names)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """Removes the group from a test's id, because reports show the id, and the test's seed depends on it."""
    item._id = coerce_node_id(item.stash[PLAIN_ID])
    return (yield)


@pytest.fixture
def depth() -> Depth:
    """The depth of this run; a test that uses it has more cases, or more repetitions, in a deep run."""
    return DEPTH


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
    """One broker for all tests. Use topics with unique names; a test that kills a broker uses `mortal_broker`."""
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), NEVER_KILLED) as broker:
        yield broker


@pytest.fixture(scope="session")
def _mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("mortal")) as broker:
        yield broker


@pytest.fixture
def mortal_broker(_mortal: KafkaBroker) -> KafkaBroker:
    """A broker that a test may kill; it runs at the start of each test, and keeps the topics of earlier tests."""
    return _mortal if _mortal.pid else _mortal.start()


@pytest.fixture
def log_options(request: pytest.FixtureRequest) -> dict[str, str]:
    """A table's options for its log: the embedded log, and with `tests.bothlogs.both_logs` also a log in Kafka."""
    if getattr(request, "param", "embedded") == "embedded":
        return {}
    broker: KafkaBroker = request.getfixturevalue("kafka_broker")
    return {"log.system": "kafka", "log.kafka.bootstrap.servers": broker.bootstrap}


@pytest.fixture(scope="session")
def spark(pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """One Spark session with Delta for all tests."""
    from pyspark import SparkContext

    if (other := SparkContext._active_spark_context) is not None:
        other.stop()  # of a test whose program started one in this process, with its own settings
    session = start_spark(generated=generates_code(pytestconfig))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoServer]:
    """One moto server for all tests of a process, which use buckets of their own: `MotoServer.new_bucket`."""
    with MotoServer() as server:
        yield server


@pytest.fixture
def s3_places(moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[str]]:
    """Opens empty folders in S3, which this process reaches by its environment, as `tests.tables.storage_at` does."""
    moto.set_environment(monkeypatch)
    return lambda: nullcontext(f"s3://{moto.new_bucket()}/a")


@pytest.fixture(scope="session")
def versity() -> Iterator[VersityServer]:
    """One versitygw server for all tests, which use buckets of their own; tests are skipped if it was not built."""
    try:
        with VersityServer() as server:
            yield server
    except NotBuilt as error:
        pytest.skip(str(error))


@pytest.fixture(params=["moto", "versity"])
def s3_server(request: pytest.FixtureRequest) -> S3Endpoint:
    """Both S3 servers, one after the other."""
    return request.getfixturevalue(request.param)
