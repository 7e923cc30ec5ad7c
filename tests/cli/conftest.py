"""A store in memory, and the command line on it, in this process or in another one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tablestore import Store, Table
from tablestore.cli import app
from tests.cli.programs import Program

Run = Callable[..., Result]


def objects(result: Result) -> list[Any]:
    """The objects that a command has printed as JSON."""
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def orders(store: Store) -> Table:
    return store.create_table("shop.orders", "id BIGINT, status STRING", primary_key=["id"], options={"bucket": "2"})


@pytest.fixture
def run(store: Store, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command on the store, in this process; with answers as somebody gives them at a terminal."""

    def call(*arguments: object, stdin: str | None = None, answers: str = "", catalog: str = store.target) -> Result:
        runner = CliRunner(env={"TABLESTORE_CATALOG": catalog, "NO_COLOR": "1", "COLUMNS": "120"})
        monkeypatch.setattr("tablestore.cli.output._at_a_terminal", lambda: bool(answers))
        return runner.invoke(app, [str(a) for a in arguments], input=answers or stdin)

    return call


@pytest.fixture
def start(store: Store) -> Iterator[Callable[..., Program]]:
    """Starts a command on the store, in a process of its own; killed at the end if it still runs."""
    with ExitStack() as stack:
        yield lambda *arguments: stack.enter_context(Program(arguments, TABLESTORE_CATALOG=store.target))
