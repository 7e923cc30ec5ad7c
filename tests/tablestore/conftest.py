"""A store in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tablestore import Store, Table
from tests.logspy import LogSpy
from tests.warehouses import warehouse


@pytest.fixture
def store() -> Iterator[Store]:
    with warehouse() as opened:
        yield opened


@pytest.fixture
def orders(store: Store) -> Table:
    return store.create_table("shop.orders", "id BIGINT, name STRING", primary_key=["id"], options={"bucket": "2"})


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> LogSpy:
    return LogSpy.installed(monkeypatch)
