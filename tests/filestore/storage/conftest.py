"""Fixtures of tests whose requests to S3 go through a proxy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.filestore.storage.places import Place, impatient, s3_place
from tests.servers.s3 import S3Endpoint
from tests.servers.s3_proxy import S3Proxy


@pytest.fixture
def proxy(moto: S3Endpoint) -> Iterator[S3Proxy]:
    """In front of moto: it counts requests and injects faults."""
    with S3Proxy(moto) as between:
        yield between


@pytest.fixture(params=["obstore", "s3fs"])
def place(request: pytest.FixtureRequest, proxy: S3Proxy, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A place behind the proxy, through both libraries, whose requests wait seconds and not a minute."""
    impatient(monkeypatch, 3)  # a store on a busy machine takes a second for a part of an upload
    return s3_place(proxy, request.param, monkeypatch)
