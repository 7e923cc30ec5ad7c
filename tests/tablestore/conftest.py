"""A store in memory."""

from __future__ import annotations

import pytest

from tablestore import Store, Table
from tests.logspy import LogSpy


@pytest.fixture
def orders(store: Store) -> Table:
    return store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=["id"], options={"bucket": "2"})


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> LogSpy:
    return LogSpy.installed(monkeypatch)
