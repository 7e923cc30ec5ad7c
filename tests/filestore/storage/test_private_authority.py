"""S3 over TLS whose certificate a private authority has signed (``AWS_CA_BUNDLE``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import tablestore
from filestore.errors import Unavailable
from filestore.storage.locations import S3Store
from filestore.storage.objects import ObjectStorage
from filestore.storage.s3_settings import S3Settings
from tests.filestore.storage.places import impatient
from tests.servers.s3 import S3Endpoint
from tests.servers.tls_front import TlsFront
from tests.tables import assert_healthy, in_order, read_polars


@pytest.fixture
def secure(moto: S3Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TlsFront]:
    port = urlsplit(moto.endpoint).port
    assert port is not None
    moto.set_environment(monkeypatch)
    with TlsFront(port, tmp_path) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://127.0.0.1:{front.port}")
        monkeypatch.delenv("AWS_ALLOW_HTTP")
        yield front


@pytest.mark.parametrize("library", ["obstore", "s3fs"])
def test_files_are_written_and_read(
    library: str, secure: TlsFront, moto: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(secure.authority))
    storage = ObjectStorage(S3Store(S3Settings(endpoint=f"https://127.0.0.1:{secure.port}"), library))
    path = f"s3://{moto.new_bucket()}/a/file"
    storage.write_new(path, b"one")
    assert storage.read(path) == b"one"


@pytest.mark.parametrize("library", ["obstore", "s3fs"])
def test_an_unknown_authority_is_an_error_that_names_it(
    library: str, secure: TlsFront, moto: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch)
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    storage = ObjectStorage(S3Store(S3Settings(endpoint=f"https://127.0.0.1:{secure.port}"), library))
    with pytest.raises(Unavailable, match="AWS_CA_BUNDLE") as caught:
        storage.read(f"s3://{moto.new_bucket()}/a/file")
    assert caught.value.code == "tls-certificate"


def test_a_table_and_its_checkpoints_are_behind_a_private_authority(
    secure: TlsFront, moto: S3Endpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_CA_BUNDLE", "SSL_CERT_FILE"):  # the second is that of deltalake, which writes checkpoints
        monkeypatch.setenv(name, str(secure.authority))
    bucket = moto.new_bucket()
    with tablestore.connect(f"s3://{bucket}/lake", database=f"sqlite:///{tmp_path}/catalog.db") as store:
        store.create_database("shop")
        table = store.create_table("shop.t", "id BIGINT", primary_key=["id"])
        for number in range(11):
            table.write([{"id": number}])
        assert_healthy(table.filestore)
        assert read_polars(table.location) == in_order({"id": number} for number in range(11))
        assert any(key.endswith("/_delta_log/_last_checkpoint") for key in moto.keys(bucket))
