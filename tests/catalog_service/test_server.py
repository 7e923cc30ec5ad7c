"""The service as a process: it prints its address, stops cleanly, and reports a port that is in use."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from catalog_service.client import CreateTable, connect
from catalog_service.server import Settings, run, serving
from filestore.errors import InvalidRequest, Unavailable
from tests.catalog_service.faults import check
from tests.depth import sampled

RUN = "import sys; from catalog_service.server import Settings, run; run(sys.argv[1], Settings(port=0))"


@contextmanager
def process(warehouse: str, **more: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The service, and its URL as it printed it."""
    command = [sys.executable, "-c", RUN, warehouse]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **more) as running:
        try:
            line = running.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            assert found, line
            assert found[1] != "0"
            assert warehouse in line
            yield running, found[0]
        finally:
            running.kill()


@pytest.mark.slow
@pytest.mark.parametrize("stop", sampled([signal.SIGTERM, signal.SIGINT], 2, test=2))
def test_it_prints_its_url_serves_and_stops(warehouse: str, stop: signal.Signals) -> None:
    with process(warehouse) as (running, url):
        with connect(url) as catalog:
            catalog.create_database("shop")
            catalog.create_table("shop", CreateTable.of("orders", "id BIGINT"))
            running.send_signal(stop)
            assert running.wait(300) == 0
        assert running.stdout.read() == ""
    assert check(warehouse) == ["shop.orders"]


@pytest.mark.slow
def test_two_services_share_a_catalog_and_one_may_be_killed(warehouse: str) -> None:
    with process(warehouse) as (first, url), process(warehouse) as (_, other):
        with connect(url) as catalog, connect(other) as twin:
            catalog.create_database("shop")
            info = twin.create_table("shop", CreateTable.of("orders", "id BIGINT"))
            assert catalog.get_table("shop", "orders").table_id == info.table_id
        first.kill()
        first.wait(300)
        with connect(other) as twin:
            twin.drop_database("shop", cascade=True)
    assert check(warehouse) == []


def test_a_taken_port(warehouse: str, tmp_path) -> None:
    with serving(warehouse) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(Unavailable, match=f"127.0.0.1:{port}.*another port") as caught:
            run(str(tmp_path / "other"), Settings(port=port))
    assert caught.value.code == "port-in-use"
    assert not (tmp_path / "other").exists()


def test_an_unknown_host(warehouse: str) -> None:
    with pytest.raises(Unavailable) as caught:
        run(warehouse, Settings(host="no.such.host.invalid", port=0))
    assert caught.value.code == "port-in-use"


def test_an_empty_token_is_no_token(warehouse: str) -> None:
    with pytest.raises(InvalidRequest):
        run(warehouse, Settings(port=0, token=""))


def test_start_up_errors_are_raised(tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable), serving(str(tmp_path / "file" / "warehouse")):
        pass
