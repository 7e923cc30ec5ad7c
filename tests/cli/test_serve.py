"""``serve`` as a process, and the other commands against it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

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


@pytest.mark.slow
def test_a_port_in_use_is_one_line(start: Start, tmp_path: Path) -> None:
    port = url_of(start("serve", "--warehouse", tmp_path / "a", "--port", 0)).rsplit(":", 1)[1]
    second = start("serve", "--warehouse", tmp_path / "b", "--port", port)
    assert second.wait() == 1
    assert len(second.err.lines) == 1
    assert second.err.lines[0].startswith("error[port-in-use]")
