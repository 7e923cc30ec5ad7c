"""The error of a store that does not answer has its cause in plain words, without structures of the client."""

from __future__ import annotations

import socket

import obstore
import pytest
from obstore.exceptions import BaseError
from obstore.store import S3Store

from filestore.storage.refusals import failed


def test_a_refused_connection_says_so_and_shows_no_structures() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens
        store = S3Store(
            "warehouse",
            endpoint=f"http://127.0.0.1:{unused.getsockname()[1]}",
            access_key_id="a",
            secret_access_key="b",
            region="us-east-1",
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )
        with pytest.raises(BaseError, match="Debug source") as caught:
            obstore.get(store, "orders")
    error = failed("read", "s3://warehouse/orders", caught.value, None)
    assert error.code == "storage-no-answer"
    assert "error sending request: Connection refused); retry" in error.message
    assert not any(mark in error.message for mark in ("Debug", "{", "Some("))
