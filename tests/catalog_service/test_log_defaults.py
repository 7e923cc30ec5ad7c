"""Which log a table has if the request does not say it, and what a catalog's own brokers are for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tablestore
from catalog_service.server import serving
from catalog_service.use_cases.broker_policy import BrokerPolicy
from catalog_service.use_cases.definitions import with_log
from catalog_service.wire.tables import CreateTable
from filestore.errors import InvalidRequest, Unsupported
from filestore.storage.race_probe import require_conditions
from tests.simulation.memory import MemoryStorage

SERVERS = "log.kafka.bootstrap.servers"


def request(**options: str) -> CreateTable:
    named = {name.replace("_", "."): value for name, value in options.items()}
    return CreateTable.of("t", "id BIGINT", options=named)


@pytest.mark.parametrize(
    ("given", "local", "brokers", "wanted"),
    [
        ({}, True, None, {}),
        ({}, True, "k:1", {}),
        ({}, False, None, {"log.system": "none"}),
        ({}, False, "k:1", {"log.system": "kafka", SERVERS: "k:1"}),
        ({"log_kafka_bootstrap_servers": "own:1"}, False, None, {"log.system": "kafka", SERVERS: "own:1"}),
        ({"log_kafka_bootstrap_servers": "own:1"}, False, "k:1", {"log.system": "kafka", SERVERS: "own:1"}),
        ({"log_system": "none"}, False, "k:1", {"log.system": "none"}),
        ({"log_system": "embedded"}, False, "k:1", {"log.system": "embedded"}),
        ({"log_system": "kafka"}, False, None, {"log.system": "kafka"}),
        ({"log_system": "kafka"}, True, "k:1", {"log.system": "kafka", SERVERS: "k:1"}),
        ({"log_system": "kafka", "log_kafka_bootstrap_servers": "own:1"}, True, "k:1", None),
        ({"connector": "kafka"}, False, "k:1", None),
    ],
)
def test_the_log_of_a_request(
    given: dict[str, str], local: bool, brokers: str | None, wanted: dict[str, str] | None
) -> None:
    asked = request(**given)
    found = with_log(asked, local=local, brokers=brokers)
    assert found.options == (asked.options if wanted is None else wanted)
    assert with_log(found, local=local, brokers=brokers) == found


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with serving(str(tmp_path / "lake"), brokers="127.0.0.1:1") as found:
        yield found


def test_a_service_has_brokers_of_its_own(url: str) -> None:
    with pytest.raises(InvalidRequest, match="--brokers") as refused:
        tablestore.connect(url, brokers="127.0.0.1:1")
    assert refused.value.code == "not-with-a-service"
    with tablestore.connect(url) as store:
        store.create_database("shop")
        table = store.create_table("shop.t", "id BIGINT")
        assert isinstance(table, tablestore.Table)
        assert table.definition.options["log.system"] == "embedded", "the warehouse is on a local disk"


def test_a_services_brokers_have_to_be_allowed(tmp_path: Path) -> None:
    policy = BrokerPolicy.of(["*.kafka.internal"])
    with (
        pytest.raises(InvalidRequest) as refused,
        serving(str(tmp_path / "lake"), brokers="elsewhere:9092", broker_policy=policy),
    ):
        pytest.fail("it does not start")
    assert refused.value.code == "broker-not-allowed"
    with serving(str(tmp_path / "lake"), brokers="b-1.kafka.internal:9092", broker_policy=policy):
        pass


class _Careless(MemoryStorage):
    """A store that replaces whatever the condition is, or wherever there is something."""

    ignored = ("tag", "absence")

    def replace_tagged(self, path: str, data: bytes, tag: str | None) -> str:
        if ("absence" if tag is None else "tag") not in self.ignored:
            return super().replace_tagged(path, data, tag)
        self.put(path, data)
        return super().read_tagged(path).tag


def test_the_probe_of_conditions() -> None:
    ids = iter(range(100))
    for ignored in ((), ("tag",), ("absence",), ("tag", "absence")):
        storage = _Careless(lambda: 1)
        storage.ignored = ignored  # type: ignore[assignment]
        try:
            require_conditions(storage, "mem://lake/t", lambda: str(next(ids)))
            refused = False
        except Unsupported as error:
            assert error.code == "no-conditional-writes"
            refused = True
        assert refused == bool(ignored)
        assert not storage.files
