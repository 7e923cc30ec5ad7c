"""``serve`` as a process, and the other commands against it."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tablestore import Store
from tests.cli.conftest import Run
from tests.cli.programs import Program

Start = Callable[..., Program]


def url_of(program: Program) -> str:
    found = re.search(r"http://[^ ]+", program.out.until_any("http://"))
    assert found is not None
    return found[0]


@pytest.mark.slow
def test_commands_work_over_rest_and_ctrl_c_ends_the_service(start: Start, run: Run, tmp_path: Path) -> None:
    service = start("serve", "--warehouse", tmp_path / "served", "--port", 0)
    url = url_of(service)
    assert httpx.get(f"{url}/openapi.json").status_code == 200
    for arguments in (
        ("create", "shop"),
        ("create", "shop.orders", "id BIGINT", "--key", "id"),
        ("write", "shop.orders", "-"),
    ):
        assert run(*arguments, catalog=url, stdin='{"id": 1}').exit_code == 0
    assert run("tables", catalog=url).stdout == "shop.orders\n"
    assert run("scan", "shop.orders", "-f", "json", catalog=url).stdout == '{"id":1}\n'
    service.interrupt()
    assert service.wait() == 0
    assert run("tables", catalog=url).stderr.startswith("error[")


@pytest.mark.slow
def test_a_token_is_asked_for_and_taken(start: Start, run: Run, tmp_path: Path) -> None:
    url = url_of(start("serve", "--warehouse", tmp_path / "served", "--port", 0, "--token", "s3cret"))
    refused = run("databases", catalog=url)
    assert refused.exit_code == 1
    assert refused.stderr.startswith("error[")
    assert "s3cret" not in refused.output
    assert run("databases", "--token", "s3cret", catalog=url).exit_code == 0


@pytest.mark.deep
@pytest.mark.slow
def test_a_port_in_use_is_one_line(start: Start, tmp_path: Path) -> None:
    port = url_of(start("serve", "--warehouse", tmp_path / "a", "--port", 0)).rsplit(":", 1)[1]
    second = start("serve", "--warehouse", tmp_path / "b", "--port", port)
    assert second.wait() == 1
    assert len(second.err.lines) == 1
    assert second.err.lines[0].startswith("error[port-in-use]")


@pytest.mark.deep
@pytest.mark.slow
def test_settings_of_the_environment_and_a_log_in_json(store: Store, tmp_path: Path) -> None:
    """As an orchestrator starts it: all by variables, the token in a file, and standard output is JSON lines."""
    (tmp_path / "token").write_text("s3cret\n")
    settings = {
        "TABLESTORE_WAREHOUSE": str(tmp_path / "served"),
        "TABLESTORE_SERVE_PORT": "0",
        "TABLESTORE_TOKEN_FILE": str(tmp_path / "token"),
        "TABLESTORE_LOG_FORMAT": "json",
        "TABLESTORE_LOG_LEVEL": "debug",
    }
    with Program(["serve"], **settings) as service:
        url = json.loads(service.out.until_any("Tablestore catalog at"))["url"]
        assert httpx.get(f"{url}/api/v1/databases", trust_env=False).status_code == 401
        given = {"Authorization": "Bearer s3cret"}
        assert httpx.get(f"{url}/api/v1/databases?limit=5", headers=given, trust_env=False).status_code == 200
        assert httpx.get(f"{url}/api/v1/ready", trust_env=False).status_code == 200
        service.process.send_signal(signal.SIGTERM)
        assert service.wait() == 0
    lines = [json.loads(line) for line in service.out.lines]
    requests = [line for line in lines if line["logger"] == "catalog_service.access"]
    seen = [(line["level"], line["path"], line["status"]) for line in requests]
    assert seen == [
        ("info", "/api/v1/databases", 401),
        ("info", "/api/v1/databases?limit=5", 200),
        ("debug", "/api/v1/ready", 200),
    ]
    assert {"time", "message", "client", "method", "bytes", "ms"} <= requests[0].keys()
    assert "s3cret" not in "".join(service.out.lines)
    assert service.err.lines == []
