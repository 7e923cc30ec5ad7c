"""``--format json`` is in every command, and of one shape: each line of standard output is an object."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
import typer.main

from tablestore import Store, Table
from tablestore.cli import app
from tests.cli.conftest import Run

OTHERWISE = {
    "demo": "a story for people",
    "serve": "--log-format json: it logs what it does",
    "compactor": "--log-format json: it logs what it does",
}
"""Commands that have no ``--format``, and why."""

ELSEWHERE = {
    "follow": "it goes on: test_follow.py",
    "ingest": "it needs a broker",
    "refresh": "it needs views, and for most Spark",
    "new-log": "it needs a log that is lost",
    "spark-archive": "it takes long",
    "spark-settings": "it fetches jars",
}
"""Commands that are not run here, and why."""

ROWS = '{"id": 7, "day": "2026-01-01", "v": "x"}\n'
RUN: dict[str, tuple[tuple[str, ...], str]] = {
    "databases": ((), ""),
    "tables": ((), ""),
    "views": ((), ""),
    "create": (("shop.made", "id BIGINT"), ""),
    "rename": (("shop.other", "renamed"), ""),
    "register": ((), ""),
    "drop": (("shop.other", "--yes"), ""),
    "alter": (("shop.t", "ADD COLUMN note STRING"), ""),
    "describe": (("shop.t",), ""),
    "snapshots": (("shop.t",), ""),
    "show": (("shop.t$files",), ""),
    "sql": (("SELECT id FROM shop.t",), ""),
    "scan": (("shop.t",), ""),
    "get": (("shop.t", "1,2026-01-01"), ""),
    "write": (("shop.t", "-"), ROWS),
    "load": (("-", "shop.t", "--input-format", "json"), ROWS),
    "tags": (("shop.t",), ""),
    "tag": (("shop.t", "noon"), ""),
    "rollback": (("shop.t", "--version", "1", "--yes"), ""),
    "consumers": (("shop.t",), ""),
    "doctor": ((), ""),
    "compact": (("shop.t", "--full"), ""),
    "maintain": (("shop.t",), ""),
    "expire": (("shop.t", "--yes"), ""),
    "orphans": (("shop.t",), ""),
    "partitions list": (("shop.t",), ""),
    "partitions drop": (("shop.t", "day=2026-01-01", "--yes"), ""),
    "partitions expire": (("shop.t",), ""),
}
"""Each command, its arguments, and its standard input."""

NOTHING = {"views", "tags", "consumers", "orphans"}
"""Commands that list nothing here, so they print nothing."""


def commands(group: Any = None, before: str = "") -> Iterator[tuple[str, Any]]:
    """All commands of the parser, with those of groups."""
    group = typer.main.get_command(app) if group is None else group
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


COMMANDS = dict(commands())


def test_every_command_has_the_option() -> None:
    lacking = {name for name, command in COMMANDS.items() if not any("--format" in p.opts for p in command.params)}
    assert lacking == set(OTHERWISE)
    assert set(RUN) | set(ELSEWHERE) | set(OTHERWISE) == set(COMMANDS)


@pytest.fixture
def table(store: Store) -> Table:
    options = {"bucket": "1", "partition.expiration-time": "100000 d", "partition.timestamp-formatter": "yyyy-MM-dd"}
    columns = "id BIGINT, day DATE, v STRING"
    made = store.create_table("shop.t", columns, primary_key=["id", "day"], partition_by=["day"], options=options)
    store.create_table("shop.other", "id BIGINT")
    days = pa.array(["2026-01-01"] * 2).cast(pa.date32())
    made.write(pa.table({"id": [1, 2], "day": days, "v": ["a", "b"]}))
    made.write(pa.table({"id": [2, 3], "day": days, "v": ["c", "d"]}))
    return made


@pytest.mark.few(6)
@pytest.mark.parametrize("command", RUN)
def test_each_line_is_an_object(run: Run, table: Table, command: str) -> None:
    arguments, stdin = RUN[command]
    done = run(*command.split(), *arguments, "--format", "json", stdin=stdin or None)
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert all(isinstance(json.loads(line), dict) for line in lines)
    assert bool(lines) is (command not in NOTHING)
