"""Endpoints whose buckets are in the names of hosts (``path-style = false``): all clients write into the same bucket.

moto is reached as a proxy, which gets such names as they are; they need not resolve.
"""

from __future__ import annotations

from collections.abc import Iterator

import deltalake
import polars as pl
import pytest

from filestore.storage.client import PART_BYTES
from filestore.storage.locations import S3Store, storage_of
from filestore.storage.objects import ObjectStorage
from filestore.storage.s3_settings import S3Settings
from tests.filestore.storage.places import Place, put, s3_place
from tests.servers.s3 import REGION, S3Endpoint
from tests.tables import create, define, read, write

ENDPOINT = "http://s3.tests"
IN_HOSTS = S3Settings(ENDPOINT, REGION, path_style=False)


@pytest.mark.parametrize(
    ("endpoint", "bucket", "address"),
    [
        ("http://s3.tests:9000", "lake", ("http://lake.s3.tests:9000", False)),
        ("https://s3.tests/", "lake", ("https://lake.s3.tests", False)),
        ("http://s3.tests/prefix", "lake", ("http://lake.s3.tests/prefix", False)),
        ("http://s3.tests", "lake.one", ("http://lake.one.s3.tests", False)),
        ("https://s3.tests", "lake.one", ("https://s3.tests", True)),
        ("http://s3.tests", "Lake_1", ("http://s3.tests", True)),
        ("http://127.0.0.1:9000", "lake", ("http://127.0.0.1:9000", True)),
        ("http://[::1]:9000", "lake", ("http://[::1]:9000", True)),
        (None, "lake", (None, False)),
        (None, "lake.one", (None, True)),
    ],
)
def test_where_a_bucket_is(endpoint: str | None, bucket: str, address: tuple[str | None, bool]) -> None:
    settings = S3Settings(endpoint, "eu-west-1", path_style=False, anonymous=True)
    assert settings.address_of(bucket) == address
    options = settings.delta_options(bucket)
    assert options.get("aws_endpoint_url") == address[0]
    assert options["aws_virtual_hosted_style_request"] == str(not address[1]).lower()


@pytest.fixture
def by_proxy(moto: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Endpoint]:
    moto.set_environment(monkeypatch)
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, moto.endpoint)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")
    yield moto


@pytest.mark.parametrize("library", ["obstore", "s3fs"])
def test_all_requests_of_a_client_go_to_the_bucket(by_proxy: S3Endpoint, library: str) -> None:
    """Single requests of obstore went to a bucket that had the name of the first folder."""
    bucket = by_proxy.new_bucket()
    storage = ObjectStorage(S3Store(IN_HOSTS, library))
    place = Place(storage, f"s3://{bucket}/a/b")
    storage.write_new(place.path("new"), b"1")
    put(place, "small", b"2")
    put(place, "large", bytes(PART_BYTES + 1))
    assert by_proxy.keys(bucket) == ["a/b/large", "a/b/new", "a/b/small"]
    assert place.anew().read(place.path("new")) == b"1"
    assert sorted(place.anew().list_names(place.folder)) == ["large", "new", "small"]
    place.storage.delete_tree(place.folder)
    assert by_proxy.keys(bucket) == []


def test_a_table_its_checkpoints_and_other_readers_use_the_bucket(by_proxy: S3Endpoint) -> None:
    bucket = by_proxy.new_bucket()
    location = f"s3://{bucket}/a/t"
    storage = storage_of(location, IN_HOSTS.options())
    store = create(location, define("id BIGINT", ["id"], checkpoint_interval=1), storage)
    write(store, [{"id": 1}])
    assert f"a/t/_delta_log/{store.state().version:020}.checkpoint.parquet" in by_proxy.keys(bucket)
    options = storage.delta_options(location)
    assert deltalake.DeltaTable(location, storage_options=options).version() == store.state().version
    assert pl.scan_delta(location, storage_options=options).collect().height == len(read(store)) == 1


@pytest.mark.parametrize("library", ["obstore", "s3fs"])
def test_an_endpoint_that_was_given_counts_more_than_the_environments(
    moto: S3Endpoint, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """object_store prefers the variable to its configuration."""
    place = s3_place(moto, library, monkeypatch)
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    put(place, "small", b"1")
    put(place, "large", bytes(PART_BYTES + 1))
    store = create(place.path("t"), define("id BIGINT", ["id"], checkpoint_interval=1), place.storage)
    options = place.storage.delta_options(store.location)
    assert deltalake.DeltaTable(store.location, storage_options=options).version() == store.state().version
    assert pl.scan_delta(store.location, storage_options=options).collect().height == 0
