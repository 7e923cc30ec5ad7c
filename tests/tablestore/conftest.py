"""A store in memory."""

from __future__ import annotations

import pytest

from tablestore import Store, Table
from tests.logspy import LogSpy


@pytest.fixture
def orders(store: Store, log_options: dict[str, str]) -> Table:
    options = {"bucket": "2", **log_options}
    return store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=["id"], options=options)


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> LogSpy:
    return LogSpy.installed(monkeypatch)
